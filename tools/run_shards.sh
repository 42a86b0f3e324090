#!/usr/bin/env bash
# usage: tools/run_shards.sh GOOGLETEST_PROGRAM [ARGUMENT ...]
# Runs the program once per core at the same time, each with its shard of the tests. Prints what they print, one shard
# after another. Fails if any shard fails.
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
for ((shard = 0; shard < shards; shard++)); do
  wait "${processes[$shard]}" || result=$?
  cat "$folder/$shard"
done
exit $result
