#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of ostrakon-bench beside PyTorch's, in turn, as a table of ratios.

    benchmarks/pytorch/compare.py BUILD [--python PYTHON] [--models gpt2,llama] [--dtypes fp32,bf16]
        [--tokens 256,1024] [--cores 1,2] [--peers eager,compiled,fsdp2,fsdp2-compiled]
        [--batch-tokens N] [--micro-batches N] [--rounds N] [--seconds S] [--mpiexec COMMAND]
        [--device cuda]

The same model (initial weights of the same deviation), micro-batches, accumulation, clipping and
AdamW; on N cores Ostrakon has N ranks, sharded fully, PyTorch one process of N threads (eager,
compiled) or N ranks of one (fsdp2). With --device cuda, BUILD has a Kokkos with CUDA, and N are GPUs
with a rank each. In each round all run one after the other. Each figure is the
mean of the rounds' medians. PYTHON has torch 2.6 or later: pip install torch.
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def run(command, threads):
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), OMP_PROC_BIND="false")
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=environment)
    if done.returncode != 0:
        sys.exit(" ".join(command) + "\n" + done.stdout + done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def ostrakon(arguments, case, cores):
    model, dtype, tokens, batch, micro = case
    sets = ["training.sequence_length=%d" % tokens, "training.global_batch_size=%d" % batch,
            "training.micro_batch_size=%d" % micro, "precision.gather=%s" % dtype,
            # MFU is not asked for, so no peak is measured.
            "runtime.peak_gflops=1"]
    command = shlex.split(arguments.mpiexec) + ["-n", str(cores)]
    command += [os.path.join(arguments.build, "apps", "ostrakon-bench"), "step",
                os.path.join(HERE, model + ".yaml"), "--json", "--seconds", str(arguments.seconds)]
    lines = run(command + [word for one in sets for word in ("--set", one)], 1)
    return [line for line in lines if line["bench"] == "step"][0]["step_seconds"]


def pytorch(arguments, case, cores, way):
    model, dtype, tokens, batch, micro = case
    peer = [os.path.join(HERE, "peer.py"), "--model", model, "--way", way, "--dtype", dtype,
            "--tokens", str(tokens), "--global-batch", str(batch), "--micro-batch", str(micro),
            "--seconds", str(arguments.seconds), "--device", arguments.device]
    if way.startswith("fsdp2"):
        start = [arguments.python, "-m", "torch.distributed.run", "--standalone",
                 "--nproc-per-node", str(cores)]
        line = run(start + peer, 1)[0]
    else:
        line = run([arguments.python] + peer, cores)[0]
    return statistics.median(line["steps"])


def processor(arguments):
    if arguments.device == "cuda":
        return subprocess.run(
            [arguments.python, "-c", "import torch; print(torch.cuda.get_device_name())"],
            stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        lines = file.read().splitlines()
    name = [line.split(": ")[1] for line in lines if line.startswith("model name")]
    flags = [line for line in lines if line.startswith(("flags", "Features"))][0].split()
    units = [unit for unit in ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "avx512_fp16",
                               "amx_fp16", "sve", "bf16", "i8mm") if unit in flags]
    return "%s (%s)" % (name[0] if name else "unknown processor", ", ".join(units))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", help="build folder")
    parser.add_argument("--python", default=sys.executable, help="with torch (this one)")
    parser.add_argument("--models", default="gpt2,llama")
    parser.add_argument("--dtypes", default="fp32,bf16")
    parser.add_argument("--tokens", default="256,1024", help="of a sequence (256,1024)")
    parser.add_argument("--cores", default="1,2", help="or GPUs")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--peers", default="eager,compiled,fsdp2")
    parser.add_argument("--batch-tokens", type=int, default=2048, help="of a step (2048)")
    parser.add_argument("--micro-batches", type=int, default=4,
                        help="of a step, over all ranks (4)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement (6)")
    parser.add_argument("--mpiexec", default="mpiexec")
    arguments = parser.parse_args()
    arguments.build = os.path.abspath(arguments.build)
    print("%s; a step of %d tokens\n" % (processor(arguments), arguments.batch_tokens))
    print("| model | dtype | tokens | cores | Ostrakon s | PyTorch | PyTorch s | ratio |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for model in arguments.models.split(","):
        for dtype in arguments.dtypes.split(","):
            for tokens in map(int, arguments.tokens.split(",")):
                batch = arguments.batch_tokens // tokens
                for cores in map(int, arguments.cores.split(",")):
                    micro = max(1, batch // arguments.micro_batches)
                    if batch % (micro * cores) != 0:
                        sys.exit("%d sequences of %d tokens are no multiple of %d ranks' "
                                 "micro-batches of %d; change --batch-tokens, --micro-batches or "
                                 "--cores" % (batch, tokens, cores, micro))
                    case = (model, dtype, tokens, batch, micro)
                    ways = [way for way in arguments.peers.split(",")
                            if not way.startswith("fsdp2") or cores > 1
                            or arguments.device == "cuda"]
                    own, theirs = [], {way: [] for way in ways}
                    for _ in range(arguments.rounds):
                        own.append(ostrakon(arguments, case, cores))
                        for way in ways:
                            theirs[way].append(pytorch(arguments, case, cores, way))
                    mine = statistics.mean(own)
                    for way in ways:
                        seconds = statistics.mean(theirs[way])
                        print("| %s | %s | %d | %d | %.3f | %s | %.3f | %.2f |" %
                              (model, dtype, tokens, cores, mine, way, seconds, seconds / mine),
                              flush=True)


if __name__ == "__main__":
    main()
