#!/usr/bin/env bash
# A real one-node SLURM cluster with accounting on this machine, for tests: no systemd, everything in one folder,
# nothing written to /etc, all daemons on loopback. Idempotent. Debian, as root.
#
#   usage: scripts/slurm-up.sh [FOLDER]        prints the line that points SLURM's commands at the cluster:
#          eval "$(scripts/slurm-up.sh)" && sinfo
#          scripts/slurm-up.sh --install       only installs the packages
#   stop:  scripts/slurm-down.sh [FOLDER]
#
# A cluster that answers already (SLURM_CONF or /etc/slurm) is used as it is and never touched.
#
# scripts/cluster-up.sh calls it for several hosts: ADVSVM_SLURM_ADDRESS is then that of the namespace it runs in, and
# ADVSVM_SLURM_NODES lists the namespaces of the nodes, "NAME=ADDRESS …".
set -euo pipefail

say() { echo "slurm-up: $*" >&2; }
die() { say "$*"; exit 1; }
only_install=0
if [ "${1:-}" = --install ]; then only_install=1; shift; fi

if [ $only_install = 0 ] && command -v sinfo >/dev/null && timeout 5 sinfo -h -o %T 2>/dev/null | grep -qE 'idle|mixed|allocated'; then
  say "a cluster answers already; using it"
  [ -z "${SLURM_CONF:-}" ] || echo "export SLURM_CONF=$SLURM_CONF"
  exit 0
fi
[ "$(id -u)" = 0 ] || die "needs root to start the daemons (no cluster answers to sinfo)"

# Short, because a unix socket's path may have 107 characters.
ROOT=${1:-${ADVSVM_SLURM:-/var/tmp/advsvm-slurm}}
LOG=$ROOT/log
mkdir -p "$ROOT"/{etc,state,spool,log,run,mysql,mysql-run}
chmod 755 "$ROOT" "$ROOT"/{etc,state,spool,log,run}
ADDRESS=${ADVSVM_SLURM_ADDRESS:-127.0.0.1}
NODES=${ADVSVM_SLURM_NODES:-}
SOCKET=$ROOT/mysql-run/mysql.sock
MUNGE=$ROOT/run/munge.sock
export SLURM_CONF=$ROOT/etc/slurm.conf

