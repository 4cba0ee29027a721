# Sourced by netns.sh and wan.sh: hosts in network namespaces NAME-1, NAME-2, ...

# run_on NAME HOST CMD...
run_on() {
  exec ip netns exec "$1-$2" unshare --uts -- sh -c 'hostname "$0" && exec "$@"' "host$2" "${@:3}"
}

# agent NAME [OPTION]... HOST CMD...: as ssh would do it. HOST is a name or an address, a shell reads CMD.
agent() {
  local name=$1 host
  shift
  while [[ ${1:-} == -* ]]; do shift; done
  host=${1##*[!0-9]}
  shift
  run_on "$name" "$host" sh -c "$*"
}
