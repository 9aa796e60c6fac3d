# SPDX-License-Identifier: Apache-2.0
"""Measured steps of rows.csv as decks and stack files of Ostrakon: what rows.py runs."""
import csv
import os

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = os.path.dirname(os.path.dirname(HERE))
TEXTS = {"id", "source", "group", "machine", "stack", "model", "sharding", "checkpointing",
         "precision", "tokens_s_gpu", "step_s"}
SHARDINGS = {"full": "full", "keep": "full", "optimizer": "optimizer", "none": "none"}
# Others keep the outputs of norms and activation functions, which Ostrakon by default does not.
KEPT = "keep norms activations"
CHECKPOINTING = {"none": KEPT, "core": KEPT, "op2": KEPT, "mlp": KEPT, "full": "full",
                 "half": "every 2", "third": "every 3"}
ACCUMULATED_BYTES = 12  # a sum of fp32 is read and written, an addend read


class Row(dict):
    """A line of rows.csv: numbers are integers; row.key is row["key"]."""

    __getattr__ = dict.__getitem__

    @property
    def data_ranks(self):
        """Ranks with sequences of their own, of each pipeline stage."""
        return self.gpus // (self.tensor * self.pipeline * self.context)

    @property
    def replicas(self):
        """Shard groups of a pipeline stage."""
        return self.data_ranks * self.context // self.shard_ranks

    @property
    def measured(self):
        """Seconds of a step, as published or by published tokens/s."""
        if self.step_s:
            return float(self.step_s)
        tokens = self.micro_batch * self.micro_batches * self.sequence * self.data_ranks
        return tokens / self.gpus / float(self.tokens_s_gpu)

    @property
    def dimensions(self):
        """FSDP, HSDP, ZeRO-1 or DDP, and those of TP, PP, CP and EP that the row has."""
        if is_full(self):
            names = ["HSDP" if self.replicas > 1 else "FSDP"]
        else:
            names = ["ZeRO-1" if self.sharding == "optimizer" else "DDP"]
        return names + [name for name, ranks in (("TP", self.tensor), ("PP", self.pipeline),
                                                 ("CP", self.context), ("EP", self.expert))
                        if ranks > 1]


def is_full(row):
    """Whether parameters are sharded."""
    return SHARDINGS[row.sharding] == "full"


def read_rows(path=os.path.join(HERE, "rows.csv")):
    """All rows of a file with comments, a heading and no quotes."""
    with open(path, encoding="utf-8") as file:
        lines = [line for line in file if not line.startswith("#")]
    return [Row((key, value if key in TEXTS else int(value)) for key, value in line.items())
            for line in csv.DictReader(lines)]


def path_of_machine(row):
    return os.path.join(SOURCES, "machines", row.machine + ".yaml")


def path_of_stack(name):
    return os.path.join(SOURCES, "machines", "stacks", name + ".yaml")


