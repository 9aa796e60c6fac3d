# SPDX-License-Identifier: Apache-2.0
"""Ostrakon under ReFrame (4.0 or later): steps of training on several numbers of ranks.

    reframe -c ostrakon.py -r --performance-report -S modules=ostrakon
    reframe -c ostrakon.py -r -S deck=/path/my.yaml -S steps=52 -n '%ranks=4'

ostrakon-train is found by PATH or modules. The deck is read where it is; by default the one of
quickstart, on synthetic data. References of a system go into a class derived from this one.
"""

import os

import reframe as rfm
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ

HERE = os.path.dirname(os.path.abspath(__file__))


@rfm.simple_test
class Ostrakon(rfm.RunOnlyRegressionTest):
    descr = "Ostrakon: steps of training"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    sourcesdir = None
    executable = "ostrakon-train"

    ranks = parameter([1, 2, 4])
    deck = variable(str, value=os.path.join(HERE, "../../input_decks/quickstart.yaml"))
    steps = variable(int, value=22)
    # More settings, such as "parallel.sharding=none".
    settings = variable(typ.List[str], value=["data.dataset=synthetic"])

    @run_before("run")
    def set_command(self):
        self.num_tasks = self.ranks
        self.env_vars.setdefault("OMP_NUM_THREADS", "1")
        settings = [
            *self.settings,
            f"training.steps={self.steps}",
            "training.validate_every=0",
            "output.directory=run",
        ]
        self.executable_opts = [os.path.abspath(self.deck)]
        for setting in settings:
            self.executable_opts += ["--set", f"'{setting}'"]

    @sanity_function
    def has_finished(self):
        return sn.assert_found(r"^figure: step_seconds ", self.stdout)

    def figure(self, name):
        return sn.extractsingle(rf"^figure: {name} (\S+) ", self.stdout, 1, float)

    @performance_function("s")
    def step_seconds(self):
        return self.figure("step_seconds")

    @performance_function("tokens/s")
    def tokens_per_second(self):
        return self.figure("tokens_per_second")

    @performance_function("tokens/s")
    def tokens_per_second_per_rank(self):
        return self.figure("tokens_per_second_per_rank")

    @performance_function("%")
    def mfu(self):
        return self.figure("mfu")
