#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All that a machine with one GPU has to show of a build for it, in a quarter of an hour.

    benchmarks/device/check.py BUILD [--output FOLDER] [--minutes N] [--parts PART,...]
        [--variants VARIANT,...] [--layouts N] [--jobs N] [--mpiexec COMMAND] [--python PYTHON] [--cpu]

Parts, in this order, each within a share of the time that is left:
    machine   what is there: device, driver, program, libraries
    tests     test programs of kernels, optimizers and devices that the build has
    layouts   losses, norms and digests of layouts on 1, 2 and 4 ranks that share the card, beside
              one rank's
    steps     times of steps of three models, in bf16 and with products in 8 bits, by kernel; with
              each attention, with and without graphs
    pytorch   the same steps of two of them in PyTorch, where PYTHON has it
Tests and layouts run several at once, as nothing of them is timed; meanwhile PyTorch compiles for later.
Writes report.md, for documents, and results.json to FOLDER (device-check), and says what passed.
Nothing is downloaded. BUILD has apps/ and tests/, as a build folder; programs find their libraries by
LD_LIBRARY_PATH. --cpu: on a host's build, with tiny models, to see that it works.

Exit status: 0 all passed; 1 something failed, or did not fit into the time.
"""
import argparse
import concurrent.futures
import glob
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import threading
import time

import layouts

HERE = os.path.dirname(os.path.abspath(__file__))
PYTORCH = os.path.join(HERE, "..", "pytorch")
# The most that a part takes of the time that is left when it begins.
SHARES = {"machine": 0.1, "tests": 0.3, "layouts": 0.5, "steps": 0.75, "pytorch": 0.9}
# What lets several ranks of NCCL share one card.
ON_ONE_CARD = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "4", "NCCL_NVLS_ENABLE": "0",
               "CUDA_DEVICE_MAX_CONNECTIONS": "32"}
# Settings of a variant of steps, and whether its kernels are listed.
VARIANTS = {"bf16": ({}, True), "fp8": ({"precision.products": "fp8"}, True),
            "own attention": ({"runtime.attention": "own"}, False),
            "attention by cuDNN": ({"runtime.attention": "cudnn"}, False),
            "without graphs": ({"runtime.graphs": "never"}, False)}
COMPARED = ("loss", "grad_norm", "state_digest")


class Check:
    def __init__(self, options):
        self.options = options
        self.ends = time.monotonic() + 60.0 * options.minutes
        self.part_ends = self.ends
        self.results = {"device": not options.cpu, "parts": {}}
        self.rows = []
        self.lock = threading.Lock()
        self.compiling = []
        self.environment = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                                OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                                OMPI_MCA_rmaps_base_oversubscribe="1",
                                TORCHINDUCTOR_CACHE_DIR=os.path.join(options.output, "inductor"))
        if not options.cpu:
            self.environment.update(ON_ONE_CARD)

    def begin(self, part):
        self.part_ends = time.monotonic() + SHARES[part] * (self.ends - time.monotonic())
        self.rows = self.results["parts"][part] = []

    def left(self):
        return self.part_ends - time.monotonic()

    def run(self, command, most=None, more=None):
        """Runs a command, with more in its environment, which is ended with all of its ranks where time
        is out. Returns its status, "time" or "missing", and what it has said."""
        seconds = min(self.left(), most or self.left())
        if seconds < 1.0:
            return "time", "no time was left"
        try:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       text=True, env=dict(self.environment, **(more or {})),
                                       start_new_session=True)
        except OSError as error:
            return "missing", str(error)
        with process:
            try:
                out, _ = process.communicate(timeout=seconds)
                return process.returncode, out
            except subprocess.TimeoutExpired:
                # mpiexec ends its ranks, which are no part of its group, if it is asked to end.
                for number in (signal.SIGTERM, signal.SIGKILL):
                    os.killpg(process.pid, number)
                    try:
                        out, _ = process.communicate(timeout=5.0)
                        break
                    except subprocess.TimeoutExpired:
                        pass
                return "time", out or ""

    def add(self, name, passed, **more):
        """passed: True, False, or a word where there is nothing to pass."""
        row = {"name": name, "passed": passed, **more}
        verdict = {True: "ok", False: "FAILED"}.get(passed, passed)
        with self.lock:
            self.rows.append(row)
            print("  %-58s %s" % (name, verdict), flush=True)
            if passed is False and more.get("said"):
                print("\n".join("    " + line for line in more["said"].splitlines()[-12:]), flush=True)
            with open(os.path.join(self.options.output, "results.json"), "w",
                      encoding="utf-8") as file:
                json.dump(self.results, file, indent=1)

    @staticmethod
    def at_once(jobs, work):
        """Runs functions without arguments, so many at a time. Returns what they return, in order."""
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            return [one.result() for one in [pool.submit(call) for call in work]]

    def app(self, name):
        return os.path.join(self.options.build, "apps", name)

    # ---- machine

    def machine(self):
        commands = {"program": [self.app("ostrakon-train"), "--version"], "mpi": [
            shlex.split(self.options.mpiexec)[0], "--version"]}
        if self.options.cpu:
            commands["processor"] = ["uname", "-a"]
        else:
            commands["device"] = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,"
                                  "clocks.max.sm,power.limit,mig.mode.current", "--format=csv"]
            commands["libraries"] = ["ldd", self.app("ostrakon-train")]
            commands["copies, launches, products"] = [self.app("ostrakon-bench"), "device"]
            commands["kernels"] = [self.app("ostrakon-bench"), "kernels", "--dtype", "bf16"]
        for name, command in commands.items():
            status, out = self.run(command, 90)
            self.add(name, status == 0, said=out)

    # ---- tests

    def tests(self):
        programs = []
        for room in self.options.tests.split(","):
            programs += sorted(glob.glob(os.path.join(self.options.build, "tests", room, "test_*")))
        programs = [one for one in programs if os.access(one, os.X_OK) and os.path.isfile(one)]
        if not programs:
            self.add("tests", "none in this build")
        self.at_once(self.options.jobs, [lambda program=program, shard=shard: self.test(program, shard)
                      for program in programs for shard in range(self.options.jobs)])

    def test(self, program, shard):
        """A part of a program's tests: every --jobs-th."""
        command = [program] + (["--gtest_filter=" + self.options.tests_filter]
                               if self.options.tests_filter else [])
        status, out = self.run(command, None, {"GTEST_TOTAL_SHARDS": str(self.options.jobs),
                                               "GTEST_SHARD_INDEX": str(shard)})
        passed = [line for line in out.splitlines() if "[  PASSED  ]" in line]
        failed = [line for line in out.splitlines() if "[  FAILED  ]" in line or "Failure" in line]
        self.add("%s, part %d" % (os.path.basename(program), shard), status == 0 and bool(passed),
                 status=status, passed_tests=passed[-1].split("]")[-1].strip() if passed else "",
                 said="\n".join(failed[:40]) + "\n" + out[-2000:])

    # ---- layouts

    def steps_of(self, model, ranks, settings, name):
        """The compared values of each step, or None, and what was said."""
        sets = dict(layouts.COMMON, **layouts.MODELS[model])
        if self.options.cpu:
            sets.update(layouts.TINY)
        elif ranks > 1:
            sets["runtime.transport"] = "nccl"
        sets.update(settings)
        folder = os.path.join(self.options.output, "runs", name)
        os.makedirs(folder, exist_ok=True)
        deck = os.path.join(folder, "deck.yaml")
        with open(deck, "w", encoding="utf-8") as file:
            file.write("ostrakon:\n  output: {directory: %s}\n" % os.path.join(folder, "out"))
        command = shlex.split(self.options.mpiexec) + ["-n", str(ranks),
                                                       self.app("ostrakon-train"), deck]
        for key, value in sets.items():
            command += ["--set", "%s=%s" % (key, value)]
        status, out = self.run(command, 90)
        if status != 0:
            return None, "%s\n%s" % (status, out)
        with open(os.path.join(folder, "out", "metrics.jsonl"), encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        steps = [tuple(row.get(key) for key in COMPARED) for row in rows if "loss" in row]
        if len(steps) != sets["training.steps"] or any(None in step for step in steps):
            return None, "steps without a loss, norm or digest: %s" % rows
        return steps, out

    def layouts(self):
        chosen = layouts.LAYOUTS[:self.options.layouts]
        models = sorted({model for model, _, _ in chosen})
        alone = dict(zip(models, self.at_once(
            self.options.jobs, [lambda model=model: self.alone(model) for model in models])))
        # A card gives programs its time in turns, and kernels of NCCL use theirs to wait.
        self.at_once(max(1, min(2, self.options.jobs // 2)), [
            lambda number=number: self.layout(number, alone[chosen[number][0]])
            for number in range(len(chosen))])

    def alone(self, model):
        steps, said = self.steps_of(model, 1, {}, "one-" + model.replace(" ", "-"))
        refused = steps is None and self.is_refused(said, layouts.MODELS[model])
        self.add("%s on one rank" % model, "refused" if refused else steps is not None,
                 said=said[-3000:])
        return steps

    def layout(self, number, alone):
        model, ranks, settings = layouts.LAYOUTS[number]
        name = "%s on %d: %s" % (model, ranks, ", ".join(
            "%s=%s" % (key.split(".")[1], value) for key, value in settings.items()))
        if alone is None:
            self.add(name, "nothing to compare with")
            return
        steps, said = self.steps_of(model, ranks, settings, "layout-%d" % number)
        if steps is None and self.is_refused(said, ("runtime.transport",)):
            name += ", transport=mpi_staged, as NCCL was refused"
            steps, said = self.steps_of(
                model, ranks, dict(settings, **{"runtime.transport": "mpi_staged"}),
                "layout-%d-staged" % number)
        if steps is None:
            refused = self.is_refused(said, settings)
            self.add(name, "refused" if refused else False, said=said[:60] + "\n" + said[-3000:])
        else:
            same = steps == alone
            self.add(name, same, said="" if same else "%s\nexpected\n%s" % (steps, alone))

    # ---- steps

    def models(self):
        """(name, deck, settings): benchmarks of PyTorch's, and 6 blocks of Llama 3 8B."""
        llama_8b = os.path.join(HERE, "..", "..", "input_decks", "llama3-8b.yaml")
        of = lambda tokens, batch, micro: {"training.sequence_length": tokens,
                                           "training.global_batch_size": batch,
                                           "training.micro_batch_size": micro,
                                           "memory.activation_checkpointing": "auto"}
        all_models = [("llama-1b", os.path.join(PYTORCH, "llama-1b.yaml"), of(2048, 16, 4)),
                      ("gpt2", os.path.join(PYTORCH, "gpt2.yaml"), of(1024, 64, 16)),
                      ("llama3-8b, 6 blocks", llama_8b, dict(
                          of(8192, 4, 1), **{"model.layers": 6, "data.dataset": "synthetic"}))]
        if self.options.cpu:
            small = dict(of(32, 4, 2), **{"model.layers": 2, "model.width": 64, "model.heads": 4,
                                          "model.kv_heads": 4, "model.ffn_width": 128,
                                          "model.vocabulary": 61})
            all_models = [("llama-1b", all_models[0][1], small)]
        return all_models

    def bench(self, name, deck, settings, kernels):
        command = [self.app("ostrakon-bench"), "step", deck, "--json", "--seconds",
                   "0.2" if self.options.cpu else "6"]
        if kernels:
            command.append("--kernels")
        for key, value in dict(settings, **{"runtime.peak_gflops": 1}).items():
            command += ["--set", "%s=%s" % (key, value)]
        status, out = self.run(command, 120)
        lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        steps = [line for line in lines if line["bench"] == "step"]
        if status == 0 and steps:
            tokens = settings["training.sequence_length"] * settings["training.global_batch_size"]
            self.add(name, True, step_seconds=steps[0]["step_seconds"],
                     tokens_per_second=tokens / steps[0]["step_seconds"],
                     kernels=[line for line in lines if line["bench"] == "step_kernel"])
        elif status not in (0, "time") and self.is_refused(out, settings):
            self.add(name, "refused", said=out[-600:])
        else:
            self.add(name, False, said=out[-3000:])

    @staticmethod
    def is_refused(out, keys):
        """Whether an error names one of these keys of what a build or device may not have."""
        return any(key in line for line in out.splitlines() if "error:" in line
                   for key in keys if key.startswith(("runtime.", "precision.products")))

    def steps(self):
        for one in self.compiling:
            one.result()
        for variant in self.options.variants.split(","):
            more, kernels = VARIANTS[variant]
            for model, deck, settings in self.models():
                sets = dict(settings, **{"precision.gather": "bf16"}, **more)
                self.bench("%s, %s" % (model, variant), deck, sets, kernels)

    # ---- pytorch

    def peer(self, model, settings, way, seconds):
        return self.run([self.options.python, os.path.join(PYTORCH, "peer.py"), "--model", model,
                         "--way", way, "--dtype", "bf16", "--tokens",
                         str(settings["training.sequence_length"]), "--global-batch",
                         str(settings["training.global_batch_size"]), "--micro-batch",
                         str(settings["training.micro_batch_size"]), "--seconds", str(seconds),
                         "--device", "cpu" if self.options.cpu else "cuda"], 150)

    def compile_for_later(self):
        """Begins to fill the cache of PyTorch's compiler."""
        pool = concurrent.futures.ThreadPoolExecutor(2)
        self.compiling = [pool.submit(self.peer, model, settings, "compiled", 0)
                          for model, _, settings in self.models() if "8b" not in model]

    def pytorch(self):
        found, _ = self.run([self.options.python, "-c", "import torch"], 60)
        if found != 0:
            self.add("torch", "not in " + self.options.python)
            return
        for model, _, settings in self.models():
            if "8b" in model:
                continue
            for way in ("compiled", "eager"):
                status, out = self.peer(model, settings, way, 6)
                lines = [line for line in out.splitlines() if line.startswith("{")]
                if status != 0 or not lines:
                    self.add("%s, %s" % (model, way), False, said=out[-3000:])
                else:
                    self.add("%s, %s" % (model, way), True,
                             step_seconds=statistics.median(json.loads(lines[-1])["steps"]))

    # ---- report

    def report(self):
        lines = ["# Check of a device", ""]
        for row in self.results["parts"].get("machine", []):
            said = [line for line in row.get("said", "").strip().splitlines() if "=>" not in line]
            lines.append("- %s: %s" % (row["name"], "; ".join(said)[:400]))
        for part in ("tests", "layouts"):
            rows = self.results["parts"].get(part, [])
            if rows:
                lines += ["", "| %s | |" % part, "|---|---|"]
                lines += ["| %s | %s |" % (row["name"], verdict_of(row)) for row in rows]
        rows = [row for part in ("steps", "pytorch") for row in self.results["parts"].get(part, [])]
        if rows:
            lines += ["", "| step | s | tokens/s |", "|---|---|---|"]
            lines += ["| %s | %s | %s |" % (
                row["name"], "%.4f" % row["step_seconds"] if "step_seconds" in row
                else verdict_of(row), "%.0f" % row["tokens_per_second"]
                if "tokens_per_second" in row else "") for row in rows]
        for row in rows:
            if row.get("kernels"):
                lines += ["", "%s:" % row["name"], "", "| kernel | share | a step | mean us | sum ms |",
                          "|---|---|---|---|---|"]
                lines += ["| `%s` | %.1f %% | %d | %.1f | %.2f |" % (
                    one["kernel"], 100.0 * one["share"], one["calls"], 1e6 * one["mean_seconds"],
                    1e3 * one["seconds"]) for one in row["kernels"][:24]]
        with open(os.path.join(self.options.output, "report.md"), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")

    def failures(self):
        return [row["name"] for rows in self.results["parts"].values() for row in rows
                if row["passed"] is False]


def verdict_of(row):
    return {True: "passed", False: "**failed**"}.get(row["passed"], row["passed"])


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", help="build folder")
    parser.add_argument("--output", default="device-check", help="folder (device-check)")
    parser.add_argument("--minutes", type=float, default=14.0, help="for all parts (14)")
    parser.add_argument("--parts", default=",".join(SHARES), help="which of them: " +
                        ", ".join(SHARES))
    parser.add_argument("--tests", default="math,optim,device,runtime",
                        help="folders of tests in the build (math,optim,device,runtime)")
    parser.add_argument("--tests-filter", default="", help="of GoogleTest")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="of steps, which of: " +
                        ", ".join(VARIANTS))
    parser.add_argument("--jobs", type=int, default=4, help="tests at once, and half of it, at most "
                        "2, layouts (4)")
    parser.add_argument("--layouts", type=int, default=len(layouts.LAYOUTS),
                        help="how many layouts, the first ones (all)")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--python", default=sys.executable, help="with torch (this one)")
    parser.add_argument("--cpu", action="store_true", help="a host's build, tiny models")
    options = parser.parse_args(arguments)
    for part in options.parts.split(","):
        if part not in SHARES:
            parser.error("--parts: found %s, expected some of %s" % (part, ", ".join(SHARES)))
    for variant in options.variants.split(","):
        if variant not in VARIANTS:
            parser.error("--variants: found %s, expected some of %s" % (
                variant, ", ".join(VARIANTS)))
    options.build = os.path.abspath(options.build)
    program = os.path.join(options.build, "apps", "ostrakon-train")
    if not os.access(program, os.X_OK):
        parser.error("build: found no program %s; expected a build folder" % program)
    options.output = os.path.abspath(options.output)
    return options


def main(arguments):
    options = options_of(arguments)
    os.makedirs(options.output, exist_ok=True)
    check = Check(options)
    parts = options.parts.split(",")
    if "pytorch" in parts and ("tests" in parts or "layouts" in parts):
        check.compile_for_later()
    for part in parts:
        print(part, flush=True)
        check.begin(part)
        getattr(check, part)()
        check.report()
    failed = check.failures()
    rows = sum(len(rows) for rows in check.results["parts"].values())
    print("%d of %d failed%s; %s" % (len(failed), rows, ": " + "; ".join(failed) if failed else "",
                                     os.path.join(options.output, "report.md")))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
