#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run of any length under Flux, in jobs of four hours.
#
#     flux batch flux.sh my.yaml output/mine    # a copy of this file, in the folder of your run
#
# The second argument is the folder that the run writes into, in place of the deck's output.directory.
# Edit the numbers of nodes and ranks, the time, PATH and environment modules. The number of
# ranks, here 64, must divide training.global_batch_size / training.micro_batch_size of the deck.
# Each job submits the next until the run is done. See docs/jobs.md.

# flux: --job-name=ostrakon
# flux: -N8
# flux: -n64
# flux: -t 4h
# flux: --output=ostrakon-{{id}}.log

set -u

deck=${1:?give the deck: flux batch flux.sh my.yaml output/mine}
output=${2:?give the folder of the run: flux batch flux.sh my.yaml output/mine}
restarts=${3:-0}
most_restarts=100
case $output in /*) ;; *) output=$PWD/$output ;; esac

# Flux starts a copy of this file, in the folder in which it was submitted. Edit where the file has
# another name.
script=flux.sh

# module load ...
# export PATH=$HOME/ostrakon/bin:$PATH    # where Ostrakon is installed
export OMP_NUM_THREADS=1

# The run watches the clock: five minutes less than the time above, for what comes before and
# after it.
status=0
ostrakon-launch "$output" flux run -N8 -n64 ostrakon-train "$deck" --resume auto \
  --set output.directory="$output" --set runtime.wall_time=03:55:00 || status=$?

# 75: stopped in time; 76: hung, and ended by the watchdog; 137: a rank, or the launcher, was killed.
if [ "$status" -eq 75 ] || [ "$status" -eq 76 ] || [ "$status" -eq 137 ]; then
  if [ "$restarts" -lt "$most_restarts" ]; then
    echo "not done yet: submits the next job"
    # Nodes that the watchdog has named twice are left out.
    nodes=$(ostrakon-launch --named 2 "$output" | cut -d. -f1 | paste -sd,)
    # To the instance that this job is one of, not to the job itself.
    exec flux --parent batch ${nodes:+--requires=-host:$nodes} "$script" "$deck" "$output" \
      "$((restarts + 1))"
  fi
  echo "not done after $most_restarts restarts: gives up" >&2
fi
exit "$status"
