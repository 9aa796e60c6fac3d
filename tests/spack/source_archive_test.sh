#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/source-archive in a repository of its own: the same bytes for the same tag, and a clear error
# where there is no such release.
set -euo pipefail

command -v git >/dev/null || exit 77
work=$1
rm -rf "$work"
mkdir -p "$work/one/scripts"
cp "$OSTRAKON_SOURCE"/scripts/{common.sh,environment.sh,source-archive} "$work/one/scripts"
printf 'project(Ostrakon VERSION 1.2.3 LANGUAGES CXX)\n' >"$work/one/CMakeLists.txt"

export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=Test GIT_AUTHOR_EMAIL=test@localhost
export GIT_COMMITTER_NAME=Test GIT_COMMITTER_EMAIL=test@localhost
cd "$work/one"
git init --quiet
git add .
git commit --quiet --message release
git tag --annotate --message release v1.2.3
echo later >later
git add later
git commit --quiet --message later
git tag v1.2.4

fail() {
  echo "$*"
  exit 1
}

# The second clone has other settings, another umask and time zone, and is packed later.
git clone --quiet . ../two
git -C ../two config tar.umask 0077
first=$(scripts/source-archive v1.2.3)
sleep 1.1
second=$(cd ../two && umask 0077 && TZ=Pacific/Auckland scripts/source-archive)
[ "$first" = "$second" ] || fail "not reproducible: $first, then $second"
cmp dist/ostrakon-1.2.3.tar.gz ../two/dist/ostrakon-1.2.3.tar.gz
sum=$(sha256sum dist/ostrakon-1.2.3.tar.gz)
expected=$(printf '%s\n' dist/ostrakon-1.2.3.tar.gz "version(\"1.2.3\", sha256=\"${sum%% *}\")")
[ "$first" = "$expected" ] || fail "prints: $first; expected: $expected"

names=$(tar tzf dist/ostrakon-1.2.3.tar.gz | sort | tr '\n' ' ')
expected="ostrakon-1.2.3/ ostrakon-1.2.3/CMakeLists.txt ostrakon-1.2.3/scripts/ \
ostrakon-1.2.3/scripts/common.sh ostrakon-1.2.3/scripts/environment.sh \
ostrakon-1.2.3/scripts/source-archive "
[ "$names" = "$expected" ] || fail "holds: $names; expected: $expected"

# refused <text> [<tag>]
refused() {
  local text=$1 said
  shift
  ! said=$(scripts/source-archive "$@" 2>&1) || fail "packs $*"
  case $said in *"$text"*) ;; *) fail "says: $said; expected: $text" ;; esac
}
refused "no tag v9.9.9; make it with: git tag -a v9.9.9" v9.9.9
refused "CMakeLists.txt says version 1.2.3 at tag v1.2.4; expected 1.2.4" v1.2.4
