#!/usr/bin/env bash
# usage: tools/run_shards.sh GOOGLETEST_PROGRAM [ARGUMENT ...]
# Runs the program once per core at the same time, each with its shard of the tests. Prints what they print, one shard
# after another, those that fail last. Fails if any shard fails.
set -uo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
shards=$(nproc)
processes=()
for ((shard = 0; shard < shards; shard++)); do
  GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard "$@" >"$folder/$shard" 2>&1 &
  processes+=($!)
done
result=0
failed=()
for ((shard = 0; shard < shards; shard++)); do
  if wait "${processes[$shard]}"; then
    cat "$folder/$shard"
  else
    result=$?
    failed+=("$folder/$shard")
  fi
done
((${#failed[@]} == 0)) || cat "${failed[@]}"
exit $result
