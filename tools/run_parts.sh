#!/usr/bin/env bash
# usage: tools/run_parts.sh LOG_FOLDER NAME COMMAND [NAME COMMAND ...]
# Runs every command, also after one has failed; then prints for each how long it took and its closing lines again.
# Fails if any command failed.
set -uo pipefail
logs=$1
shift
mkdir -p "$logs"

# Prints the closing lines of a log: our own summary, GoogleTest's, pytest's, or just the last line.
closing_lines() {
  if grep -q '^==> summary' "$1"; then
    sed '1,/^==> summary/d' "$1" | grep -v '^make\(\[[0-9]*\]\)\?: '
  elif grep -q '^\[==========\] .* ran\.' "$1"; then
    sed -n '/^\[==========\] .* ran\./,/^Running main/p' "$1" | grep -E '^ *(\[|[0-9]+ FAILED)'
  elif grep -qE '^=+ .* in [0-9.]+s.* =+$' "$1"; then
    grep -E '^(seconds by folder: |=+ .* in [0-9.]+s.* =+$)' "$1" | tail -n 2
  else
    tail -n 1 "$1"
  fi
}

# Prints `NAME: N passed, N failed` for a GoogleTest log, the shards of a program together.
count_line() {
  grep -q '^\[==========\] .* ran\.' "$2" || return 0
  grep -q '^==> summary' "$2" && return 0
  local passed failed skipped
  passed=$(sum_of 's/^\[  PASSED  \] \([0-9]*\) tests\?\.$/\1/p' "$2")
  failed=$(sum_of 's/^\[  FAILED  \] \([0-9]*\) tests\?, listed below:$/\1/p' "$2")
  skipped=$(sum_of 's/^\[  SKIPPED \] \([0-9]*\) tests\?, listed below:$/\1/p' "$2")
  echo "$1: $passed passed, $failed failed$([ "$skipped" -eq 0 ] || echo ", $skipped skipped")"
}

# The sum of the numbers that a sed program finds in a log.
sum_of() {
  sed -n "$1" "$2" | awk '{ sum += $1 } END { print sum + 0 }'
}

names=()
statuses=()
durations=()
while [ $# -ge 2 ]; do
  echo "==> $1"
  started=$SECONDS
  bash -c "$2" 2>&1 | tee "$logs/$1.log"
  statuses+=("${PIPESTATUS[0]}")
  durations+=("$((SECONDS - started)) s")
  names+=("$1")
  shift 2
done

result=0
echo "==> summary"
for i in "${!names[@]}"; do
  name=${names[$i]}
  status=${statuses[$i]}
  if [ "$status" -eq 0 ]; then
    echo "--- $name: ok in ${durations[$i]}"
  else
    result=1
    echo "--- $name: FAILED with status $status after ${durations[$i]}; all of its output is in $logs/$name.log"
  fi
  closing_lines "$logs/$name.log"
  count_line "$name" "$logs/$name.log"
done
exit $result
