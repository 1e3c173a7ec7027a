#!/usr/bin/env bash
# Stops the daemons that scripts/slurm-up.sh started, by the pid files in its folder; others are left alone.
#   usage: scripts/slurm-down.sh [FOLDER]
set -uo pipefail
ROOT=${1:-${ADVSVM_SLURM:-/var/tmp/advsvm-slurm}}

pid_of() { cat "$ROOT/run/$1.pid" "$ROOT/mysql-run/$1.pid" 2>/dev/null | head -n 1; }
alive() { # the pid may have been given to another program since; a zombie has no command line
  local pid; pid=$(pid_of "$1")
  [ -n "$pid" ] && [ -n "$(tr -d '\0' 2>/dev/null <"/proc/$pid/cmdline")" ] && [ "$(cat "/proc/$pid/comm")" = "$1" ]
}

code=0
for daemon in slurmctld slurmd slurmdbd mariadbd munged; do
  alive "$daemon" || continue
  kill "$(pid_of "$daemon")"
  for _ in $(seq 60); do alive "$daemon" || break; sleep 0.25; done
  if alive "$daemon"; then echo "slurm-down: $daemon ($(pid_of "$daemon")) does not stop" >&2; code=1; fi
done
exit $code
