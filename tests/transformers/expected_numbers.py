#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the numbers that the test `transformers` expects: small models, computed by transformers.

    tests/transformers/expected_numbers.py [NAME ...]

NAMEs are those of MODELS below, by default all; each is written to expected/NAME.json. It needs torch and
transformers (5 or later), which the test does not. README.md says what is in a file.

All is computed in float64. transformers computes norms, rotary positions, softmax and routers in float32
whatever the dtype of the weights is: meanwhile "float32" means float64 (see `in_float64`). Each model is also
computed in float32 as it is, and has to agree.
"""
import contextlib
import copy
import itertools
import json
import os
import re
import sys
import tempfile
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.filterwarnings("ignore")

import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file

transformers.utils.logging.disable_progress_bar()
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "expected")
SEQUENCES, LENGTH = 8, 24  # of the batch; a sequence has one token more, the last target
PROMPT, GREEDY = 8, 40
STEPS = 10
# Models that are also trained on sequences that are packed from documents of these lengths.
WITH_DOCUMENTS = {"llama-3.1", "mistral-window", "qwen3", "gemma2", "gpt2", "deepseek_v3"}
DOCUMENTS = [5, 1, 9, 2, 7]
ADAMW = {"learning_rate": 2e-3, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-5, "weight_decay": 0.1}
# The seed of a model is the first of SEEDS with which rounding matters little, for the next token and for the
# losses (float32 against float64, relative), and the model does not repeat a few tokens; or the one with the
# most different tokens, if there is none.
LEAST_GAP, MOST_ROUNDING, ENOUGH_TOKENS, SEEDS = 1e-3, 2e-7, 8, range(1, 31)

# ---- the models

VOCABULARY = 97
SIZES = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
EQUAL_HEADS = dict(SIZES, num_key_value_heads=4)
GPT = dict(vocab_size=VOCABULARY, n_embd=32, n_layer=3, n_head=4, n_positions=64)
NO_TOKENS = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)


def without(sizes, *keys):
    return {key: value for key, value in sizes.items() if key not in keys}


def rotary(theta=1e4, kind="default", **more):
    return {"rope_parameters": {"rope_theta": theta, "rope_type": kind, **more}}


def types(pattern):
    """layer_types of a pattern: f: full attention, s: attention with a window."""
    names = {"f": "full_attention", "s": "sliding_attention"}
    return {"layer_types": [names[kind] for kind in pattern], "num_hidden_layers": len(pattern)}


LLAMA3 = dict(kind="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
YARN = dict(kind="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=32.0, beta_slow=1.0)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
ROUTED = dict(n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=16, n_shared_experts=1,
              first_k_dense_replace=1, num_nextn_predict_layers=0)
DELTA_NET = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6,
                 linear_value_head_dim=8, linear_conv_kernel_dim=4,
                 layer_types=["linear_attention", "linear_attention", "full_attention"])
LATENT = dict(kv_lora_rank=24, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6)
NEOX = without(SIZES, "num_key_value_heads")
FALCON = dict(without(SIZES, "num_key_value_heads", "intermediate_size"), ffn_hidden_size=48, bias=False,
              alibi=False)

# Models that are also trained with targets that do not count.
OF_SOME_TARGETS = ("llama",)

# Name of the file: model_type of transformers, and its configuration.
MODELS = {
    # Llama and models that are built like it
    "llama": ("llama", EQUAL_HEADS, rotary(), {"rms_norm_eps": 1e-5}),
    "llama-3.1": ("llama", SIZES, rotary(5e5, **LLAMA3)),
    "llama-3.2": ("llama", SIZES, rotary(5e5, **dict(LLAMA3, factor=32.0)),
                  {"tie_word_embeddings": True, "head_dim": 12}),
    "llama-biases": ("llama", SIZES, rotary(), {"attention_bias": True, "mlp_bias": True}),
    "llama-linear": ("llama", SIZES, rotary(1e5, "linear", factor=4.0)),
    "llama-yarn": ("llama", SIZES, rotary(1e4, **YARN)),
    "mistral-window": ("mistral", SIZES, rotary(), {"sliding_window": 8}),
    "mistral-nemo": ("mistral", SIZES, rotary(1e6), {"sliding_window": None, "head_dim": 10}),
    "mixtral": ("mixtral", SIZES, rotary(1e6),
                {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}),
    "phi3": ("phi3", SIZES, rotary(), {"sliding_window": 12}),
    "phi4-mini": ("phi3", SIZES, {"tie_word_embeddings": True, "original_max_position_embeddings": 64},
                  {"max_position_embeddings": 128},
                  rotary(1e4, "longrope", factor=2.0, original_max_position_embeddings=64,
                         short_factor=[1.0, 1.125, 1.25], long_factor=[2.0, 2.5, 3.0],
                         partial_rotary_factor=0.75)),
    "granite": ("granite", SIZES, rotary(), {"embedding_multiplier": 12.0, "attention_multiplier": 0.25,
                                            "residual_multiplier": 0.22, "logits_scaling": 2.0}),
    "smollm3": ("smollm3", SIZES, rotary(5e6),
                {"num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0], "use_sliding_window": False}),
    "arcee": ("arcee", SIZES, rotary()),
    "seed_oss": ("seed_oss", SIZES, rotary(1e7),
                 {"head_dim": 12, "attention_bias": True, "attention_out_bias": False}),
    "hunyuan_v1_dense": ("hunyuan_v1_dense", SIZES, rotary(), {"head_dim": 12}),
    # Qwen
    "qwen2": ("qwen2", SIZES, rotary(1e6), {"use_sliding_window": False, "tie_word_embeddings": True}),
    "qwen2-window": ("qwen2", SIZES, rotary(1e6),
                     {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}),
    "qwen2_moe": ("qwen2_moe", SIZES, rotary(1e6), EXPERTS,
                  {"shared_expert_intermediate_size": 24, "norm_topk_prob": False}),
    "qwen3": ("qwen3", SIZES, rotary(1e6), {"head_dim": 12, "tie_word_embeddings": True}),
    "qwen3_moe": ("qwen3_moe", SIZES, rotary(1e6), EXPERTS, {"head_dim": 12, "norm_topk_prob": True}),
    "qwen3_next": ("qwen3_next", SIZES, rotary(1e6, partial_rotary_factor=0.25), EXPERTS, DELTA_NET,
                   {"head_dim": 16, "rms_norm_eps": 0.1,
                    "shared_expert_intermediate_size": 24}),
    "qwen3_5_text": ("qwen3_5_text", SIZES, rotary(1e6, partial_rotary_factor=0.25), DELTA_NET,
                     {"head_dim": 16, "rms_norm_eps": 0.1,
                      "tie_word_embeddings": True}),
    # Gemma
    "gemma": ("gemma", SIZES, rotary(), {"head_dim": 12}),
    "gemma2": ("gemma2", SIZES, rotary(), types("sfs"),
               {"head_dim": 12, "query_pre_attn_scalar": 16, "sliding_window": 8,
                "attn_logit_softcapping": 5.0, "final_logit_softcapping": 10.0}),
    "gemma3_text": ("gemma3_text", SIZES, types("ssf"),
                    {"head_dim": 12, "query_pre_attn_scalar": 16, "sliding_window": 8,
                     "rope_parameters": {
                         "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}),
    # OLMo and EXAONE
    "olmo": ("olmo", SIZES, rotary(), {"clip_qkv": 0.75}),
    "olmo2": ("olmo2", SIZES, rotary(5e5)),
    "olmo3": ("olmo3", SIZES, rotary(5e5), types("sssf"), {"sliding_window": 8}),
    "olmoe": ("olmoe", dict(SIZES, intermediate_size=16), rotary(),
              {"num_experts": 4, "num_experts_per_tok": 2}),
    "exaone4": ("exaone4", SIZES, rotary(), types("sssf"), {"sliding_window": 8}),
    # Cohere
    "cohere": ("cohere", SIZES, rotary(), {"logit_scale": 0.25}),
    "cohere-norms": ("cohere", SIZES, rotary(), {"logit_scale": 0.25, "use_qk_norm": True}),
    "cohere2": ("cohere2", SIZES, rotary(), types("sssf"), {"logit_scale": 0.25, "sliding_window": 8}),
    # GLM
    "glm": ("glm", SIZES, rotary(1e4, partial_rotary_factor=0.5), {"head_dim": 8, "attention_bias": True}),
    "glm4": ("glm4", SIZES, rotary(1e4, partial_rotary_factor=0.5), {"head_dim": 8, "attention_bias": True}),
    "glm4_moe": ("glm4_moe", SIZES, rotary(1e4, partial_rotary_factor=0.5), ROUTED,
                 {"head_dim": 8, "attention_bias": True, "use_qk_norm": True, "n_group": 1, "topk_group": 1,
                  "norm_topk_prob": True, "routed_scaling_factor": 1.5}),
    # DeepSeek
    "deepseek_v2": ("deepseek_v2", EQUAL_HEADS, rotary(), ROUTED, LATENT,
                    {"q_lora_rank": None, "topk_method": "group_limited_greedy", "n_group": 4,
                     "topk_group": 2, "routed_scaling_factor": 1.5}),
    "deepseek_v3": ("deepseek_v3", EQUAL_HEADS, ROUTED, LATENT,
                    rotary(1e4, **dict(YARN, mscale=1.0, mscale_all_dim=1.0)),
                    {"q_lora_rank": 16, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5,
                     "norm_topk_prob": True}),
    "kimi_k2": ("deepseek_v3", EQUAL_HEADS, ROUTED, LATENT,
                rotary(5e4, **dict(YARN, beta_fast=1.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0)),
                {"q_lora_rank": 16, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.827,
                 "norm_topk_prob": True}),
    # gpt-oss
    "gpt_oss": ("gpt_oss", dict(SIZES, intermediate_size=16), types("sf"),
                rotary(1.5e5, **dict(YARN, truncate=False)),
                {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8}),
    # GPT-NeoX and what is close to it
    "gpt_neox": ("gpt_neox", NEOX, rotary(1e4, partial_rotary_factor=0.25), {"use_parallel_residual": True}),
    "gpt_neox-serial": ("gpt_neox", NEOX, rotary(1e4, partial_rotary_factor=0.25),
                        {"use_parallel_residual": False}),
    "falcon-7b": ("falcon", FALCON, rotary(), {"multi_query": True, "parallel_attn": True,
                                               "new_decoder_architecture": False}),
    "falcon-11b": ("falcon", FALCON, rotary(), {"num_kv_heads": 2, "new_decoder_architecture": True,
                                                "num_ln_in_parallel_attn": 1}),
    "falcon-40b": ("falcon", FALCON, rotary(), {"num_kv_heads": 2, "new_decoder_architecture": True}),
    "phi": ("phi", EQUAL_HEADS, rotary(1e4, partial_rotary_factor=0.5)),
    "gptj": ("gptj", GPT, {"rotary_dim": 4}),
    "bloom": ("bloom", {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 3, "n_head": 4}),
    "mpt": ("mpt", {"vocab_size": VOCABULARY, "d_model": 32, "n_layers": 3, "n_heads": 4,
                    "expansion_ratio": 4, "max_seq_len": 64}),
    # GPT-2
    "gpt2": ("gpt2", GPT),
    "gpt_bigcode": ("gpt_bigcode", GPT, {"multi_query": True}),
    "starcoder2": ("starcoder2", SIZES, rotary(1e5), {"use_bias": True, "sliding_window": 12}),
    # others
    "stablelm": ("stablelm", SIZES, rotary(1e4, partial_rotary_factor=0.25), {"use_qkv_bias": True}),
    "stablelm-norms": ("stablelm", SIZES, rotary(1e4, partial_rotary_factor=0.25),
                       {"use_parallel_residual": True, "qk_layernorm": True}),
    "nemotron": ("nemotron", SIZES, rotary(1e4, partial_rotary_factor=0.5)),
    "ernie4_5": ("ernie4_5", SIZES, rotary(5e5), {"head_dim": 8, "use_bias": False}),
    "helium": ("helium", SIZES, rotary(1e5), {"head_dim": 8}),
    "nanochat": ("nanochat", SIZES, rotary(), {"final_logit_softcapping": 3.0}),
}
# Their norms multiply by 1 + weight, but weights begin with ones.
BEGIN_WITH_TWOS = {"nemotron"}


# Published under another model type than the one that transformers computes them by.
RENAMED = {"kimi_k2": "kimi_k2"}

def configuration(name):
    model_type, *parts = MODELS[name]
    keys = dict(NO_TOKENS)
    for part in parts:
        keys.update(part)
    return transformers.AutoConfig.for_model(model_type, **keys)


# ---- numbers by formula

def random_bits(seed, name, count):
    """24 bits for each of `count` elements of what has this name (FNV-1a, then SplitMix64)."""
    state = 14695981039346656037 ^ seed
    for byte in name.encode():
        state = (state ^ byte) * 1099511628211 % 2**64
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(state) + numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(
            0x9E3779B97F4A7C15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z = z ^ (z >> numpy.uint64(31))
    return (z >> numpy.uint64(40)).astype(numpy.int64)


def values_of(seed, name, shape, center):
    """fp32 numbers in [center - 3/8, center + 3/8): exact in float64, rounded once."""
    bits = random_bits(seed, name, int(numpy.prod(shape)))
    values = center + 0.375 * ((bits - 2**23) / 2**23)
    return torch.from_numpy(values.astype(numpy.float32).reshape(shape))


def batch_of(seed):
    tokens = random_bits(seed, "tokens", SEQUENCES * (LENGTH + 1)) % VOCABULARY
    return torch.from_numpy(tokens.reshape(SEQUENCES, LENGTH + 1))


# ---- models

@contextlib.contextmanager
def in_float64():
    """Meanwhile float32 is float64, wherever it is asked for by name."""
    names = ("float32", "float")
    kept = {name: getattr(torch, name) for name in names}
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        for name in names:
            setattr(torch, name, torch.float64)
        torch.Tensor.float = torch.Tensor.double
        yield
    finally:
        del torch.Tensor.float
        for name, dtype in kept.items():
            setattr(torch, name, dtype)
        torch.set_default_dtype(default)


def eager(config):
    """Plain matrix products and softmax, also of experts."""
    options = {"attn_implementation": "eager"}
    if any("expert" in key for key in config.to_dict()):
        options["experts_implementation"] = "eager"
    return options


def make(config):
    return transformers.AutoModelForCausalLM.from_config(config, **eager(config)).eval()


def logits_of(model, tokens, documents=None):
    """documents: their lengths; transformers knows them by positions that begin at 0 each."""
    positions = {}
    if documents:
        ids = torch.cat([torch.arange(length) for length in documents])
        positions["position_ids"] = ids.expand(len(tokens), -1)
    return model(tokens, use_cache=False, **positions).logits


def loss_of(model, batch, documents=None):
    logits = logits_of(model, batch[:, :-1], documents)
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def decays(name, parameter):
    """Weight decay is for matrices and embeddings alone."""
    return parameter.ndim > 1 and "norm" not in name and not name.endswith("bias")


def labels_of(batch):
    """Tokens of the batch, and -100 for those that are targets and do not count."""
    sequences, positions = torch.arange(SEQUENCES)[:, None], torch.arange(LENGTH)[None, :]
    labels = batch.clone()
    labels[:, 1:][(7919 * positions + 104729 * sequences) % 11 >= 5 * sequences % 12] = -100
    return labels


def add_gradients_of_some(model, batch):
    """Gradients of the mean over targets that count, two sequences after the other as transformers' own
    training accumulates them; returns that mean."""
    labels, mean = labels_of(batch), 0.0
    counted = (labels[:, 1:] != -100).sum()
    for first in range(0, SEQUENCES, 2):
        loss = model(batch[first:first + 2], labels=labels[first:first + 2], num_items_in_batch=counted,
                     use_cache=False).loss
        loss.backward()
        mean += loss.item()
    return mean


def add_gradients(model, batch):
    loss = loss_of(model, batch)
    loss.backward()
    return loss.item()


def add_gradients_in_documents(model, batch):
    loss = loss_of(model, batch, DOCUMENTS)
    loss.backward()
    return loss.item()


def train(model, batch, add=add_gradients):
    named = list(model.named_parameters())
    groups = [{"params": [p for n, p in named if decays(n, p) == decayed],
               "weight_decay": ADAMW["weight_decay"] if decayed else 0.0} for decayed in (True, False)]
    optimizer = torch.optim.AdamW(groups, lr=ADAMW["learning_rate"],
                                  betas=(ADAMW["beta1"], ADAMW["beta2"]), eps=ADAMW["epsilon"])
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        losses.append(add(model, batch))
        optimizer.step()
    return losses


@torch.no_grad()
def greedy(model, prompt):
    """The likeliest tokens, one after the other, and the smallest gap between the logits of the two
    likeliest."""
    tokens, least = prompt.tolist(), float("inf")
    for _ in range(GREEDY):
        best = logits_of(model, torch.tensor([tokens]))[0, -1].topk(2)
        least = min(least, float(best.values[0] - best.values[1]))
        tokens.append(int(best.indices[0]))
    return tokens[len(prompt):], least


# ---- files

def in_ranges(shapes):
    """Names whose numbers are ranges: {"layers.{0-2}.weight": shape}."""
    families = {}
    for name, shape in shapes.items():
        numbers = tuple(int(number) for number in re.findall(r"\.(\d+)(?=\.)", name))
        families.setdefault((re.sub(r"\.\d+(?=\.)", ".#", name), tuple(shape)), set()).add(numbers)
    found = {}

    def add(name, shape, tuples):
        axes = [sorted(set(axis)) for axis in zip(*tuples)]
        is_range = all(axis == list(range(axis[0], axis[-1] + 1)) for axis in axes)
        if not is_range or tuples != set(itertools.product(*axes)):
            for first in axes[0]:
                add(name, shape, {numbers for numbers in tuples if numbers[0] == first})
            return
        for axis in axes:
            text = str(axis[0]) if len(axis) == 1 else "{%d-%d}" % (axis[0], axis[-1])
            name = name.replace("#", text, 1)
        found[name] = list(shape)

    for (name, shape), tuples in families.items():
        add(name, shape, tuples)
    return found


def in_lines(key, value):
    """One key of a file, in lines of at most 110 characters."""
    line, lines = f'  "{key}":', []
    for word in json.dumps(value).split(" "):
        if len(line) + 1 + len(word) > 110:
            lines.append(line)
            line = "   "
        line += " " + word
    return "\n".join(lines + [line])


def write(name, numbers):
    text = "{\n" + ",\n".join(in_lines(*item) for item in numbers.items()) + "\n}\n"
    if json.loads(text) != numbers:
        raise ValueError(f"{name}: a text in its lines has blanks")
    with open(os.path.join(FOLDER, name + ".json"), "w") as file:
        file.write(text)


def load(folder):
    """The model of a folder, in float32 and in float64."""
    config = transformers.AutoConfig.from_pretrained(folder)
    plain, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True, **eager(config))
    if any(info.values()):
        raise ValueError(f"not as transformers saves it: {info}")
    with in_float64():
        model = make(config).double()
        model.load_state_dict(plain.state_dict())
        model.tie_weights()
    return plain.eval(), model


def compute(name, plain, model, seed):
    """What a file says of a model with a seed; none if rounding matters."""
    batch = batch_of(seed)
    in_documents = {}
    if name in WITH_DOCUMENTS:
        with in_float64():
            losses = train(copy.deepcopy(model), batch, add_gradients_in_documents)
        in_documents["documents"] = {"lengths": DOCUMENTS, "losses": [round(value, 9) for value in losses]}
    with in_float64():
        tokens, gap = greedy(model, batch[0, :PROMPT])
        if gap < LEAST_GAP:
            return None
        with torch.no_grad():
            log_probabilities = torch.log_softmax(logits_of(model, batch[:1, :-1])[0], -1)
        chosen = log_probabilities.gather(-1, batch[0, 1:, None])[:, 0]
        parameters = sum(parameter.numel() for parameter in model.parameters())
        of_some = copy.deepcopy(model) if name in OF_SOME_TARGETS else None
        losses = train(model, batch)
        some = train(of_some, batch, add_gradients_of_some) if of_some else []
    rounding = max(abs(a - b) / b for a, b in zip(train(plain, batch), losses))
    if rounding > MOST_ROUNDING:
        return None
    numbers = {
        "parameters": parameters,
        "batch": {"sequences": SEQUENCES, "tokens": LENGTH + 1},
        "log_probabilities": [round(value, 7) for value in chosen.tolist()],
        "greedy": {"prompt": PROMPT, "tokens": tokens},
        "adamw": ADAMW,
        "losses": [round(value, 9) for value in losses],
        "losses_in_float32_differ_by": float(f"{rounding:.1e}"),
        **in_documents,
    }
    if some:
        numbers["losses_of_some_targets"] = [round(value, 9) for value in some]
    return numbers


def expected(name):
    with tempfile.TemporaryDirectory() as folder:
        make(configuration(name)).float().save_pretrained(folder)
        with open(os.path.join(folder, "config.json")) as file:
            config = without(json.load(file), "transformers_version")
        config["model_type"] = RENAMED.get(name, config["model_type"])
        path = os.path.join(folder, "model.safetensors")
        made = load_file(path)
        # What begins with ones are weights of norms.
        ones = {key for key, tensor in made.items() if tensor.eq(1).all() and name not in BEGIN_WITH_TWOS}
        found = []  # (different tokens, seed, numbers)
        for seed in SEEDS:
            save_file({key: values_of(seed, key, tensor.shape, key in ones) for key, tensor in made.items()},
                      path, {"format": "pt"})
            numbers = compute(name, *load(folder), seed)
            if numbers:
                found.append((len(set(numbers["greedy"]["tokens"])), seed, numbers))
            if found and found[-1][0] >= ENOUGH_TOKENS:
                break
    if not found:
        raise ValueError(f"{name}: rounding matters with each of {SEEDS}")
    different, seed, numbers = max(found, key=lambda one: one[0])
    shapes = {key: list(tensor.shape) for key, tensor in sorted(made.items())}
    write(name, {
        "made_by": f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}",
        "dtype": "float64",
        "config": config,
        "seed": seed,
        "tensors_around_1": in_ranges({k: shape for k, shape in shapes.items() if k in ones}),
        "tensors_around_0": in_ranges({k: shape for k, shape in shapes.items() if k not in ones}),
        **numbers,
    })
    print(f"{name}: seed {seed}, loss {numbers['losses'][0]:.6f} to {numbers['losses'][-1]:.6f}, rounding "
          f"{numbers['losses_in_float32_differ_by']}, {different} different tokens", flush=True)


def main():
    unknown = [name for name in sys.argv[1:] if name not in MODELS]
    if unknown:
        sys.exit(f"no model is called {', '.join(unknown)}; expected some of {', '.join(MODELS)}")
    os.makedirs(FOLDER, exist_ok=True)
    for name in sys.argv[1:] or MODELS:
        expected(name)


if __name__ == "__main__":
    main()
