#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of GPT-2 or Llama in PyTorch, timed: what compare.py runs beside ostrakon-bench step.

    benchmarks/pytorch/peer.py --model gpt2 --way eager|compiled|fsdp2|fsdp2-compiled
        --dtype fp32|bf16 --tokens N --global-batch N --micro-batch N --seconds S [--device cuda]

Forward, backward, accumulation over micro-batches, clipping and AdamW, on random tokens. Masters are
fp32; with bf16 products are of bf16: autocast in one process, MixedPrecisionPolicy in FSDP2, where
gradients are reduced in fp32. fsdp2-compiled compiles each block. On CPUs subnormal numbers are
flushed. fsdp2 is started by torchrun, with gloo, on GPUs with NCCL and a GPU for each rank.
Prints one JSON line: the number of parameters and the seconds of each step after the first two.
"""
import argparse
import json
import math
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

SHAPES = {
    "gpt2": dict(layers=12, width=768, heads=12, kv_heads=12, ffn_width=3072, vocabulary=50257),
    "llama": dict(layers=12, width=768, heads=12, kv_heads=4, ffn_width=2048, vocabulary=32000),
    "llama-1b": dict(layers=16, width=2048, heads=32, kv_heads=8, ffn_width=8192,
                     vocabulary=32000),
}
DEVIATION = 0.02


class Attention(nn.Module):
    def __init__(self, shape, is_llama):
        super().__init__()
        self.heads, self.kv_heads = shape["heads"], shape["kv_heads"]
        self.head_width = shape["width"] // self.heads
        self.is_llama = is_llama
        kv_width = self.kv_heads * self.head_width
        self.qkv = nn.Linear(shape["width"], shape["width"] + 2 * kv_width, bias=not is_llama)
        self.out = nn.Linear(shape["width"], shape["width"], bias=not is_llama)
        self.splits = [shape["width"], kv_width, kv_width]

    def forward(self, x, rotation):
        batch, tokens, _ = x.shape
        q, k, v = self.qkv(x).split(self.splits, dim=-1)
        q = q.view(batch, tokens, self.heads, self.head_width).transpose(1, 2)
        k = k.view(batch, tokens, self.kv_heads, self.head_width).transpose(1, 2)
        v = v.view(batch, tokens, self.kv_heads, self.head_width).transpose(1, 2)
        if self.is_llama:
            q, k = rotate(q, rotation), rotate(k, rotation)
        y = functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=self.kv_heads != self.heads)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, -1))


def rotate(x, rotation):
    cosine, sine = rotation
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return x * cosine.to(x.dtype) + turned * sine.to(x.dtype)


class FeedForward(nn.Module):
    def __init__(self, shape, is_llama):
        super().__init__()
        self.is_llama = is_llama
        factor = 2 if is_llama else 1
        self.up = nn.Linear(shape["width"], factor * shape["ffn_width"], bias=not is_llama)
        self.down = nn.Linear(shape["ffn_width"], shape["width"], bias=not is_llama)

    def forward(self, x):
        h = self.up(x)
        if self.is_llama:
            gate, up = h.chunk(2, dim=-1)
            return self.down(functional.silu(gate) * up)
        return self.down(functional.gelu(h, approximate="tanh"))


class Block(nn.Module):
    def __init__(self, shape, is_llama):
        super().__init__()
        norm = nn.RMSNorm if is_llama else nn.LayerNorm
        self.attention_norm = norm(shape["width"], eps=1e-5)
        self.attention = Attention(shape, is_llama)
        self.mlp_norm = norm(shape["width"], eps=1e-5)
        self.mlp = FeedForward(shape, is_llama)

    def forward(self, x, rotation):
        x = x + self.attention(self.attention_norm(x), rotation)
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):
    """GPT-2 (learned positions, tied embeddings) or Llama (rotary, untied)."""

    def __init__(self, name, tokens):
        super().__init__()
        shape = SHAPES[name]
        self.is_llama = name.startswith("llama")
        norm = nn.RMSNorm if self.is_llama else nn.LayerNorm
        self.embedding = nn.Embedding(shape["vocabulary"], shape["width"])
        if not self.is_llama:
            self.positions = nn.Embedding(tokens, shape["width"])
        self.blocks = nn.ModuleList(Block(shape, self.is_llama) for _ in range(shape["layers"]))
        self.norm = norm(shape["width"], eps=1e-5)
        self.head = nn.Linear(shape["width"], shape["vocabulary"], bias=False)
        for name_of, parameter in self.named_parameters():
            if parameter.dim() == 2:
                is_residual = name_of.endswith(("out.weight", "down.weight"))
                scale = math.sqrt(2 * shape["layers"]) if is_residual else 1.0
                nn.init.normal_(parameter, 0.0, DEVIATION / scale)
            elif name_of.endswith("bias"):
                nn.init.zeros_(parameter)
        if not self.is_llama:
            self.head.weight = self.embedding.weight
        half = shape["width"] // shape["heads"] // 2
        frequency = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = torch.outer(torch.arange(tokens, dtype=torch.float64), frequency).repeat(1, 2)
        self.register_buffer("cosine", angle.cos().float(), persistent=False)
        self.register_buffer("sine", angle.sin().float(), persistent=False)

    def forward(self, ids, targets):
        x = self.embedding(ids)
        if not self.is_llama:
            x = x + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, (self.cosine, self.sine))
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def shard(model, dtype):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    policy = MixedPrecisionPolicy()
    if dtype == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)


def compile_blocks(model):
    for block in model.blocks:
        block.compile()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=SHAPES, required=True)
    parser.add_argument("--way", choices=["eager", "compiled", "fsdp2", "fsdp2-compiled"],
                        required=True)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--global-batch", type=int, required=True)
    parser.add_argument("--micro-batch", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    arguments = parser.parse_args()
    on_gpu = arguments.device == "cuda"
    if not on_gpu and not torch.set_flush_denormal(True):
        raise SystemExit("this processor can't flush subnormal numbers")
    torch.manual_seed(1)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    ranks = 1
    sharded = arguments.way.startswith("fsdp2")
    if sharded:
        if on_gpu:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if on_gpu else "gloo")
        ranks = dist.get_world_size()
    model = Decoder(arguments.model, arguments.tokens).to(arguments.device)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if arguments.way == "fsdp2-compiled":
        compile_blocks(model)
    if sharded:
        shard(model, arguments.dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                  fused=on_gpu or not sharded)
    compute = torch.compile(model) if arguments.way == "compiled" else model
    casts = arguments.dtype == "bf16" and not sharded
    micro_batches = arguments.global_batch // arguments.micro_batch // ranks
    shape = (arguments.micro_batch, arguments.tokens + 1)
    vocabulary = SHAPES[arguments.model]["vocabulary"]

    def step():
        for index in range(micro_batches):
            ids = torch.randint(0, vocabulary, shape, device=arguments.device)
            if sharded:
                model.set_requires_gradient_sync(index == micro_batches - 1)
            with torch.autocast(arguments.device, torch.bfloat16, enabled=casts):
                loss = compute(ids[:, :-1], ids[:, 1:])
            (loss / micro_batches).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())  # on a GPU waits for the step

    taken = []
    while len(taken) < 5 or sum(taken[2:]) < arguments.seconds:
        if ranks > 1:
            dist.barrier()
        begin = time.perf_counter()
        loss = step()
        seconds = torch.tensor(time.perf_counter() - begin, dtype=torch.float64,
                               device=arguments.device)
        if ranks > 1:
            dist.all_reduce(seconds, op=dist.ReduceOp.MAX)  # all stop after the same step
        taken.append(float(seconds))
    if ranks == 1 or dist.get_rank() == 0:
        print(json.dumps({"parameters": parameters, "loss": loss, "steps": taken[2:],
                          "torch": torch.__version__}), flush=True)
    if sharded:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