wait_for() { # wait_for WHAT COMMAND...: up to 30 s
  local what=$1; shift
  for _ in $(seq 120); do "$@" >/dev/null 2>&1 && return 0; sleep 0.25; done
  for file in "$LOG"/*.log; do echo "== $file" >&2; tail -n 15 "$file" >&2; done
  die "$what did not start within 30 s"
}
running() { # the pid may have been given to another program since
  local pid; pid=$(cat "$ROOT/run/$1.pid" 2>/dev/null) && [ -n "$(tr -d "\0" 2>/dev/null <"/proc/$pid/cmdline")" ] \
    && [ "$(cat "/proc/$pid/comm")" = "$1" ]
}

# --- packages
packages=(slurmctld slurmd slurm-client slurmdbd munge mariadb-server)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  command -v apt-get >/dev/null || die "needs ${missing[*]} and there is no apt-get to install them"
  say "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt=(apt-get -qq -o DPkg::Lock::Timeout=300)
  # Package scripts must not start daemons of their own: ours are started below, with a configuration of their own.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  fi
  "${apt[@]}" update >"$LOG/apt.log" 2>&1 || true
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >>"$LOG/apt.log" 2>&1 \
    || { tail -n 5 "$LOG/apt.log" >&2; die "apt-get could not install ${missing[*]}"; }
fi
[ $only_install = 0 ] || exit 0

# --- munge: messages between the daemons are signed with a key of this cluster
[ -s "$ROOT/etc/munge.key" ] || mungekey --create --keyfile "$ROOT/etc/munge.key"
chmod 400 "$ROOT/etc/munge.key"
running munged || munged --socket="$MUNGE" --key-file="$ROOT/etc/munge.key" --pid-file="$ROOT/run/munged.pid" \
  --log-file="$LOG/munged.log" --seed-file="$ROOT/state/munge.seed" --num-threads=10
wait_for munged munge -n -S "$MUNGE"

# --- accounting: without sacct submitit cannot tell that a job was killed and waits for it for ever
if [ ! -d "$ROOT/mysql/mysql" ]; then
  chown mysql: "$ROOT/mysql"
  mariadb-install-db --no-defaults --user=mysql --datadir="$ROOT/mysql" --skip-test-db \
    --auth-root-authentication-method=socket >"$LOG/mariadb-install.log" 2>&1 || die "see $LOG/mariadb-install.log"
fi
database=(--no-defaults --socket="$SOCKET")
if ! mariadb-admin "${database[@]}" ping >/dev/null 2>&1; then
  chown mysql: "$ROOT/mysql-run"
  # No port at all: only through the socket.
  setsid mariadbd "${database[@]}" --user=mysql --datadir="$ROOT/mysql" --skip-networking \
    --pid-file="$ROOT/mysql-run/mariadbd.pid" --innodb-buffer-pool-size=64M --innodb-lock-wait-timeout=900 \
    --innodb-flush-log-at-trx-commit=2 >"$LOG/mariadb.log" 2>&1 </dev/null &
fi
wait_for mariadbd mariadb-admin "${database[@]}" ping
if [ ! -s "$ROOT/etc/database-password" ]; then
  (umask 077; od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$ROOT/etc/database-password")
fi
password=$(cat "$ROOT/etc/database-password")
mariadb "${database[@]}" <<SQL
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS 'slurm'@'localhost';
SET PASSWORD FOR 'slurm'@'localhost' = PASSWORD('$password');
GRANT ALL ON slurm_acct_db.* TO 'slurm'@'localhost';
SQL
# --- the cluster
communication=CommunicationParameters=NoInAddrAny
# SLURM binds either to every address or to that of the machine's name. A UTS namespace gives the daemons a name of
# their own, localhost, so that they are reached from this machine only; where that is forbidden they keep the name.
if [ -n "$NODES" ]; then
  # A network of its own: every address in it is ours.
  host=head communication=
  on_loopback() { unshare --uts sh -c 'hostname head && exec "$@"' sh "$@"; }
elif unshare --uts true 2>/dev/null; then
  host=localhost
  on_loopback() { unshare --uts sh -c 'hostname localhost && exec "$@"' sh "$@"; }
else
  host=$(hostname -s)
  on_loopback() { "$@"; }
fi
(umask 077; cat >"$ROOT/etc/slurmdbd.conf") <<CONF
AuthType=auth/munge
AuthInfo=socket=$MUNGE
DbdHost=$host
DbdAddr=$ADDRESS
DbdPort=16819
$communication
SlurmUser=root
PidFile=$ROOT/run/slurmdbd.pid
LogFile=$LOG/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=$password
StorageLoc=slurm_acct_db
CONF

cpus=$(nproc) per_node='' nodes="$host=$ADDRESS"
if [ -n "$NODES" ]; then
  cpus=1 per_node=-%n nodes=$NODES
fi
memory=$(($(awk '/MemTotal/{print $2}' /proc/meminfo) / 1024 - 512))
cat >"$SLURM_CONF" <<CONF
ClusterName=advsvm
SlurmctldHost=$host($ADDRESS)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$MUNGE
CredType=cred/munge
${communication:+$communication,NoCtldInAddrAny}
StateSaveLocation=$ROOT/state
SlurmdSpoolDir=$ROOT/spool/%n
SlurmctldPidFile=$ROOT/run/slurmctld.pid
SlurmdPidFile=$ROOT/run/slurmd$per_node.pid
SlurmctldLogFile=$LOG/slurmctld.log
SlurmdLogFile=$LOG/slurmd$per_node.log
SlurmctldPort=16817
SlurmdPort=16818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=$ADDRESS
AccountingStoragePort=16819
AccountingStoragePass=$MUNGE
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
${NODES:+SlurmdParameters=config_overrides}
${NODES:+SlurmdTimeout=100}
KillWait=10
MinJobAge=300
MailProg=/bin/true
$(for node in $nodes; do
  echo "NodeName=${node%=*} NodeAddr=${node#*=} NodeHostname=${node%=*} CPUs=$cpus RealMemory=$memory State=UNKNOWN"
done)
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
CONF
# libmariadb looks for its own default socket unless told.
export MYSQL_UNIX_PORT=$SOCKET
running slurmdbd || on_loopback slurmdbd
wait_for slurmdbd sacctmgr -n list cluster
[ -n "$(sacctmgr -n list cluster cluster=advsvm format=cluster)" ] || sacctmgr -i add cluster advsvm >/dev/null
running slurmctld || on_loopback slurmctld
if [ -z "$NODES" ]; then
  running slurmd || on_loopback slurmd
else
  for node in $NODES; do
    name=${node%=*}
    [ -z "$(ip netns pids "advsvm-$name")" ] || continue
    # Not "ip netns exec": it hides /sys/fs/cgroup, which slurmd looks for.
    nsenter --net="/run/netns/advsvm-$name" unshare --uts sh -c 'hostname "$1" && exec slurmd -N "$1"' sh "$name"
  done
fi
ready() { [ "$(sinfo -h -N -o %T | grep -cE 'idle|mixed|allocated')" = "$(wc -w <<<"$nodes")" ]; }
wait_for "the node" ready
say "$(sinfo -h -o '%P %D node, %c cpus, %T')"
echo "export SLURM_CONF=$SLURM_CONF"
