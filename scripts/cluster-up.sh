#!/usr/bin/env bash
# Three hosts on this machine for tests: a head with SLURM's controller and accounting, and two nodes, each a network
# namespace with a name and an address of its own. Nothing leaves them, and the machine's own network is not touched.
# Debian, as root.
#
#   usage: scripts/cluster-up.sh [FOLDER]      prints the line that points SLURM's commands at the cluster;
#                                              run them on the head: nsenter --net=/run/netns/advsvm-head sinfo
#   stop:  scripts/cluster-up.sh --stop [FOLDER]
# Exit code 3: there can be no namespaces here.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
stop=0
if [ "${1:-}" = --stop ]; then stop=1; shift; fi
ROOT=${1:-/var/tmp/advsvm-cluster}
HOSTS=(head n1 n2)

if [ $stop = 1 ]; then
  "$here/slurm-down.sh" "$ROOT" || true
  for host in "${HOSTS[@]}"; do
    for _ in 1 2 3; do
      pids=$(ip netns pids "advsvm-$host" 2>/dev/null) || pids=
      [ -z "$pids" ] || { kill -9 $pids 2>/dev/null || true; sleep 0.5; }
    done
    ip netns del "advsvm-$host" 2>/dev/null || true
  done
  exit 0
fi

[ "$(id -u)" = 0 ] && command -v ip >/dev/null && unshare --net --uts true 2>/dev/null \
  || { echo "cluster-up: needs root, iproute2 and network namespaces" >&2; exit 3; }
# Before there are hosts: from their network no package server is reached.
"$here/slurm-up.sh" --install "$ROOT"
on() { nsenter --net="/run/netns/advsvm-$1" "${@:2}"; }
# The switch stands on the head; a host's cable is the link "n1" there.
if ! ip netns list | grep -q '^advsvm-head\b'; then
  for host in "${HOSTS[@]}"; do ip netns add "advsvm-$host"; on "$host" ip link set lo up; done
  on head ip link add switch type bridge
  on head ip address add 10.77.0.1/24 dev switch
  on head ip link set switch up
  number=10
  for host in "${HOSTS[@]:1}"; do
    number=$((number + 1))
    on head ip link add "$host" type veth peer name eth0 netns "advsvm-$host"
    on head ip link set "$host" master switch up
    on "$host" ip address add "10.77.0.$number/24" dev eth0
    on "$host" ip link set eth0 up
  done
fi
on head env -u SLURM_CONF ADVSVM_SLURM_ADDRESS=10.77.0.1 ADVSVM_SLURM_NODES="n1=10.77.0.11 n2=10.77.0.12" \
  "$here/slurm-up.sh" "$ROOT"
