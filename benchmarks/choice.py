#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the layout that ostrakon-plan --choose writes beside twelve others.

    benchmarks/choice.py BUILD DECK --ranks N --ranks-per-node N --launch COMMAND [--rounds N]
        [--seconds S] [--keep FOLDER] [--set KEY=VALUE]...

COMMAND starts the ranks, such as "mpiexec -n 4", as many on each host as are said. Measures a
machine file with ostrakon-bench machine, lets --choose write a deck, and runs ostrakon-bench step
for it and the others, in turn, in each round. Prints measured and predicted seconds, means over
rounds, the fastest first, and how much slower the chosen one is than the fastest of all.
"""
import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile

OTHERS = [
    ["parallel.sharding=none"],
    ["parallel.sharding=optimizer"],
    ["parallel.sharding=gradients"],
    ["parallel.sharding=full"],
    ["parallel.shard_group=2"],
    ["parallel.shard_group=2", "parallel.accumulation=reduce_last"],
    ["parallel.accumulation=reduce_last"],
    ["parallel.reshard_after_forward=never"],
    ["parallel.hierarchical_collectives=always"],
    ["memory.activation_checkpointing=full"],
    ["parallel.tensor=2"],
    ["parallel.sharding=optimizer", "parallel.pipeline=2"],
]


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(" ".join(command) + "\n" + done.stdout + done.stderr)
    return done.stdout


def sets(settings):
    return [word for setting in settings for word in ("--set", setting)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", help="build folder")
    parser.add_argument("deck")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--launch", required=True, help="what starts them")
    parser.add_argument("--ranks-per-node", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=2, help="how often all are measured (2)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement (3)")
    parser.add_argument("--keep", help="folder for the machine file and the deck")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    arguments = parser.parse_args()
    programs = os.path.join(os.path.abspath(arguments.build), "apps")
    folder = os.path.abspath(arguments.keep or tempfile.mkdtemp())
    os.makedirs(folder, exist_ok=True)
    machine, best = os.path.join(folder, "machine.yaml"), os.path.join(folder, "best.yaml")
    bench = shlex.split(arguments.launch) + [os.path.join(programs, "ostrakon-bench")]
    run(bench + ["machine", "--json", "--output", machine])
    choose = [os.path.join(programs, "ostrakon-plan"), arguments.deck, "--choose", "--ranks",
              str(arguments.ranks), "--ranks-per-node", str(arguments.ranks_per_node), "--time",
              machine, "--output", best]
    print(run(choose + sets(arguments.settings)), flush=True)
    with open(best, encoding="utf-8") as file:
        stages = re.search(r"pipeline: *(\d+)", file.read())
        chosen_has_stages = stages is not None and int(stages.group(1)) > 1
    layouts = [("chosen", best, [])] + [(" ".join(one), arguments.deck, arguments.settings + one)
                                        for one in OTHERS]
    found = {}
    for _ in range(arguments.rounds):
        for name, deck, settings in layouts:
            command = bench + ["step", deck, "--json", "--seconds", str(arguments.seconds)]
            # --machine predicts steps without stages.
            has_stages = (chosen_has_stages if deck == best
                          else any(setting.startswith("parallel.pipeline=") for setting in settings))
            is_predicted = not has_stages
            if is_predicted:
                command += ["--machine", machine]
            # MFU is not asked for, so no peak is measured.
            output = run(command + sets(settings + ["runtime.peak_gflops=1"]))
            lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
            step = [line for line in lines if line["bench"] == "step"][0]
            if step["ranks"] != arguments.ranks:
                sys.exit("--launch started %d ranks; expected --ranks %d" %
                         (step["ranks"], arguments.ranks))
            measured = step["step_seconds"]
            predicted = [line["predicted_seconds"] for line in lines
                         if line["bench"] == "step_prediction" and line["action"] == "step"]
            found.setdefault(name, []).append((measured, (predicted or [float("nan")])[0]))
    means = {name: [statistics.mean(values) for values in zip(*taken)]
             for name, taken in found.items()}
    print("%9s %9s  %s" % ("measured", "predicted", "settings"))
    for name, (measured, predicted) in sorted(means.items(), key=lambda item: item[1][0]):
        print("%9.4f %9.4f  %s" % (measured, predicted, name))
    fastest = min(measured for measured, _ in means.values())
    print("the chosen layout takes %.1f %% longer than the fastest of %d" %
          (100.0 * (means["chosen"][0] / fastest - 1.0), len(means)))


if __name__ == "__main__":
    main()
