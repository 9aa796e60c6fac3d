# SPDX-License-Identifier: Apache-2.0
"""Layouts that have to give one rank's bits: models, and how ranks share them."""

# Settings of all runs, and of each model. A layout is compared with one rank of its model.
COMMON = {"data.dataset": "synthetic", "training.steps": 3, "training.sequence_length": 256,
          "training.global_batch_size": 8, "training.micro_batch_size": 1, "output.every": 1,
          "output.digest_every": 1, "checkpoint.every": 0, "precision.gather": "bf16",
          "runtime.peak_gflops": 1}
MODELS = {
    "llama": {"model.tie_embeddings": "false", "model.layers": 4, "model.width": 256,
              "model.heads": 4, "model.kv_heads": 2, "model.vocabulary": 1024},
    "gpt2": {"model.norm": "layernorm", "model.positions": "learned", "model.activation": "gelu",
             "model.bias": "true", "model.tie_embeddings": "true", "training.leaf": "sequence",
             "model.layers": 4, "model.width": 256, "model.heads": 4, "model.vocabulary": 1021},
    "pieces": {"model.tie_embeddings": "false", "model.layers": 4, "model.width": 256,
               "model.heads": 4, "model.kv_heads": 4, "model.vocabulary": 1024,
               "model.tensor_grain": 4, "training.context_grain": 2},
    "8 bits": {"model.tie_embeddings": "false", "model.layers": 4, "model.width": 256,
               "model.heads": 4, "model.kv_heads": 4, "model.vocabulary": 1024,
               "model.tensor_grain": 4, "precision.products": "fp8"},
    "experts": {"model.tie_embeddings": "false", "model.layers": 2, "model.width": 256,
                "model.heads": 4, "model.vocabulary": 1024, "model.experts": 4,
                "model.experts_per_token": 2, "model.expert_width": 256},
}
# What --cpu changes, so that a host takes seconds.
TINY = {"model.width": 64, "model.vocabulary": 61, "training.sequence_length": 32,
        "training.steps": 2}

# (model, ranks, settings); the first ones matter most, for when time runs out.
LAYOUTS = [
    ("llama", 2, {"parallel.sharding": "full"}),
    ("llama", 2, {"parallel.pipeline": 2}),
    ("pieces", 2, {"parallel.tensor": 2}),
    ("pieces", 2, {"parallel.context": 2}),
    ("experts", 2, {"parallel.expert": 2}),
    ("llama", 4, {"parallel.pipeline": 4, "parallel.schedule": "zero_bubble"}),
    ("gpt2", 2, {"parallel.pipeline": 2, "parallel.schedule": "interleaved",
                 "parallel.pipeline_chunks": 2}),
    ("8 bits", 2, {"parallel.sharding": "full"}),
    ("8 bits", 4, {"parallel.tensor": 2, "parallel.pipeline": 2}),
    ("llama", 4, {"parallel.sharding": "full", "parallel.shard_group": 2}),
    ("llama", 2, {"parallel.sharding": "none"}),
    ("llama", 2, {"parallel.sharding": "optimizer"}),
    ("llama", 2, {"parallel.sharding": "gradients"}),
    ("llama", 2, {"runtime.communicators": "single"}),
    ("llama", 2, {"memory.offload": "optimizer"}),
    ("llama", 2, {"parallel.forward_prefetch": 3, "parallel.backward_prefetch": 3}),
    ("llama", 1, {"memory.activation_checkpointing": "full"}),
    ("llama", 2, {"parallel.updates": "optimistic"}),
    ("gpt2", 4, {"parallel.sharding": "full"}),
    ("pieces", 4, {"parallel.tensor": 2, "parallel.pipeline": 2}),
    ("pieces", 4, {"parallel.tensor": 4}),
    ("pieces", 4, {"parallel.tensor": 2, "parallel.context": 2}),
    ("experts", 4, {"parallel.expert": 2, "parallel.pipeline": 2}),
]
