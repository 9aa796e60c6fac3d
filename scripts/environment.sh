# SPDX-License-Identifier: Apache-2.0
# Sourced, by sh, bash or zsh, where ranks have no batch system: one core per rank; more ranks than
# cores may share them; root, as in a container, may start ranks. The first names are of Open MPI
# up to 4, the PRTE ones of Open MPI 5; other MPIs need none of it.
# shellcheck shell=sh

export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
export OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_hwloc_base_binding_policy=none
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export PRTE_MCA_hwloc_default_binding_policy=none
if [ "$(id -u)" = 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
