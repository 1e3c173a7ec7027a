#!/usr/bin/env bash
# A PostgreSQL server with one database for MLflow, in a folder of its own, on 127.0.0.1 only. Idempotent.
#   usage: scripts/postgres-up.sh [FOLDER] [PORT]     prints the address for mlflow server --backend-store-uri
#   stop:  scripts/postgres-up.sh --stop [FOLDER]
# Exit code 3: PostgreSQL is not there and cannot be installed.
set -euo pipefail

say() { echo "postgres-up: $*" >&2; }
stop=0
if [ "${1:-}" = --stop ]; then stop=1; shift; fi
FOLDER=${1:-${ADVSVM_POSTGRES:-/var/tmp/advsvm-postgres}}
PORT=${2:-5433}

tools() { ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1; }
if [ -z "$(tools)" ] && ! command -v initdb >/dev/null; then
  { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; } || { say "no PostgreSQL here (apt-get install postgresql)"; exit 3; }
  say "installing postgresql"
  apt=(apt-get -qq -o DPkg::Lock::Timeout=300)
  export DEBIAN_FRONTEND=noninteractive
  "${apt[@]}" update >/dev/null 2>&1 || true
  "${apt[@]}" install -y --no-install-recommends postgresql >/dev/null 2>&1 || { say "apt-get could not install postgresql"; exit 3; }
fi
PATH=$(tools):$PATH

# PostgreSQL refuses to run as root.
if [ "$(id -u)" = 0 ]; then
  as_owner() { runuser -u postgres -- env PATH="$PATH" "$@"; }
  owner=postgres
else
  as_owner() { "$@"; }
  owner=$(id -un)
fi
cd /

if [ $stop = 1 ]; then
  as_owner pg_ctl -D "$FOLDER/data" -m fast -w stop >/dev/null
  exit 0
fi

mkdir -p "$FOLDER"
chmod 700 "$FOLDER"
chown "$owner" "$FOLDER"
if [ ! -s "$FOLDER/password" ]; then
  (umask 077; od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$FOLDER/password")
  chown "$owner" "$FOLDER/password"
fi
if [ ! -s "$FOLDER/data/PG_VERSION" ]; then
  as_owner initdb -D "$FOLDER/data" -U mlflow --pwfile="$FOLDER/password" --auth=scram-sha-256 -E UTF8 >"$FOLDER/initdb.log"
fi
if ! as_owner pg_ctl -D "$FOLDER/data" status >/dev/null 2>&1; then
  as_owner pg_ctl -D "$FOLDER/data" -l "$FOLDER/postgres.log" -w -t 60 \
    -o "-c listen_addresses=127.0.0.1 -c port=$PORT -c unix_socket_directories=$FOLDER" start >/dev/null
fi
PORT=$(sed -n 4p "$FOLDER/data/postmaster.pid")
export PGPASSWORD; PGPASSWORD=$(cat "$FOLDER/password")
psql=(psql -qtA -h 127.0.0.1 -p "$PORT" -U mlflow -d postgres)
[ "$("${psql[@]}" -c "select 1 from pg_database where datname = 'mlflow'")" = 1 ] || "${psql[@]}" -c "create database mlflow"
echo "postgresql+psycopg://mlflow:$PGPASSWORD@127.0.0.1:$PORT/mlflow"
