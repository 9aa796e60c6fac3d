#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The deck of the recipe's stand-alone tests trains, saves the checkpoint that they resume from, and has
# the leaves for two ranks.
set -euo pipefail

work=$1
deck=$OSTRAKON_SOURCE/spack/spack_repo/ostrakon/packages/ostrakon/test/synthetic.yaml
rm -rf "$work"
"$OSTRAKON_MPIEXEC" -n 2 "$OSTRAKON_APPS/ostrakon-train" "$deck" --set "output.directory=$work"
[ "$(grep -c '"state_digest"' "$work/metrics.jsonl")" = 8 ]
[ -d "$work/checkpoints/step-00000004" ]
