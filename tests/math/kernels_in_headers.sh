#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# kernels_in_headers.sh <sources of the project>: fails where a function in a header holds a
# KOKKOS_LAMBDA and is not static.
#
# nvcc copies such a lambda through a pointer that each source has and sets for itself. Code that two
# sources instantiate alike the linker keeps once, with the pointer of one of them: called from the
# other source it copies through a null pointer. Static functions have code of their own in each.
set -euo pipefail

# lambdas <header>...: the lines with a KOKKOS_LAMBDA whose function is not static. As clang-format
# leaves them, functions and classes begin in the first column, and what is in them does not.
lambdas() {
  awk '
    /^[A-Za-z]/ { is_static = /^static / }
    { sub(/\/\/.*/, "") }
    /KOKKOS_(CLASS_)?LAMBDA/ && !is_static { print FILENAME ":" FNR }' "$@"
}

made_up=$(mktemp)
trap 'rm -f "$made_up"' EXIT
cat >"$made_up" <<'HEADER'
// A static function; one that is not; a member.
template <class Body>
static void run(const Exec& exec, const char* name,
                const Body& body) {
  for_each_item(exec, name, 1, KOKKOS_LAMBDA(std::int64_t i) { body(i); });
}
/// A KOKKOS_LAMBDA in a comment.
template <class Body>
void run(const Exec& exec, const Body& body) {
  for_each_item(exec, "run", 1, KOKKOS_LAMBDA(std::int64_t i) { body(i); });
}
class Member {
  static void run(const Exec& exec) {
    for_each_item(exec, "run", 1, KOKKOS_LAMBDA(std::int64_t) {});
  }
};
HEADER
[ "$(lambdas "$made_up" | sed 's/.*://' | xargs)" = "10 14" ] || {
  echo "$0: does not find what is made up for it" >&2
  exit 1
}

cd "$1"
mapfile -t headers < <(grep -rl --include='*.hpp' 'KOKKOS_\(CLASS_\)\?LAMBDA' src apps tests benchmarks examples)
[ ${#headers[@]} -gt 0 ] || { echo "$0: no header has a KOKKOS_LAMBDA" >&2; exit 1; }
found=$(lambdas "${headers[@]}")
[ -z "$found" ] || {
  echo "a KOKKOS_LAMBDA in a header, in a function that is not static (see $0):"$'\n'"$found" >&2
  exit 1
}
echo "${#headers[@]} headers: all as expected"
