#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# PBS: a run of any length in jobs of four hours.
#
#     qsub -v deck=my.yaml,output=output/mine pbs.sh   # a copy of this file, in your run's folder
#
# output: where the run writes, in place of the deck's output.directory; relative to the folder in
# which qsub is called. Edit the numbers of nodes and ranks, the time, PATH and environment modules.
# The number of ranks, here 64, must divide training.global_batch_size / training.micro_batch_size
# of the deck.
# Each job submits the next until the run is done; where compute nodes can't submit, see
# docs/jobs.md.

#PBS -N ostrakon
#PBS -l select=8:ncpus=8:mpiprocs=8
#PBS -l walltime=04:00:00
#PBS -j oe

# After a node failure: rerun, and resume from the newest checkpoint.
#PBS -r y

set -u

deck=${deck:?give the deck: qsub -v deck=my.yaml,output=output/mine pbs.sh}
output=${output:?give the folder of the run: qsub -v deck=my.yaml,output=output/mine pbs.sh}
restarts=${restarts:-0}
most_restarts=100

# PBS starts a copy of this file, in the home folder. Edit where the file has another name.
cd "$PBS_O_WORKDIR" || exit
script=pbs.sh
case $output in /*) ;; *) output=$PWD/$output ;; esac

# module load ...
# export PATH=$HOME/ostrakon/bin:$PATH    # where Ostrakon is installed
export OMP_NUM_THREADS=1

# qsig may reach this shell as well as the ranks: it has to outlive them.
trap : USR1 USR2

# PBS sends no signal in time, so the run watches the clock: five minutes less than the walltime
# above, for what comes before and after it. ostrakon-launch ends mpiexec where that waits for a lost
# host, and has the status of the run.
status=0
ostrakon-launch "$output" mpiexec ostrakon-train "$deck" --resume auto \
  --set output.directory="$output" --set runtime.wall_time=03:55:00 || status=$?

# 75: stopped in time; 76: hung, and ended by the watchdog; 137: a rank, or the launcher, was killed.
if [ "$status" -eq 75 ] || [ "$status" -eq 76 ] || [ "$status" -eq 137 ]; then
  if [ "$restarts" -lt "$most_restarts" ]; then
    echo "not done yet: submits the next job"
    exec qsub -v "deck=$deck,output=$output,restarts=$((restarts + 1))" "$script"
  fi
  echo "not done after $most_restarts restarts: gives up" >&2
fi
exit "$status"
