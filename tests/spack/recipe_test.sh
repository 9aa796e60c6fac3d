#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The recipe names only CMake options and programs that exist: CMake takes an unknown -D in silence. Its
# page explains every variant.
set -euo pipefail

recipe=$OSTRAKON_SOURCE/spack/spack_repo/ostrakon/packages/ostrakon/package.py
options=$OSTRAKON_SOURCE/cmake/OstrakonOptions.cmake
page=$OSTRAKON_SOURCE/spack/README.md
status=0

# check <what> <names> <pattern with %s> <file>: each name must be found in the file, and there are some.
check() {
  local what=$1 names=$2 pattern=$3 file=$4 name
  [ -n "$names" ] || { echo "no $what found in $recipe"; status=1; }
  for name in $names; do
    # shellcheck disable=SC2059
    grep -qE -- "$(printf "$pattern" "$name")" "$file" ||
      { echo "$what $name of the recipe: not in $file"; status=1; }
  done
}

check "CMake option" "$(grep -oE 'Ostrakon_ENABLE_[A-Z_]+|BUILD_SHARED_LIBS' "$recipe" | sort -u)" \
  '^option\(%s ' "$options"
check program "$(sed -n '/^    programs = (/,/)/p' "$recipe" | grep -oE '"[a-z]+"' | tr -d '"')" \
  'add_program\(ostrakon-%s( |$)' "$OSTRAKON_SOURCE/apps/CMakeLists.txt"
# shellcheck disable=SC2016
check variant "$(sed -nE 's/^    variant\("([a-z]+)".*/\1/p' "$recipe")" '^\|.*`%s`' "$page"

if command -v python3 >/dev/null; then
  python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$recipe" || status=1
fi
exit "$status"
