#!/usr/bin/env bash
# Hosts far apart on this machine: network namespaces between which build/tests/wan_link delays, shapes and loses
# packets. Needs root and /dev/net/tun; of the kernel's qdiscs only tbf, for --uplink holds.
#
#   wan.sh check                      exit 0 if this machine permits it, else 1 and the reason
#   wan.sh up NAME HOSTS [OPTION VALUE]...
#                                     hosts 10.78.0.1 .. 10.78.0.HOSTS
#   wan.sh exec NAME HOST CMD...      runs CMD on host HOST (1 ..), whose interface is eth0 and whose name is hostHOST
#   wan.sh agent NAME HOST CMD...     the same as ssh would do it, for MPI's launchers: HOST is a name or an address,
#                                     a shell reads CMD, options before HOST are ignored
#   wan.sh link NAME HOST up|down     plugs the host's line in or out
#   wan.sh cross NAME FROM TO [CONNECTIONS]
#                                     other traffic: plain TCP connections (1) that send from FROM to TO until `down`
#   wan.sh down NAME                  ends what runs in the hosts and removes them; prints what passed and was dropped
#
# Options of `up`: --rate 1gbit --delay 50ms --jitter 1ms --queue 4m --flow-rate 200mbit --flow-queue 1m --loss 0.001
# --up-rate, --down-rate, --up-queue, --down-queue, and at the end those of single hosts: --host 3 --rate 50mbit
# (`wan_link --help` explains them). --uplink holds: a host's way out drops nothing but makes TCP wait, as the queue of
# a network card does; default: drops. Of TCP on the hosts: --cc cubic (congestion control; default: the machine's),
# --gso 16k (largest packet that TCP hands over; 64k), --wmem 4m, --rmem 6m (largest buffers of a connection).
set -euo pipefail
source "$(dirname "$0")/namespace_hosts.sh"
link=$(cd "$(dirname "$0")/.." && pwd)/build/tests/wan_link
state=${TMPDIR:-/tmp}

say() { echo "wan.sh: $*" >&2; }

namespaces() { ip netns list | awk '{print $1}' | grep -E "^$1-[0-9]+$" || true; }

down() {
  local namespace pid
  for namespace in $(namespaces "$1"); do
    for pid in $(ip netns pids "$namespace" 2>/dev/null); do kill -KILL "$pid" 2>/dev/null || true; done
  done
  if [ -f "$state/wan-$1.pid" ]; then
    pid=$(cat "$state/wan-$1.pid")
    kill -TERM "$pid" 2>/dev/null || true
    tail --pid="$pid" -s 0.05 -f /dev/null
    grep -v ready "$state/wan-$1.log" || true
  fi
  for namespace in $(namespaces "$1"); do ip netns del "$namespace"; done
  rm -f "$state/wan-$1.pid" "$state/wan-$1.log"
}

up() {
  local name=$1 hosts=$2 i cc='' gso='' wmem='' rmem='' flags=() host=0 holds=''
  local -A out=()  # the rate of each host's way out; 0: of the others
  shift 2
  [[ " $* " != *" --uplink holds "* ]] || holds=1
  while [ $# -ge 2 ]; do
    case $1 in
      --uplink) [[ $2 == holds || $2 == drops ]] || { say "--uplink is drops or holds, not $2"; exit 2; } ;;
      --host) host=$2 flags+=("$1" "$2") ;;
      --rate) out[$host]=${out[$host]:-$2} flags+=("--${holds:+down-}rate" "$2") ;;
      --up-rate) out[$host]=$2; [ -n "$holds" ] || flags+=("$1" "$2") ;;
      --queue) flags+=("--${holds:+down-}queue" "$2") ;;
      --up-queue) [ -z "$holds" ] || { say "an uplink that holds has no --up-queue"; exit 2; }; flags+=("$1" "$2") ;;
      --cc) cc=$2 ;;
      --gso) gso=$(numfmt --from=iec "${2^^}") ;;
      --wmem) wmem=$(numfmt --from=iec "${2^^}") ;;
      --rmem) rmem=$(numfmt --from=iec "${2^^}") ;;
      *) flags+=("$1" "$2") ;;
    esac
    shift 2
  done
  if [ -n "$(namespaces "$name")" ]; then
    say "there is a cluster $name already; 'wan.sh down $name' removes it"
    exit 1
  fi
  [ -x "$link" ] || { say "there is no $link: 'ninja -C build wan_link' builds it"; exit 1; }
  trap "down '$name' >/dev/null" EXIT
  for ((i = 1; i <= hosts; i++)); do
    ip netns add "$name-$i"
    ip -n "$name-$i" link set lo up
  done
  start_link "$name" --cluster "$name" --hosts "$hosts" "${flags[@]}"
  for ((i = 1; i <= hosts; i++)); do
    set_up_host "$name-$i" "10.78.0.$i"
    [ -z "$holds" ] || hold "$name-$i" "${out[$i]:-${out[0]:-}}"
  done
  trap - EXIT
}

