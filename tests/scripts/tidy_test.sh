#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tidy_test.sh <sources of the project> <work folder>: what scripts/tidy looks at, and what it says.
set -euo pipefail

source=$1 work=$2
rm -rf "$work"
mkdir -p "$work/bin"

# The tools: a source with the word BAD is found, one with CROOKED is not formatted.
cat >"$work/bin/clang-tidy" <<'TOOL'
#!/usr/bin/env bash
echo "${!#}" >>"$LOOKED_AT"
! grep -q BAD "${!#}" || { echo "${!#}:1:1: error: bad"; exit 1; }
TOOL
cat >"$work/bin/clang-format" <<'TOOL'
#!/usr/bin/env bash
for file in "$@"; do
  if [ -f "$file" ] && grep -q CROOKED "$file"; then
    echo "$file:1:1: error: crooked"
    exit 1
  fi
done
TOOL
cat >"$work/bin/cmake" <<'TOOL'
#!/usr/bin/env bash
mkdir -p build-ci/header_checks
find src -name '*.hpp' | while read -r header; do
  name=${header#src/}
  echo "#include <$name>" >"build-ci/header_checks/${name//\//_}.cpp"
done
find src tests build-ci -name '*.cpp' -not -path '*/consumer/*' |
  sed "s|.*|{\"file\": \"$PWD/&\"}|" >build-ci/compile_commands.json
TOOL
printf '#!/usr/bin/env bash\necho 2\n' >"$work/bin/nproc"
chmod +x "$work"/bin/*
export PATH=$work/bin:$PATH LOOKED_AT=$work/looked_at
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b

fail() {
  echo "$*" >&2
  [ ! -f "$work/out" ] || cat "$work/out" >&2
  exit 1
}

# make <name>: a repository of its own, with one commit, where we are from now on.
make() {
  mkdir -p "$work/$1/scripts" "$work/$1/src/room" "$work/$1/tests/room" "$work/$1/tests/consumer" \
    "$work/$1/apps"
  cd "$work/$1"
  cp "$source"/scripts/{tidy,common.sh,environment.sh} scripts
  printf '/build*/\n' >.gitignore
  echo one >src/room/one.cpp
  echo two >src/room/two.cpp
  echo own >src/room/one.hpp
  echo alone >src/room/alone.hpp
  echo '#include "room/help.hpp"' >tests/room/test.cpp
  echo help >tests/room/help.hpp
  echo main >tests/consumer/main.cpp
  git init -q -b main
  save
}

save() {
  git add -A
  git commit -q -m change
}

# expect <status> <sources looked at, sorted, with blanks between> [<argument of tidy>...]
expect() {
  local status=0 looked
  local wanted_status=$1 wanted=$2
  shift 2
  : >"$LOOKED_AT"
  scripts/tidy "$@" >"$work/out" 2>&1 || status=$?
  looked=$(sort "$LOOKED_AT" | xargs)
  [ "$status" = "$wanted_status" ] || fail "tidy $*: status $status, expected $wanted_status"
  [ "$looked" = "$wanted" ] || fail "tidy $*: looked at: $looked; expected: $wanted"
}
says() { grep -qF -- "$1" "$work/out" || fail "expected in the output: $1"; }

everything="build-ci/header_checks/room_alone.hpp.cpp src/room/one.cpp src/room/two.cpp tests/room/test.cpp"

# A single commit: there is nothing to compare with.
make single
expect 0 "$everything"
says "no commit to compare with: all 7 sources"
expect 0 "$everything" --all

# The commit before.
make before
echo more >>src/room/two.cpp
save
expect 0 "src/room/two.cpp"
# What is not committed counts, new files too; others than sources don't, nor what is gone.
echo new >src/room/new.cpp
echo text >src/room/text.md
git rm -q src/room/one.cpp
expect 0 "src/room/new.cpp src/room/two.cpp"
expect 0 "src/room/new.cpp" HEAD

# Where the branch left origin/main.
make branch
git update-ref refs/remotes/origin/main HEAD
echo more >>src/room/one.cpp
save
echo more >>src/room/two.cpp
save
expect 0 "src/room/one.cpp src/room/two.cpp"
expect 0 "src/room/two.cpp" HEAD~1

# Headers: by their own source, by a source that only includes them, by one that uses them.
make headers
echo more >>src/room/alone.hpp
echo more >>tests/room/help.hpp
save
expect 0 "build-ci/header_checks/room_alone.hpp.cpp tests/room/test.cpp"
echo more >>src/room/one.hpp
save
expect 0 "build-ci/header_checks/room_one.hpp.cpp"
echo more >>src/room/one.cpp
expect 0 "src/room/one.cpp"
echo more >>tests/consumer/main.cpp
git add -A
expect 0 "src/room/one.cpp"

# Findings fail, and the other sources are looked at all the same.
make findings
echo BAD >>src/room/one.cpp
echo fine >>src/room/two.cpp
save
expect 1 "src/room/one.cpp src/room/two.cpp"
says "src/room/one.cpp:1:1: error: bad"
says "tidy: found something in: src/room/one.cpp"
echo CROOKED >src/room/one.cpp
expect 1 "src/room/one.cpp src/room/two.cpp"
says "src/room/one.cpp:1:1: error: crooked"

# Nothing has changed; what can't be understood.
make nothing
expect 0 "" HEAD
says "0 sources have changed"
expect 1 "" nowhere
says "nowhere: no such commit"
expect 1 "" --seconds soon
says "--seconds soon: expected a number >= 1"
expect 1 "" --many
says "don't know --many"

# What a limit leaves out is named.
make limit
for i in 1 2 3 4 5 6; do echo "$i" >"src/room/n$i.cpp"; done
save
printf '#!/usr/bin/env bash\nsleep 1.1\n' >"$work/bin/clang-tidy"
expect 0 "" --seconds 1
says "not looked at, as 1 s are over:"
echo "tidy_script: all as expected"
