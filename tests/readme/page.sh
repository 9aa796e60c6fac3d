# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Runs the code blocks of a page of the documentation. Sourced by what tests a page, which defines fail(), and
# has in `page` the page's path, in `scratch` a folder for logs, in `few_steps` the first options of
# ostrakon-train, in `left_out` why lines are not run.

# A line each: "run LINE", with what goes on after a backslash, or "deck FILE" and "| LINE" of it.
read_blocks() {
  awk '
    function refuse(what) { print "error line " NR ": " what; exit }
    !inside && /^```/ {
      inside = 1; kind = substr($0, 4); first = 1; joined = ""
      if (kind != "" && kind != "yaml") refuse("a block of " kind ", which this test does not know")
      next
    }
    inside && /^```/ { inside = 0; next }
    !inside { next }
    kind == "yaml" {
      if (first && $0 !~ /^# [^ ]+$/) refuse("the first line of a YAML block names its file, as # my.yaml")
      if (first) print "deck " substr($0, 3)
      print "| " $0
      first = 0
      next
    }
    /\\$/ { joined = joined substr($0, 1, length($0) - 1); next }
    (joined $0) != "" { print "run " joined $0; joined = "" }
  ' "$page"
}

# A line as the list has it: without its comment, and without blanks at its end.
command_of() {
  sed -E 's/ +#.*$//; s/ +$//' <<<"$1"
}

declare -A seen=()
ran=0 deck=

run_line() {
  local line=$1 command status=0 start=$SECONDS
  command=$(command_of "$line")
  if [ -n "${left_out[$command]-}" ]; then
    seen[$command]=1
    printf -- '-- %s\n   not run: %s\n' "$command" "${left_out[$command]}"
    return
  fi
  if [[ " $command " != *' --dry-run '* ]]; then
    line=$(sed -E "s#(^|[ /])ostrakon-train( |\$)#\1ostrakon-train $few_steps\2#" <<<"$line")
  fi
  printf -- '-- %s\n' "$line"
  # In this shell, so that what a line exports holds for the next.
  set +eu
  eval "$line" >"$scratch/log" 2>&1 </dev/null
  status=$?
  set -eu
  if [ "$status" != 0 ]; then
    tail -n 30 "$scratch/log" >&2
    fail "status $status from: $line"
  fi
  printf '   %s\n' "$((SECONDS - start)) s: $(tail -n 1 "$scratch/log" | LC_ALL=C tr -c '[:print:]\n' '?')"
  ran=$((ran + 1))
}

# Runs the page in this folder. What is left out has to be on it.
run_page() {
  local blocks entry command
  mapfile -t blocks < <(read_blocks)
  for entry in "${blocks[@]}"; do
    case "$entry" in
      'error '*) fail "${entry#error }" ;;
      'deck '*)
        deck=$PWD/${entry#deck }
        printf -- '-- writes %s\n' "${entry#deck }"
        : >"$deck"
        ;;
      '| '*) printf '%s\n' "${entry#| }" >>"$deck" ;;
      'run '*) run_line "${entry#run }" ;;
    esac
  done
  for command in "${!left_out[@]}"; do
    [ -n "${seen[$command]-}" ] || fail "no line is: $command; it is not to be left out any more"
  done
}
