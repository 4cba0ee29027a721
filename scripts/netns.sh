#!/usr/bin/env bash
# A cluster of network namespaces on this machine, every host's link shaped to a rate. Needs root.
#
#   netns.sh check                    exit 0 if this machine permits it, else 1 and the reason
#   netns.sh up NAME HOSTS RATE [BURST]
#                                     hosts 10.77.0.1 .. 10.77.0.HOSTS on one bridge; RATE as tc says it, say 1gbit
#   netns.sh exec NAME HOST CMD...    runs CMD on host HOST (1 ..), whose interface is eth0 and whose name is hostHOST
#   netns.sh agent NAME HOST CMD...   the same as ssh would do it, for MPI's launchers: HOST is a name or an address,
#                                     a shell reads CMD, options before HOST are ignored
#   netns.sh down NAME                ends what runs in the hosts and removes them
#
# NAME tells clusters apart. Each has its own bridge, also in a namespace, so nothing outside is touched and several
# clusters do not interfere. A host sends at most RATE (token bucket), in bursts of up to 256 KiB. With BURST (in tc's
# notation) hosts behave as on a switch: they also receive at most RATE, both in bursts of up to BURST. TCP then hands
# over packets of at most half of BURST, because a link here passes a packet as a whole, once the bucket holds tokens
# for all of it. TCP uses reno, so that only the links pace what hosts send: bbr, the default of some machines, costs a
# timer per packet.
set -euo pipefail
source "$(dirname "$0")/namespace_hosts.sh"

say() { echo "netns.sh: $*" >&2; }

namespaces() { ip netns list | awk '{print $1}' | grep -E "^$1-(switch|[0-9]+)$" || true; }

down() {
  local namespace pid
  for namespace in $(namespaces "$1"); do
    for pid in $(ip netns pids "$namespace" 2>/dev/null); do kill -KILL "$pid" 2>/dev/null || true; done
    ip netns del "$namespace"
  done
}

up() {
  local name=$1 hosts=$2 rate=$3 burst=${4:-} i
  if [ -n "$(namespaces "$name")" ]; then
    say "there is a cluster $name already; 'netns.sh down $name' removes it"
    exit 1
  fi
  trap 'down "$name"' ERR
  ip netns add "$name-switch"
  ip -n "$name-switch" link add bridge type bridge
  ip -n "$name-switch" link set bridge up
  for ((i = 1; i <= hosts; i++)); do
    ip netns add "$name-$i"
    ip -n "$name-$i" link set lo up
    ip link add eth0 netns "$name-$i" type veth peer name "port$i" netns "$name-switch"
    ip -n "$name-switch" link set "port$i" master bridge up
    ip -n "$name-$i" addr add "10.77.0.$i/24" dev eth0
    ip -n "$name-$i" link set eth0 up
    ip netns exec "$name-$i" tc qdisc add dev eth0 root tbf rate "$rate" burst "${burst:-256k}" latency 50ms
    ip netns exec "$name-$i" sysctl -qw net.ipv4.tcp_congestion_control=reno
    [ -n "$burst" ] || continue
    ip netns exec "$name-switch" tc qdisc add dev "port$i" root tbf rate "$rate" burst "$burst" latency 50ms
    ip -n "$name-$i" link set dev eth0 gso_max_size "$(($(numfmt --from=iec "${burst^^}") / 2))"
  done
  trap - ERR
}

check() {
  local name=check$$ said
  if ! command -v ip >/dev/null || ! command -v tc >/dev/null; then
    say "there are no ip and tc here: install iproute2"
    exit 1
  fi
  if [ "$(id -u)" -ne 0 ]; then
    say "network namespaces need root"
    exit 1
  fi
  if ! said=$({ "$0" up "$name" 1 1gbit && "$0" down "$name"; } 2>&1); then
    say "this machine permits no shaped network namespaces: ${said//$'\n'/; }"
    exit 1
  fi
}

case "${1:-}:$#" in
  check:1) check ;;
  up:[45]) up "${@:2}" ;;
  down:2) down "$2" ;;
  exec:[4-9] | exec:[1-9][0-9]*) run_on "${@:2}" ;;
  agent:[4-9] | agent:[1-9][0-9]*) agent "${@:2}" ;;
  *)
    sed -n '2,/^# NAME/p' "$0" | sed '$d; s/^# \?//' >&2
    exit 2
    ;;
esac
