# SPDX-License-Identifier: Apache-2.0
"""Ostrakon under Ramble: steps of training, by the figures that ostrakon-train prints.

Add the folder that holds this one as `applications` to a repository of Ramble's, and spack/spack_repo
of Ostrakon to Spack; then write experiments of the workload `train`, for example with n_ranks: [1, 2, 4]
and settings: "--set parallel.sharding=full".
"""

from ramble.appkit import *


class Ostrakon(ExecutableApplication):
    """Fully sharded training of transformers over MPI ranks"""

    name = "ostrakon"

    tags("machine-learning", "training")

    define_compiler("gcc", pkg_spec="gcc", package_manager="spack*")
    software_spec("ostrakon", pkg_spec="ostrakon", compiler="gcc", package_manager="spack*")
    required_package("ostrakon", package_manager="spack*")

    executable(
        "train",
        "ostrakon-train {deck} {settings} --set training.steps={steps}"
        " --set training.validate_every=0 --set output.directory={experiment_run_dir}/run",
        use_mpi=True,
    )

    workload("train", executables=["train"])

    workload_variable(
        "deck",
        default="{ostrakon_path}/share/ostrakon/input_decks/quickstart.yaml",
        description="Deck: what is trained",
        workloads=["train"],
    )
    workload_variable(
        "settings",
        default="--set data.dataset=synthetic",
        description="Further settings, each --set section.key=value",
        workloads=["train"],
    )
    workload_variable("steps", default="22", description="Steps", workloads=["train"])

    for figure, unit in (
        ("step_seconds", "s"),
        ("tokens_per_second", "tokens/s"),
        ("tokens_per_second_per_rank", "tokens/s"),
        ("mfu", "%"),
    ):
        figure_of_merit(
            figure,
            fom_regex=rf"^figure: {figure} (?P<value>\S+) ",
            group_name="value",
            units=unit,
            log_file="{log_file}",
        )

    success_criteria("finished", mode="string", match=r"^figure: step_seconds", file="{log_file}")
