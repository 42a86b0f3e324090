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
    sed -n '/^\[==========\] .* ran\./,$p' "$1" | sed '/^$/d'
  elif grep -qE '^=+ .* in [0-9.]+s.* =+$' "$1"; then
    grep -E '^(seconds by folder: |=+ .* in [0-9.]+s.* =+$)' "$1" | tail -n 2
  else
    tail -n 1 "$1"
  fi
}

# Prints `NAME: N passed, N failed` for a GoogleTest log.
count_line() {
  grep -q '^\[==========\] .* ran\.' "$2" || return 0
  grep -q '^==> summary' "$2" && return 0
  local passed failed skipped
  passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) tests\?\.$/\1/p' "$2")
  failed=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) tests\?, listed below:$/\1/p' "$2")
  skipped=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) tests\?, listed below:$/\1/p' "$2")
  echo "$1: ${passed:-0} passed, ${failed:-0} failed${skipped:+, $skipped skipped}"
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
