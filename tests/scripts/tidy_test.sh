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
mkdir -p build-tidy/header_checks
find src -name '*.hpp' | while read -r header; do
  name=${header#src/}
  echo "#include <$name>" >"build-tidy/header_checks/${name//\//_}.cpp"
done
find src tests build-tidy -name '*.cpp' -not -path '*/consumer/*' |
  sed "s|.*|{\"file\": \"$PWD/&\"}|" >build-tidy/compile_commands.json
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
    "$work/$1/apps" "$work/$1/benchmarks"
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
last_is() { [ "$(tail -n 1 "$work/out")" = "$1" ] || fail "expected in the last line: $1"; }

everything="build-tidy/header_checks/room_alone.hpp.cpp src/room/one.cpp src/room/two.cpp tests/room/test.cpp"

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

# On origin's default branch, whatever its name: all commits of the last day.
make pushed
git branch -q -m trunk
GIT_COMMITTER_DATE='2001-01-01 12:00 +0000' git commit -q --amend --no-edit
echo more >>src/room/alone.hpp
GIT_COMMITTER_DATE='2001-01-02 12:30 +0000' save
old=$(git rev-parse HEAD)
echo more >>src/room/one.cpp
GIT_COMMITTER_DATE='2001-01-03 12:00 +0000' save
echo more >>src/room/two.cpp
GIT_COMMITTER_DATE='2001-01-03 12:45 +0000' save
git update-ref refs/remotes/origin/trunk HEAD
git symbolic-ref refs/remotes/origin/HEAD refs/remotes/origin/trunk
expect 0 "src/room/one.cpp src/room/two.cpp"
says "2 sources have changed since ${old:0:12}"
# A commit more is compared with what was pushed.
echo more >>tests/room/test.cpp
save
expect 0 "tests/room/test.cpp"
git reset -q --hard HEAD~1
# A merge in this time brings what it merges, however old that is.
git checkout -q -b side "$old~1"
echo side >src/room/side.cpp
GIT_COMMITTER_DATE='2001-01-01 13:00 +0000' save
git checkout -q trunk
GIT_COMMITTER_DATE='2001-01-03 12:50 +0000' git merge -q -m merge side
git update-ref refs/remotes/origin/trunk HEAD
expect 0 "src/room/one.cpp src/room/side.cpp src/room/two.cpp"

# Of a history that is cut off, all that is there.
git clone -q --depth 2 "file://$work/branch" "$work/shallow"
cd "$work/shallow"
expect 0 "src/room/two.cpp"
git clone -q --depth 1 "file://$work/branch" "$work/shallowest"
cd "$work/shallowest"
expect 0 "$everything"
says "no commit to compare with"

# Headers: by their own source, else by one that only includes them, or by one that uses them.
make headers
echo more >>src/room/alone.hpp
echo more >>tests/room/help.hpp
save
expect 0 "build-tidy/header_checks/room_alone.hpp.cpp tests/room/test.cpp"
echo more >>src/room/one.hpp
save
expect 0 "src/room/one.cpp" HEAD~1
echo more >>src/room/one.cpp
expect 0 "src/room/one.cpp" HEAD~1
echo more >>tests/consumer/main.cpp
git add -A
expect 0 "src/room/one.cpp" HEAD~1

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
says "tidy: found something in: src/room/one.cpp (see above)"
echo BAD >>src/room/one.cpp
echo BAD >>src/room/two.cpp
expect 1 "src/room/one.cpp src/room/two.cpp"
says "tidy: found something in: src/room/one.cpp src/room/two.cpp (see above)"

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

# What a limit leaves out is named and counted in the last line; what changed last comes first.
make limit
for i in 1 2 3 4 5 6; do echo "$i" >"src/room/n$i.cpp"; done
save
echo more >>src/room/n5.cpp
save
echo more >>src/room/n6.cpp
mv "$work/bin/clang-tidy" "$work/quick"
printf '#!/usr/bin/env bash\nsleep 2.1\nexec %q "$@"\n' "$work/quick" >"$work/bin/clang-tidy"
chmod +x "$work/bin/clang-tidy"
expect 0 "src/room/n5.cpp src/room/n6.cpp" --seconds 2
says "left: src/room/n1.cpp src/room/n2.cpp src/room/n3.cpp src/room/n4.cpp"
last_is "== 2 sources looked at: nothing found; not looked at by clang-tidy, as 2 s are over: 4 of 6"
echo BAD >>src/room/n6.cpp
expect 1 "src/room/n5.cpp src/room/n6.cpp" --seconds 2
last_is "tidy: found something in: src/room/n6.cpp (see above); not looked at by clang-tidy, as 2 s are over: 4 of 6"
echo "tidy_script: all as expected"
