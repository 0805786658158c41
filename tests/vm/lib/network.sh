# A network namespace of ours, with bridges that carry the guests' taps. Nothing of
# the host's own network is touched; deleting the namespace takes it all away.
# shellcheck shell=bash disable=SC2034

NET_MTU=9000

# Namespaces are named after the process that owns them, so that a run which was
# killed outright is cleaned up by the next one. NET_RUN is the beginning of a command
# inside; it is no function, so that $! of one in the background is the command itself.
net_up() {
  NET_NS=$1
  NET_RUN=(ip netns exec "$1")
  ip netns list | grep -qw "^$NET_NS" && return
  ip netns add "$NET_NS"
  ip -n "$NET_NS" link set lo up
}

# net_bridge NAME ADDRESS/LENGTH
net_bridge() {
  ip -n "$NET_NS" link show "$1" > /dev/null 2>&1 && return
  ip -n "$NET_NS" link add "$1" type bridge
  ip -n "$NET_NS" link set "$1" mtu "$NET_MTU" up
  ip -n "$NET_NS" address add "$2" dev "$1"
}

# net_tap NAME BRIDGE
net_tap() {
  ip -n "$NET_NS" link delete "$1" 2> /dev/null || :
  ip -n "$NET_NS" tuntap add dev "$1" mode tap
  ip -n "$NET_NS" link set "$1" mtu "$NET_MTU" master "$2" up
}

# net_link NAME up|down: a wire plugged in or cut.
net_link() { ip -n "$NET_NS" link set "$1" "$2"; }

# Ends every process inside the namespace, then the namespace.
net_down() {
  local ns=$1 pid tries
  ip netns list | grep -qw "^$ns" || return 0
  for tries in 1 2 3 4 5; do
    pid=$(ip netns pids "$ns") || break
    [ -n "$pid" ] || break
    # shellcheck disable=SC2086
    kill -KILL $pid 2> /dev/null || :
    sleep "0.$tries"
  done
  ip netns delete "$ns"
}

# Takes away the namespaces PREFIX-PID whose process is gone.
net_sweep() {
  local ns
  for ns in $(ip netns list | awk -v prefix="$1-" 'index($1, prefix) == 1 { print $1 }'); do
    [[ ${ns##*-} =~ ^[0-9]+$ ]] || continue
    kill -0 "${ns##*-}" 2> /dev/null || net_down "$ns"
  done
}
