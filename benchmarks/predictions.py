#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares predicted with measured step times on this machine.

    benchmarks/predictions.py BUILD [--rounds N] [--seconds S] [--ranks 1,2,4] [--launch COMMAND]
        [--keep FOLDER]

For each number of ranks, runs ostrakon-bench step for decks, dtypes, strategies, checkpointing,
offload, streams and slowed networks; then, in each round, measures a machine file with
ostrakon-bench machine on so many ranks, and runs all steps again in the opposite order. So each
file is measured in the middle of two runs of each step, whose mean counts: a clock that changes
steadily in these minutes changes both alike. Prints, after each round, a line for each step:
measured and predicted seconds, medians over rounds, and the error; then the median and the largest
error and Kendall's tau. Nothing else should run on the machine. Where the two runs of a step differ by
more than 8 %, something else did: the step is run twice more, and the median of the four counts.
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile

# No shape of these is one of the models that ostrakon-bench machine fits its numbers to.
SMALL = """ostrakon:
  model: {norm: rmsnorm, positions: rotary, activation: swiglu, layers: 4, width: 320, heads: 5, ffn_width: 864, vocabulary: 1000, tie_embeddings: true}
  data: {dataset: synthetic}
  training: {steps: 1000, global_batch_size: 8, micro_batch_size: 2, sequence_length: 192}
  output: {directory: none}
"""
GPT = """ostrakon:
  model: {norm: layernorm, positions: learned, activation: gelu, bias: true, layers: 3, width: 640, heads: 10, vocabulary: 6000, tie_embeddings: true}
  data: {dataset: synthetic}
  training: {steps: 1000, global_batch_size: 8, micro_batch_size: 2, sequence_length: 224}
  output: {directory: none}
"""
STRATEGIES = [["parallel.sharding=none"], ["parallel.sharding=optimizer"],
              ["parallel.sharding=gradients"], ["parallel.sharding=full"]]
FULL = ["memory.activation_checkpointing=full"]
BF16 = ["precision.gather=bf16"]
OFFLOAD = ["memory.offload=optimizer"]
THREADS = ["runtime.streams=threads"]
SLOW = 2.0  # nanoseconds for each byte
DISTURBED = 1.08  # ratio of two runs of a step


def combinations(ranks):
    """(deck, settings, added nanoseconds per byte)"""
    for deck in ("small", "gpt"):
        if ranks == 1:
            for more in ([], BF16, FULL, OFFLOAD, BF16 + FULL):
                yield deck, more, 0.0
        elif ranks == 2:
            for more in STRATEGIES:
                yield deck, more, 0.0
            for more in (BF16, FULL, OFFLOAD, THREADS, BF16 + OFFLOAD):
                yield deck, more, 0.0
            yield deck, [], SLOW
            yield deck, THREADS, SLOW
        else:
            for more in ([], BF16):
                yield deck, more, 0.0


def rows(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(" ".join(command) + "\n" + done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def kendall(pairs):
    """tau-a of (measured, predicted)."""
    agree = 0
    count = 0
    for i, (a, b) in enumerate(pairs):
        for c, d in pairs[:i]:
            product = (a - c) * (b - d)
            agree += (product > 0) - (product < 0)
            count += 1
    return agree / count


def print_table(found):
    """found: (deck, ranks, settings): measured and predicted seconds of each round."""
    errors, pairs = [], []
    print("%-6s %5s %9s %9s %7s  %s" % ("deck", "ranks", "measured", "predicted", "error", "settings"))
    for (deck, count, shown), taken in found.items():
        measured, predicted = [statistics.median(values) for values in zip(*taken)]
        error = predicted / measured - 1.0
        errors.append(abs(error))
        pairs.append((measured, predicted))
        print("%-6s %5d %9.4f %9.4f %+6.1f%%  %s" %
              (deck, count, measured, predicted, 100.0 * error, shown))
    print("%d combinations: median error %.1f %%, largest %.1f %%, Kendall's tau %.2f" %
          (len(errors), 100.0 * statistics.median(errors), 100.0 * max(errors), kendall(pairs)),
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", help="build folder")
    parser.add_argument("--rounds", type=int, default=3, help="how often all is measured (3)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement (2)")
    parser.add_argument("--ranks", default="1,2,4", help="numbers of ranks (1,2,4)")
    parser.add_argument("--launch", default="mpiexec --oversubscribe -n",
                        help="what starts ranks, before their number (mpiexec --oversubscribe -n)")
    parser.add_argument("--keep", help="folder for machine files, decks and results")
    arguments = parser.parse_args()
    bench = os.path.join(arguments.build, "apps", "ostrakon-bench")
    folder = arguments.keep or tempfile.mkdtemp()
    os.makedirs(folder, exist_ok=True)
    for name, text in {"small": SMALL, "gpt": GPT}.items():
        with open(os.path.join(folder, name + ".yaml"), "w", encoding="utf-8") as file:
            file.write(text)

    def run(count, words):
        return rows(shlex.split(arguments.launch) + [str(count), bench] + words)

    def step(count, deck, settings, added, machine=None):
        """Measured and, with a machine file, predicted seconds of a step."""
        words = ["step", os.path.join(folder, deck + ".yaml"), "--json",
                 "--seconds", str(arguments.seconds)]
        if machine:
            words += ["--machine", machine]
        # MFU is not asked for, so no peak is measured.
        for setting in settings + ["runtime.peak_gflops=1"]:
            words += ["--set", setting]
        if added:
            words += ["--added-nanoseconds-per-byte", str(added)]
        found = run(count, words)
        measured = next(row for row in found if row["bench"] == "step")["step_seconds"]
        predicted = [row["predicted_seconds"] for row in found
                     if row["bench"] == "step_prediction" and row["action"] == "step"]
        return measured, predicted[0] if machine else None

    found = {}  # (deck, ranks, settings): measured and predicted seconds of each round
    for count in [int(word) for word in arguments.ranks.split(",")]:
        order = list(combinations(count))
        before = [step(count, *one)[0] for one in order]
        for number in range(1, arguments.rounds + 1):
            machine = os.path.join(folder, "machine-%d-%d.yaml" % (count, number))
            run(count, ["machine", "--json", "--output", machine])
            order.reverse()
            before.reverse()
            after = []
            for (deck, settings, added), earlier in zip(order, before):
                later, predicted = step(count, deck, settings, added, machine)
                taken = [earlier, later]
                if max(taken) > DISTURBED * min(taken):
                    taken += [step(count, deck, settings, added)[0] for _ in range(2)]
                after.append(statistics.median(taken[1:]))
                shown = " ".join(settings + (["%g ns a byte" % added] if added else []))
                found.setdefault((deck, count, shown), []).append(
                    (statistics.median(taken), predicted))
            before = after
            print("%d ranks, after round %d of %d" % (count, number, arguments.rounds))
            print_table(found)
            with open(os.path.join(folder, "results.json"), "w", encoding="utf-8") as file:
                json.dump([[*key, taken] for key, taken in found.items()], file, indent=1)


if __name__ == "__main__":
    main()
