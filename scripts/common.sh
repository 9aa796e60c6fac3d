# SPDX-License-Identifier: Apache-2.0
# Sourced by the other scripts: where the project is, how they speak, the environment for MPI.
# shellcheck shell=bash disable=SC2034

set -euo pipefail

project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# What nproc says goes by OMP_NUM_THREADS, which is about something else.
cores=$(env -u OMP_NUM_THREADS nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)

# shellcheck source=scripts/environment.sh
. "$project/scripts/environment.sh"

bold='' plain=''
if [ -t 1 ]; then
  bold=$'\033[1m' plain=$'\033[0m'
fi

# say <text>...: a line of our own between the output of the commands.
say() {
  printf '%s\n' "${bold}== $*${plain}"
}

fail() {
  printf '%s\n' "$(basename "$0"): $*" >&2
  exit 1
}

# step <what> <command> [<argument>...]: says what it does, does it, says how long it took.
step() {
  local what=$1 start=$SECONDS
  shift
  say "$what"
  "$@"
  say "$what: done in $((SECONDS - start)) s"
}

# configure <preset> <build folder> [<CMake argument>...], in the project's folder.
configure() {
  local preset=$1 folder=$2 generator=()
  shift 2
  # A build folder keeps the generator that it was made with.
  if [ ! -f "$folder/CMakeCache.txt" ] && command -v ninja >/dev/null; then
    generator=(-G Ninja)
  fi
  cmake --preset "$preset" ${generator[@]+"${generator[@]}"} "$@"
}
