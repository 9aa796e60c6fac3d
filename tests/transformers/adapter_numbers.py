#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the numbers that the test `transformers_adapters` expects: models of expected/ with low-rank adapters.

    tests/transformers/adapter_numbers.py           # writes adapters.json
    tests/transformers/adapter_numbers.py --peft    # compares its numbers with those of PEFT

Adapters are computed here, in a line of PyTorch: x W^T + b + alpha / rank (x A^T) B^T in place of a linear
layer, in float64. PEFT (`pip install peft`), which neither this nor the test needs, has to agree: see --peft.
README.md says what is in the file.
"""
import json
import os
import re
import sys

import torch
import transformers

import expected_numbers as models

# Model, rank, alpha, and the modules of each block that have adapters.
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CASES = [("llama", 4, 8.0, ALL), ("qwen2", 2, 16.0, ["q_proj", "v_proj"]),
         ("ernie4_5", 3, 6.0, ["q_proj", "k_proj", "o_proj", "down_proj"]),
         ("gemma2", 4, 4.0, ["q_proj", "v_proj", "up_proj", "down_proj"])]
FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "adapters.json")


class Adapted(torch.nn.Module):
    """A linear layer with an adapter."""

    def __init__(self, layer, a, b, scale):
        super().__init__()
        self.layer, self.scale = layer, scale
        self.a, self.b = torch.nn.Parameter(a), torch.nn.Parameter(b)

    def forward(self, x):
        return self.layer(x) + self.scale * (x @ self.a.T) @ self.b.T


def peft_name(module, which):
    return f"base_model.model.{module}.{which}.weight"


def matrices(seed, module, layer, rank):
    """The A and B that a module begins with, by formula. B is not zero, so that all have gradients."""
    a = models.values_of(seed, peft_name(module, "lora_A"), (rank, layer.in_features), 0.0)
    b = models.values_of(seed, peft_name(module, "lora_B"), (layer.out_features, rank), 0.0)
    return a.double(), b.double()


def model_of(name):
    """A model of expected/ in float64, and its seed."""
    with open(os.path.join(models.FOLDER, name + ".json")) as file:
        numbers = json.load(file)
    with models.in_float64():
        model = models.make(models.configuration(name)).double()
        state = model.state_dict()
        for center, key in ((0.0, "tensors_around_0"), (1.0, "tensors_around_1")):
            for tensor in state:
                if is_of(numbers[key], tensor):
                    state[tensor] = models.values_of(numbers["seed"], tensor, state[tensor].shape,
                                                     center).double()
        model.load_state_dict(state)
        model.tie_weights()
    return model, numbers["seed"]


def is_of(names, tensor):
    """Whether the names, in which {0-2} stands for numbers, have that of the tensor."""
    for name in names:
        parts = re.split(r"\{(\d+)-(\d+)\}", name)
        pattern = re.escape(parts[0])
        for at in range(1, len(parts), 3):
            numbers = range(int(parts[at]), int(parts[at + 1]) + 1)
            pattern += "(" + "|".join(map(str, numbers)) + ")" + re.escape(parts[at + 2])
        if re.fullmatch(pattern, tensor):
            return True
    return False


def modules_of(model, targets):
    return {name: layer for name, layer in model.named_modules() if name.split(".")[-1] in targets}


def adapted(model, seed, rank, alpha, targets):
    """Has the modules compute with adapters; returns these by name."""
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    found = {}
    for name, layer in modules_of(model, targets).items():
        a, b = matrices(seed, name, layer, rank)
        found[name] = Adapted(layer, a, b, alpha / rank)
        parent, last = name.rsplit(".", 1)
        setattr(model.get_submodule(parent), last, found[name])
    return found


def trained(model, batch):
    """Ten steps of AdamW of what is not frozen: the losses."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    adamw = models.ADAMW
    optimizer = torch.optim.AdamW(parameters, lr=adamw["learning_rate"], eps=adamw["epsilon"],
                                  betas=(adamw["beta1"], adamw["beta2"]),
                                  weight_decay=adamw["weight_decay"])
    losses = []
    for _ in range(models.STEPS):
        optimizer.zero_grad()
        losses.append(models.add_gradients(model, batch))
        optimizer.step()
    return losses


def compute(name, rank, alpha, targets):
    model, seed = model_of(name)
    with models.in_float64():
        layers = adapted(model, seed, rank, alpha, targets)
        losses = trained(model, models.batch_of(seed))
    norms = {}
    for module, layer in layers.items():
        norms[peft_name(module, "lora_A")] = round(layer.a.norm().item(), 9)
        norms[peft_name(module, "lora_B")] = round(layer.b.norm().item(), 9)
    return {"model": name, "rank": rank, "alpha": alpha, "targets": targets,
            "losses": [round(value, 9) for value in losses], "norms_after": norms}


def by_peft(name, rank, alpha, targets):
    """The losses that PEFT has."""
    import peft
    model, seed = model_of(name)
    with models.in_float64():
        found = {module: matrices(seed, module, layer, rank)
                 for module, layer in modules_of(model, targets).items()}
        config = peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=targets, task_type="CAUSAL_LM")
        wrapped = peft.get_peft_model(model, config).eval().double()
        for module, (a, b) in found.items():
            layer = wrapped.base_model.model.get_submodule(module)
            layer.lora_A["default"].weight.data.copy_(a)
            layer.lora_B["default"].weight.data.copy_(b)
        return trained(wrapped, models.batch_of(seed))


def main():
    if sys.argv[1:] == ["--peft"]:
        for case in CASES:
            ours, theirs = compute(*case)["losses"], by_peft(*case)
            print(f"{case[0]}: losses of PEFT differ by "
                  f"{max(abs(a - b) / b for a, b in zip(ours, theirs)):.1e} at most, relative", flush=True)
        return
    numbers = {"made_by": f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}",
               "dtype": "float64", "adamw": models.ADAMW, "cases": [compute(*case) for case in CASES]}
    with open(FILE, "w") as file:
        json.dump(numbers, file, indent=1)
        file.write("\n")
    for case in numbers["cases"]:
        print(f"{case['model']}: loss {case['losses'][0]:.6f} to {case['losses'][-1]:.6f}")


if __name__ == "__main__":
    main()