# A token bucket in front of the device: TCP waits for what it has not passed.
hold() {
  [ -n "$2" ] || { say "--uplink holds needs --rate or --up-rate"; exit 2; }
  tc -n "$1" qdisc add dev eth0 root tbf rate "$2" burst 64k limit 256m
}

# They end with the hosts.
cross() {
  local traffic address="10.78.0.$3" port=$((5000 + $2))
  traffic=$(dirname "$0")/cross_traffic.py
  "$0" exec "$1" "$3" python3 "$traffic" receive "$address" "$port" >/dev/null 2>&1 </dev/null &
  "$0" exec "$1" "$2" python3 "$traffic" send "$address" "$port" "$4" >/dev/null 2>&1 </dev/null &
}

# Waits until the link has printed "ready", or has ended.
start_link() {
  local name=$1 pid log="$state/wan-$1.log"
  shift
  : >"$log"
  "$link" "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  echo "$pid" >"$state/wan-$name.pid"
  grep -q -m1 ready < <(tail --pid="$pid" -n +1 -s 0.02 -f "$log") || { cat "$log" >&2; false; }
}

# Uses up()'s variables.
set_up_host() {
  ip -n "$1" addr add "$2/24" dev eth0
  ip -n "$1" link set dev eth0 txqueuelen 20000 mtu 1500 up
  [ -z "$gso" ] || ip -n "$1" link set dev eth0 gso_max_size "$gso"
  # By the route: in a namespace the sysctl accepts only what the machine allows everybody.
  [ -z "$cc" ] || ip -n "$1" route change 10.78.0.0/24 dev eth0 src "$2" congctl "$cc"
  [ -z "$wmem" ] || ip netns exec "$1" sysctl -qw "net.ipv4.tcp_wmem=4096 16384 $wmem"
  [ -z "$rmem" ] || ip netns exec "$1" sysctl -qw "net.ipv4.tcp_rmem=4096 131072 $rmem"
  # No connection starts with what an earlier one learned, so that runs are alike.
  ip netns exec "$1" sysctl -qw net.ipv4.tcp_no_metrics_save=1
}

check() {
  local name=wancheck$$ said
  command -v ip >/dev/null || { say "there is no ip here: install iproute2"; exit 1; }
  [ "$(id -u)" -eq 0 ] || { say "network namespaces need root"; exit 1; }
  [ -c /dev/net/tun ] || { say "there is no /dev/net/tun"; exit 1; }
  if ! said=$({ "$0" up "$name" 1 && "$0" down "$name"; } 2>&1); then
    say "this machine permits no TUN devices in network namespaces: ${said//$'\n'/; }"
    exit 1
  fi
}

case "${1:-}:$#" in
  check:1) check ;;
  up:[3-9] | up:[1-9][0-9]*) up "${@:2}" ;;
  down:2) down "$2" ;;
  link:4) ip -n "$2-$3" link set dev eth0 "$4" ;;
  cross:4) cross "${@:2}" 1 ;;
  cross:5) cross "${@:2}" ;;
  exec:[4-9] | exec:[1-9][0-9]*) run_on "${@:2}" ;;
  agent:[4-9] | agent:[1-9][0-9]*) agent "${@:2}" ;;
  *)
    sed -n '2,/^# Options/p' "$0" | sed '$d; s/^# \?//' >&2
    exit 2
    ;;
esac
