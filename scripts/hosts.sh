# SPDX-License-Identifier: Apache-2.0
# Sourced by scripts that check what needs several hosts: network namespaces of this machine, each with
# an interface of its own on a common bridge. Takes root, iproute2, util-linux and Open MPI 4 or 5, after
# common.sh. Leaves nothing behind.
# shellcheck shell=bash

[ "$(id -u)" = 0 ] || fail "needs root, to make network namespaces"
for tool in ip tc unshare mpiexec; do
  command -v "$tool" >/dev/null || fail "$tool is not there (Debian packages iproute2, util-linux)"
done

# Names of interfaces have at most 15 characters.
name=ok$$
name=${name:0:7}
network=10.77.$(($$ % 200 + 20))
folder=$(mktemp -d)
most_hosts=4

clean_up() {
  local host
  for ((host = 1; host <= most_hosts; ++host)); do
    ip netns del "$name-$host" 2>/dev/null || true
    ip link del "$name-h$host" 2>/dev/null || true
  done
  ip link del "$name-br" 2>/dev/null || true
  rm -rf "$folder"
}
trap clean_up EXIT

# Hosts NAME-1, NAME-2, ... with the interface eth0; this one has the bridge.
make_hosts() {
  local host
  ip link add "$name-br" type bridge
  ip addr add "$network.254/24" dev "$name-br"
  ip link set "$name-br" up
  for ((host = 1; host <= most_hosts; ++host)); do
    ip netns add "$name-$host"
    ip link add "$name-h$host" type veth peer name eth0 netns "$name-$host"
    ip link set "$name-h$host" master "$name-br" up
    ip -n "$name-$host" addr add "$network.$host/24" dev eth0
    ip -n "$name-$host" link set eth0 up
    ip -n "$name-$host" link set lo up
  done
}

# What mpiexec calls as "agent HOST COMMAND...", as it would call ssh: in the host's network, with a
# host name of its own.
make_agent() {
  cat >"$folder/agent" <<'AGENT'
#!/usr/bin/env bash
host=$1
shift
exec ip netns exec "$host" unshare --uts bash -c 'hostname "$0" && eval "$@"' "$host" "$@"
AGENT
  chmod +x "$folder/agent"
}

mpi_options=()  # more options of mpiexec
starter=()      # what starts mpiexec

# on_hosts <hosts> <ranks> <command>...: as many ranks on each host. Ranks of a host share memory,
# those of different ones communicate by TCP, over eth0.
on_hosts() {
  local hosts=$1 ranks=$2 list='' host
  shift 2
  for ((host = 1; host <= hosts; ++host)); do
    list+=${list:+,}$name-$host:$((ranks / hosts))
  done
  ${starter[@]+"${starter[@]}"} mpiexec --mca plm_rsh_agent "$folder/agent" --mca plm_rsh_no_tree_spawn 1 --mca plm rsh \
    --mca btl self,vader,tcp --mca pml ob1 \
    --mca btl_tcp_if_include "$network.0/24" --mca oob_tcp_if_include "$network.0/24" \
    ${mpi_options[@]+"${mpi_options[@]}"} --host "$list" -n "$ranks" "$@"
}

# bits <folder of a run>: loss, norm and digest of each step.
bits() {
  sed -nE 's/.*"step": ?([0-9]+).*/\1 &/p' "$1/metrics.jsonl" |
    grep -oE '"(step|loss|grad_norm|state_digest)": ?[^][,}]+' | tr '\n' ' '
}