def units_of_chunks(row):
    """Units of each chunk as Megatron divides blocks: equally many, the last chunks less where they
    do not divide. Where they divide with two more, the first and the last chunk have one less."""
    chunks = row.pipeline * row.chunks
    blocks = [row.layers // chunks + (chunk < row.layers % chunks) for chunk in range(chunks)]
    if row.layers % chunks and (row.layers + 2) % chunks == 0:
        blocks = [(row.layers + 2) // chunks] * chunks
        blocks[0] -= 1
        blocks[-1] -= 1
    units_of_block = 2 if row.expert > row.tensor else 1  # experts over ranks are their own unit
    units = [count * units_of_block for count in blocks]
    units[0] += 1  # embedding
    units[-1] += 1  # head
    return " ".join(map(str, units))


def deck(row):
    """Sections of the row's deck, each a dictionary of keys."""
    model = {"norm": "rmsnorm" if row.gated else "layernorm",
             "positions": "rotary" if row.rotary else "learned",
             "activation": "swiglu" if row.gated else "gelu",
             "layers": row.layers, "width": row.width, "heads": row.heads,
             "kv_heads": row.kv_heads, "ffn_width": row.ffn_width, "vocabulary": row.vocabulary,
             "tie_embeddings": "true" if row.tied else "false"}
    if row.heads * row.head_width != row.width:
        model["head_width"] = row.head_width
    if row.experts:
        model.update(experts=row.experts, experts_per_token=row.experts_per_token,
                     expert_width=row.ffn_width)
    parallel = {"sharding": SHARDINGS[row.sharding], "rank_order": "tensor_first",
                "reduction": "library", "hierarchical_collectives": "never",
                "accumulation": "reduce_each" if is_full(row) else "reduce_last"}
    if row.sharding != "none":
        parallel["shard_group"] = row.tensor * row.shard_ranks
    if row.sharding == "keep":
        parallel["reshard_after_forward"] = "never"
    for key in ("tensor", "context", "expert"):
        if row[key] > 1:
            parallel[key] = row[key]
    if row.pipeline > 1:
        parallel.update(pipeline=row.pipeline, pipeline_units=units_of_chunks(row))
    if row.chunks > 1:
        parallel.update(schedule="interleaved", pipeline_chunks=row.chunks)
    precision = {"gather": "bf16", "reduce": "bf16" if row.reduce_bytes == 2 else "fp32"}
    if row.precision == "fp8":
        precision.update(products="fp8", fp8_layers="all")
    return {"model": model,
            "data": {"dataset": "synthetic"},
            "training": {"global_batch_size": row.micro_batch * row.micro_batches * row.data_ranks,
                         "micro_batch_size": row.micro_batch, "sum_grain": row.expert,
                         "sequence_length": row.sequence},
            "parallel": parallel,
            "precision": precision,
            "memory": {"activation_checkpointing": CHECKPOINTING[row.checkpointing]}}


def computed_again(row):
    """Keys of the stack for what backward computes again besides whole blocks: of torchtitan's op
    (every second product, and what has no product), Megatron's core (attention), MaxText's
    minimal (the MLP's first product, attention, and what has no product)."""
    heads = row.heads * row.head_width
    attention_inputs = row.width * (heads + 2 * row.kv_heads * row.head_width)
    mlp_inputs = row.width * row.ffn_width * (2 if row.gated else 1)
    products = attention_inputs + heads * row.width + mlp_inputs + row.ffn_width * row.width
    again = {"op2": heads * row.width + mlp_inputs / 2, "mlp": mlp_inputs}
    keys = {}
    if row.checkpointing in again:
        keys.update(again_products="%.6f" % (again[row.checkpointing] / products), again_rows=1)
    if row.checkpointing in ("core", "mlp"):
        keys["again_attention"] = 1
    return keys


def read_stack(name):
    """Keys and values of a shipped stack, as texts."""
    with open(path_of_stack(name), encoding="utf-8") as file:
        lines = [line.split("#")[0].rstrip() for line in file]
    pairs = [line.strip().split(": ", 1) for line in lines if line.startswith("    ")]
    return dict(pairs)


def own_keys(row, stack):
    """Keys by which the row's program differs from its stack as shipped."""
    keys = computed_again(row)
    wanted = {}
    if row.autocast:
        wanted["autocast"] = 1
    if row.reduce_bytes == 2 and row.replicas > 1:
        wanted["sum_bits"] = 16
    if row.micro_batches > 1:
        wanted["accumulate_traffic"] = round(row.accumulate_bytes / ACCUMULATED_BYTES, 4)
    if row.tensor > 1:
        wanted["whole_rows"] = 1 - row.sequence_parallel
    if row.blocking_launches and float(stack.get("launch_microseconds", 0)) == 0:
        raise ValueError("row %s: launches block, and stack %s has no launch_microseconds" %
                         (row.id, row.stack))
    defaults = {"accumulate_traffic": 1}
    for key, value in wanted.items():
        if float(stack.get(key, defaults.get(key, 0))) != value:
            keys[key] = value
    return keys


def text_of(sections):
    """Sections as YAML."""
    lines = ["# SPDX-License-Identifier: Apache-2.0", "ostrakon:"]
    for section, keys in sections.items():
        lines.append("  %s:" % section)
        lines += ["    %s: %s" % pair for pair in keys.items()]
    return "\n".join(lines) + "\n"


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def write_files(row, folder):
    """Writes the row's deck and, where it differs from its stack, a stack file; returns paths."""
    path = os.path.join(folder, row.id + ".yaml")
    write(path, "# %s, %d GPUs: %s\n" % (row.model, row.gpus, row.source) + text_of(deck(row)))
    stack = read_stack(row.stack)
    own = own_keys(row, stack)
    if not own:
        return path, path_of_stack(row.stack)
    stack.update(own)
    own_path = os.path.join(folder, row.id + "-stack.yaml")
    write(own_path, "# Stack %s, and what row %s has of its own: %s\n" %
          (row.stack, row.id, ", ".join(sorted(own))) + text_of({"stack": stack}))
    return path, own_path


def write_index(rows, folder):
    """Writes the files of all rows, and index.csv, a line for each: but for rows in fp8, whose rates
    are not fitted."""
    lines = ["id,group,machine,stack,deck,stack_file,ranks,ranks_per_node,seconds"]
    for row in rows:
        if row.precision == "fp8":
            continue
        lines.append(",".join([row.id, row.group, row.machine, row.stack,
                               *write_files(row, folder), str(row.gpus), str(node_of(row)),
                               "%.6g" % row.measured]))
    write(os.path.join(folder, "index.csv"), "\n".join(lines) + "\n")


def node_of(row):
    """Ranks of a node."""
    return min(row.gpus_per_node, row.gpus)


def words(row, program, paths, more=()):
    """The command that predicts the row."""
    deck_path, stack_path = paths
    return [program, deck_path, "--ranks", str(row.gpus), "--ranks-per-node",
            str(node_of(row)), "--time", path_of_machine(row), "--stack", stack_path, "--json",
            *more]
