#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares predicted with measured step times on this machine.

    benchmarks/predictions.py BUILD [--seconds S] [--ranks 1,2,4] [--keep FOLDER]

Measures a machine file with ostrakon-bench machine, on as many ranks as cores at most, then runs
ostrakon-bench step --machine for decks, dtypes, strategies, checkpointing, offload, streams and
slowed networks, and prints a line for each: measured and predicted seconds and the error; then the
median and the largest error and Kendall's tau. Nothing else should run on the machine.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

SMALL = """ostrakon:
  model: {norm: rmsnorm, positions: rotary, activation: swiglu, layers: 4, width: 192, heads: 6, ffn_width: 512, vocabulary: 257, tie_embeddings: true}
  data: {dataset: synthetic}
  training: {steps: 1000, global_batch_size: 32, micro_batch_size: 4, sequence_length: 256}
  output: {directory: none}
"""
GPT = """ostrakon:
  model: {norm: layernorm, positions: learned, activation: gelu, bias: true, layers: 4, width: 768, heads: 12, vocabulary: 8192, tie_embeddings: true}
  data: {dataset: synthetic}
  training: {steps: 1000, global_batch_size: 16, micro_batch_size: 4, sequence_length: 256}
  output: {directory: none}
"""
STRATEGIES = [["parallel.sharding=none"], ["parallel.sharding=optimizer"],
              ["parallel.sharding=gradients"], ["parallel.sharding=full"]]
FULL = ["memory.activation_checkpointing=full"]
BF16 = ["precision.gather=bf16"]
OFFLOAD = ["memory.offload=optimizer"]
THREADS = ["runtime.streams=threads"]
SLOW = 2.0  # nanoseconds for each byte


def combinations(most_ranks):
    """(deck, ranks, settings, added nanoseconds per byte)"""
    for deck in ("small", "gpt"):
        for more in ([], BF16, FULL, OFFLOAD, BF16 + FULL):
            yield deck, 1, more, 0.0
        if most_ranks >= 2:
            for more in STRATEGIES:
                yield deck, 2, more, 0.0
            for more in (BF16, FULL, OFFLOAD, THREADS, BF16 + OFFLOAD):
                yield deck, 2, more, 0.0
            yield deck, 2, [], SLOW
            yield deck, 2, THREADS, SLOW
        if most_ranks >= 4:
            for more in ([], BF16):
                yield deck, 4, more, 0.0


def rows(command, environment):
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", help="build folder")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement (5)")
    parser.add_argument("--ranks", type=int, default=4, help="the most ranks (4)")
    parser.add_argument("--keep", help="folder for the machine file and decks")
    arguments = parser.parse_args()
    bench = os.path.join(arguments.build, "apps", "ostrakon-bench")
    folder = arguments.keep or tempfile.mkdtemp()
    os.makedirs(folder, exist_ok=True)
    environment = dict(os.environ)
    machine = os.path.join(folder, "machine.yaml")
    ranks = min(arguments.ranks, os.cpu_count() or 1)
    decks = {"small": SMALL, "gpt": GPT}
    for name, text in decks.items():
        with open(os.path.join(folder, name + ".yaml"), "w", encoding="utf-8") as file:
            file.write(text)
    rows(["mpiexec", "-n", str(ranks), bench, "machine", "--json", "--output", machine], environment)
    errors, pairs = [], []
    print("%-6s %5s %9s %9s %7s  %s" % ("deck", "ranks", "measured", "predicted", "error", "settings"))
    for deck, count, settings, added in combinations(arguments.ranks):
        command = ["mpiexec", "-n", str(count), bench, "step", os.path.join(folder, deck + ".yaml"),
                   "--json", "--machine", machine, "--seconds", str(arguments.seconds)]
        for setting in settings:
            command += ["--set", setting]
        if added:
            command += ["--added-nanoseconds-per-byte", str(added)]
        step = [row for row in rows(command, environment)
                if row["bench"] == "step_prediction" and row["action"] == "step"][0]
        measured, predicted = step["measured_seconds"], step["predicted_seconds"]
        error = predicted / measured - 1.0
        errors.append(abs(error))
        pairs.append((measured, predicted))
        if added:
            settings = settings + ["%g ns a byte" % added]
        print("%-6s %5d %9.4f %9.4f %+6.1f%%  %s" %
              (deck, count, measured, predicted, 100.0 * error, " ".join(settings)), flush=True)
    print("%d combinations: median error %.1f %%, largest %.1f %%, Kendall's tau %.2f" %
          (len(errors), 100.0 * statistics.median(errors), 100.0 * max(errors), kendall(pairs)))


if __name__ == "__main__":
    main()
