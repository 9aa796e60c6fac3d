#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# in_shards.sh N PROGRAM [ARGUMENT...]: runs the cases of a GoogleTest program in N processes at once, for
# programs that wait for most of their time. Shows their outputs one after the other.
shards=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export GTEST_TOTAL_SHARDS="$shards"
shard=0
while [ "$shard" -lt "$shards" ]; do
  GTEST_SHARD_INDEX=$shard "$@" >"$folder/$shard" 2>&1 || echo "$shard" >>"$folder/failed" &
  shard=$((shard + 1))
done
wait
cat "$folder"/[0-9]*
[ ! -e "$folder/failed" ]
