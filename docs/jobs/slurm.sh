#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Slurm: a run of any length in jobs of four hours.
#
#     sbatch slurm.sh my.yaml output/mine    # a copy of this file, in the folder of your run
#
# The second argument is the folder that the run writes into, in place of the deck's output.directory.
# Edit the numbers of nodes and ranks, the time, PATH and environment modules. The number of
# ranks, here 64, must divide training.global_batch_size / training.micro_batch_size of the deck.
# The job requeues itself under the same job number until the run is done. See docs/jobs.md.

#SBATCH --job-name=ostrakon
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=1
#SBATCH --time=04:00:00

# Five minutes before its time is over, or up to six, every rank gets SIGUSR2: it ends the step,
# saves a checkpoint and ends with status 75. Allow enough time for a step and a save.
#SBATCH --signal=USR2@300

# After a node failure or preemption: requeue, and resume from the newest checkpoint.
#SBATCH --requeue

# One log of all attempts.
#SBATCH --output=ostrakon-%j.log
#SBATCH --open-mode=append

set -u

deck=${1:?give the deck: sbatch slurm.sh my.yaml output/mine}
output=${2:?give the folder of the run: sbatch slurm.sh my.yaml output/mine}
most_restarts=100
case $output in /*) ;; *) output=$PWD/$output ;; esac

# module load ...
# export PATH=$HOME/ostrakon/bin:$PATH    # where Ostrakon is installed
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK

# All ranks end with the same status, not all at the same moment: srun must not kill the others for
# that. If a rank is lost, the others are killed after a minute. Open MPI may need --mpi=pmix (`srun
# --mpi=list`), and --cpu-bind=cores binds ranks to cores if Slurm does not (--cpu-bind=verbose).
status=0
ostrakon-launch --patience 90 "$output" srun --kill-on-bad-exit=0 --wait=60 ostrakon-train "$deck" --resume auto \
  --set output.directory="$output" || status=$?

# 75: stopped in time; 76: hung, and ended by the watchdog; 137: a rank, or the launcher, was killed.
if [ "$status" -eq 75 ] || [ "$status" -eq 76 ] || [ "$status" -eq 137 ]; then
  if [ "${SLURM_RESTART_COUNT:-0}" -lt "$most_restarts" ]; then
    echo "not done yet: requeued"
    # Nodes that the watchdog has named twice are left out, besides those of --exclude. Slurm changes this list
    # only of jobs that wait, so the job is requeued first, which sends SIGTERM to this script.
    nodes=$(squeue -h -j "$SLURM_JOB_ID" -o %x | tr -d '()' | sed 's/^null$//')
    for node in $(ostrakon-launch --named 2 "$output" | cut -d. -f1); do
      if scontrol show node "$node" >/dev/null 2>&1; then nodes+=${nodes:+,}$node; fi
    done
    trap '' TERM
    scontrol requeue "$SLURM_JOB_ID"
    if [ -n "$nodes" ]; then
      echo "leaves out: $nodes"
      scontrol update JobId="$SLURM_JOB_ID" ExcNodeList="$nodes"
    fi
    exit
  fi
  echo "not done after $most_restarts restarts: gives up" >&2
fi
exit "$status"
