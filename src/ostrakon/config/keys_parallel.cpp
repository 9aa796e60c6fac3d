// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <ostrakon/base/print.hpp>
#include <ostrakon/config/key_kinds.hpp>
#include <ostrakon/config/keys.hpp>
#include <ostrakon/config/policy_text.hpp>

namespace ostrakon::config {
namespace {

#define FIELD(member) \
  [](auto& settings) -> auto& { return settings.member; }

Key reshard() {
  return converted(
      "reshard_after_forward", FIELD(parallel.reshard_after_forward), read_reshard, write_reshard,
      expected_reshard(), "default | always | never | end_of_step | N",
      "where parameters are gathered: what is kept of a unit's gathered parameters until its "
      "backward. always: nothing; never: all; end_of_step: all, also from one micro-batch to the "
      "next; N: each rank keeps 1/N; default: nothing, except where they would be gathered again "
      "at once; of units for which a stage of a pipeline has room, as end_of_step. always, never "
      "and N are True, False and N of reshard_after_forward in PyTorch's fully_shard");
}

Key pipeline_units() {
  Key key(
      "pipeline_units",
      "number of units of each chunk, from the embedding to the head: chunk k is of stage k modulo "
      "parallel.pipeline. auto: the busiest has as few floating-point operations as can be");
  key.expected = "auto, or numbers of units such as 5 4 4 3";
  key.limits = "auto | N N ...";
  key.set = [](Settings& settings, const Value& value) {
    std::vector<int>& units = settings.parallel.chunk_units;
    units.clear();
    if (value.kind == Value::Kind::text && value.text == "auto") return true;
    TextReader words(value.kind == Value::Kind::number ? format_number(value.number) : value.text);
    for (int count = 0; words >> count;) {
      if (count < 1 || count > most_units_ahead) return false;
      units.push_back(count);
    }
    return words.eof() && !units.empty();
  };
  key.get = [](const Settings& settings) {
    std::string words;
    for (int count : settings.parallel.chunk_units)
      words += (words.empty() ? "" : " ") + std::to_string(count);
    return Value::of(words.empty() ? std::string("auto") : words);
  };
  return key;
}

Key gather_limit() {
  return converted(
      "in_flight_gathers", FIELD(parallel.in_flight_gathers), read_gather_limit, write_gather_limit,
      expected_gather_limit(), "unlimited | >= 1 | bytes",
      "where parameters are gathered: limit of those gathered and not yet released, in units (such "
      "as 2) or bytes (such as 8 GiB)");
}

Key gather_dtype() {
  Key key(
      "gather",
      "gather dtype: that of gathered parameters, of the inputs of matrix products and of "
      "activations. fp8: bf16, but weights that multiply in 8 bits (products) are gathered in 8 "
      "bits: see docs/fp8.md");
  constexpr const char* fp8 = "fp8";
  std::vector<std::string> names;
  for (const Named<DType>& dtype : dtype_names) names.emplace_back(dtype.name);
  names.emplace_back(fp8);
  key.expected = join(names, ", ", " or ");
  key.limits = join(names, " | ", " | ");
  key.set = [=](Settings& settings, const Value& value) {
    const bool is_fp8 = value.kind == Value::Kind::text && value.text == fp8;
    const auto dtype = value.kind != Value::Kind::text ? std::nullopt
                       : is_fp8                        ? std::optional<DType>(DType::bf16)
                                                       : find_named(dtype_names, value.text);
    if (!dtype) return false;
    settings.precision.gather = *dtype;
    settings.precision.products.fp8_gather = is_fp8;
    return true;
  };
  key.get = [=](const Settings& settings) {
    const PrecisionSettings& precision = settings.precision;
    return Value::of(std::string(precision.products.fp8_gather ? fp8 : name(precision.gather)));
  };
  return key;
}

Key loss_scale() {
  Key key("loss_scale",
          "if gather or reduce is fp16: initial factor of the loss, so that small gradients do not "
          "vanish. Halves when a gradient overflows, and that step is skipped; doubles after 2000 "
          "steps without");
  constexpr double largest = 16777216.0;
  key.expected = text("a power of two from 1 to ", format_number(largest));
  key.limits = text("power of two, 1 to ", format_number(largest));
  key.set = [](Settings& settings, const Value& value) {
    int exponent = 0;
    if (value.kind != Value::Kind::number || !(value.number >= 1.0) || value.number > largest ||
        std::frexp(value.number, &exponent) != 0.5) {
      return false;
    }
    settings.precision.loss_scale.initial = value.number;
    return true;
  };
  key.get = [](const Settings& settings) {
    return Value::of(settings.precision.loss_scale.initial);
  };
  return key;
}

Key hierarchical_collectives() {
  static_assert(plan::Hierarchical::default_bytes == 4 << 20);
  return converted(
      "hierarchical_collectives", FIELD(parallel.hierarchical), read_hierarchical,
      write_hierarchical, expected_hierarchical(), "auto | never | always | BYTES such as 4 MiB",
      "whether groups of ranks that span nodes gather and reduce in two levels, inside nodes and "
      "across them; a node then sends as much as one rank would. auto: if nodes have equally many "
      "ranks, a power of two in each group, and the largest unit's gathered parameters have 4 MiB "
      "or more; BYTES: the same from this size on. The result stays bitwise equal");
}

Key activation_checkpointing() {
  Key key(
      "activation_checkpointing",
      "activations that are computed again in backward instead of being kept. full: those of all "
      "units of blocks, whose inputs alone are kept; every N: of every n-th such unit; selective "
      "PARTS: one or more of attention, norms and mlp, in each block; none: outputs of norms and "
      "of activation functions alone; keep PARTS: these are kept too, of one or both of norms and "
      "activations; auto: chosen before step 1, so that the least is computed again that fits the "
      "memory there is. On CPUs the result stays bitwise equal");
  key.expected = expected_checkpointing();
  key.limits = "none | full | every N | selective PARTS | keep PARTS | auto";
  key.set = [](Settings& settings, const Value& value) {
    const auto read = read_checkpointing(value);
    if (!read) return false;
    settings.parallel.activation_checkpointing = read->units;
    settings.recompute = read->within_blocks;
    settings.chooses_recompute = read->is_chosen;
    return true;
  };
  key.get = [](const Settings& settings) {
    return write_checkpointing({settings.parallel.activation_checkpointing, settings.recompute,
                                settings.chooses_recompute});
  };
  return key;
}

Key memory_limit() {
  return converted(
      "limit", FIELD(memory_limit), read_memory_limit, write_memory_limit, expected_memory_limit(),
      "auto | bytes",
      "the most memory that the arenas of a rank may take, of its device or, without one, of the "
      "host (such as 72 GiB): a plan that needs more is refused, and what is chosen for the memory "
      "there is fits it. auto: what is free when the run starts");
}

}  // namespace

Section parallel_section() {
  return {
      "parallel",
      "how ranks share the work. docs/strategies.md says what to choose, and under which condition "
      "the result is bitwise equal to 1 rank. Parameters are gathered with sharding full, and "
      "with memory.offload parameters or all; otherwise the keys marked `where parameters are "
      "gathered` change nothing",
      {path("choose", FIELD(choose), true,
            "a machine file, such as machines/h100-infiniband.yaml: before step 1 the settings of "
            "this section and of memory, and what else changes no bit of the result, are chosen "
            "for which a step is fastest on that machine by simulation; keys that the deck or "
            "--set gives are kept. docs/choosing.md. Empty: none are chosen"),
       choice("sharding", FIELD(parallel.sharding), plan::sharding_names,
              "what is sharded over the ranks of a shard group: nothing (DDP), optimizer state "
              "(ZeRO-1), also gradients (ZeRO-2), also parameters (ZeRO-3, FSDP)"),
       named_integer("shard_group", FIELD(shard_group),
                     {{"world", mesh::world_group}, {"node", mesh::node_group}}, 1, most_ranks,
                     "ranks over which state is sharded: all, those of a node, or a number of "
                     "consecutive ranks, those of parallel.tensor included; further groups hold "
                     "replicas"),
       integer("context", FIELD(context), 1, most_ranks,
               "number of neighbouring ranks of a shard group that share each sequence, for "
               "sequences that do not fit on one: each has a piece from its head and one from its "
               "tail, and all gather keys and values in every block"),
       integer("pipeline", FIELD(pipeline), 1, most_ranks,
               "number of pipeline stages. Each has some of the units, and an equal run of "
               "neighbouring ranks, within which all other keys apply; stages send each other "
               "activations and their gradients"),
       choice(
           "schedule", FIELD(parallel.schedule), plan::schedule_kind_names,
           "in which order stages of parallel.pipeline compute. 1f1b: one forward, one backward; "
           "interleaved: the same, with several chunks of units a stage, so that stages wait "
           "less for each other and send more; zero_bubble: 1f1b, with gradients of the blocks' "
           "parameters computed where a stage would wait"),
       choice(
           "zero_bubble_memory", FIELD(parallel.zero_bubble_memory), plan::zero_bubble_memory_names,
           "what zero_bubble may keep for gradients that it computes later. as_1f1b: no arena on "
           "the device is larger than the largest with 1f1b; unlimited: what the schedule asks "
           "for, so that stages wait least"),
       integer("pipeline_chunks", FIELD(parallel.chunks), 1, most_ranks,
               "number of chunks of each stage: more than 1 for interleaved alone, where a rank's "
               "number "
               "of micro-batches must be a multiple of the stages, or no more than these"),
       pipeline_units(),
       integer(
           "expert", FIELD(expert), 1, most_ranks,
           "number of neighbouring ranks of a shard group that share the experts of each block "
           "(expert parallel): each has an equal part of these, to which all send their tokens; a "
           "power of two that divides model.experts, and a multiple of parallel.tensor"),
       number(
           "expert_capacity", FIELD(expert_capacity), positive,
           "room for the tokens that a rank of parallel.expert sends to each of them at a time, "
           "relative to an even division: as many as parallel.expert, or more, are room for all; "
           "what exceeds it goes in further rounds, so that no token is dropped and no bit "
           "changes"),
       integer("tensor", FIELD(tensor), 1, most_ranks,
               "number of neighbouring ranks of a shard group that compute each micro-batch "
               "together: each has an equal part of the heads, MLP columns and vocabulary, and "
               "between them of the rows (tensor and sequence parallel)"),
       integer("tensor_chunks", FIELD(tensor_chunks), 1, most_ranks,
               "in how many chunks ranks of parallel.tensor (more than 1) exchange their rows in "
               "forward of a block, each overlapped with products of other chunks; divides the "
               "tokens of a micro-batch that each has, and changes no bit in fp32"),
       choice("rank_order", FIELD(parallel.rank_order), plan::rank_order_names,
              "which ranks are neighbours: tensor_in_node: those of parallel.tensor, on one node, "
              "then those of a shard group, then replicas; tensor_first: the same, also across "
              "nodes; shard_first: those of a shard group before those of parallel.tensor"),
       choice("shard_optimizer_over", FIELD(parallel.shard_optimizer_over),
              plan::optimizer_group_names,
              "ranks over which optimizer state is sharded, if it is: those of a shard group, or "
              "all, replicas included"),
       choice(
           "accumulation", FIELD(parallel.accumulation), plan::accumulation_names,
           "when gradients of several micro-batches are reduced over ranks. reduce_last: "
           "accumulated first, and reduced once; shard_each: each over the shard group, and "
           "their sum once over replicas; reduce_each: each over all ranks; auto: shard_each if "
           "gradients are sharded (or optimizer state is, and updates are on the host), or where "
           "ranks share sequences or experts and sums have one order (reduction: ordered, "
           "without rounding), else reduce_last; with training.sum_grain the first of these, "
           "shard_each and reduce_each whose sums are bitwise equal to 1 rank"),
       choice(
           "leaf_order", FIELD(parallel.leaf_order), plan::leaf_order_names,
           "order in which a rank computes its micro-batches. ascending for training; the others "
           "are for tests of the sums, and shuffled takes more memory"),
       reshard(),
       integer("forward_prefetch", FIELD(parallel.forward_prefetch.depth), 0, most_units_ahead,
               "number of units whose gathers are issued ahead while a unit computes forward; the "
               "same for what updates gather"),
       integer(
           "backward_prefetch", FIELD(parallel.backward_prefetch.depth), 0, most_units_ahead,
           "where parameters are gathered: as forward_prefetch, while a unit computes backward"),
       gather_limit(),
       integer("in_flight_reductions", FIELD(parallel.in_flight_reductions), 0, most_units_ahead,
               "number of units whose gradients are reduced while the next ones compute; 0: "
               "compute waits for each reduction"),
       rules("units", FIELD(parallel.units), read_unit_rules, write_unit_rules,
             "where parameters are gathered: rules for units by name, in which * stands for any "
             "text. If several rules set the same for a unit, the last applies. A rule sets one or "
             "more of reshard_after_forward, forward_prefetch and backward_prefetch; a prefetch is "
             "a number or names of units. Example: \"block.*: reshard_after_forward never, "
             "backward_prefetch 2; block.0: forward_prefetch block.1 block.2\""),
       choice(
           "updates", FIELD(parallel.updates), plan::updates_names,
           "when units are updated. careful: when the norm of the whole gradient is known; "
           "optimistic: as soon as a rank's own gradients are, as if nothing had to be clipped or "
           "skipped; where it had, that is undone and repeated with the same bits, for which "
           "masters and moments are kept meanwhile. Not with memory.offload"),
       choice("reduction", FIELD(parallel.summation), plan::summation_names,
              "how gradients are summed over ranks. ordered: an all-to-all and a sum in a fixed "
              "order; library: the reduce-scatter of NCCL or MPI, which needs one buffer less, and "
              "whose sums depend on the library and the number of ranks, and are in "
              "precision.reduce"),
       hierarchical_collectives(),
       choice("node_windows", FIELD(parallel.node_windows), plan::node_windows_names,
              "whether ranks of a node read what they gather and reduce from each other's memory, "
              "instead of sending it by MPI, which is faster, and reductions need one buffer less. "
              "auto: where the system allows it; always: else the run is refused. Not on devices. "
              "It changes no bit"),
       integer("ranks_per_node", FIELD(ranks_per_node), 0, most_ranks,
               "treat this number of consecutive ranks of a host as a node, for shard_group and "
               "hierarchical_collectives; 0: the ranks that share memory")}};
}

Section precision_section() {
  std::vector<Named<std::optional<DType>>> automatic_or_dtypes = {{std::nullopt, "auto"}};
  for (const Named<DType>& dtype : dtype_names)
    automatic_or_dtypes.push_back({dtype.value, dtype.name});
  return {
      "precision",
      "dtypes of parameters, compute and messages; sums are always fp32",
      {only("parameters", "fp32",
            "dtype of master parameters, which updates apply to: in 16 bits small updates would be "
            "lost"),
       gather_dtype(),
       choice("frozen", FIELD(parallel.frozen_without_masters),
              std::vector<Named<bool>>{{false, "fp32"}, {true, "gather"}},
              "dtype in which frozen parameters are kept. fp32: as masters, like trained ones; "
              "gather: in the gather dtype alone, in which they are computed with"),
       choice("activations", FIELD(precision.activations), automatic_or_dtypes,
              "dtype of activations; must be the gather dtype, as kernels have one dtype for both"),
       choice("products", FIELD(precision.products.dtype), math::product_dtype_names,
              "dtype in which linear layers of blocks multiply. auto: the gather dtype; fp8: "
              "operands are scaled and rounded to 8 bits before each product; mxfp8: in blocks of "
              "32 numbers: see docs/fp8.md"),
       layer_pattern_or_auto("fp8_layers", FIELD(precision.products.fp8_layers),
                             "with products in 8 bits, the blocks that multiply so; auto: all but "
                             "the first and the last"),
       choice("fp8_gradients", FIELD(precision.products.fp8_gradients), math::fp8_format_names,
              "with products in 8 bits, the format of gradients; activations and weights are e4m3"),
       choice(
           "reduce", FIELD(parallel.reduce), dtype_names,
           "dtype in which gradients are sent within a shard group; between replicas it is fp32"),
       loss_scale()}};
}

Section memory_section() {
  return {
      "memory",
      "how to use less device memory: see docs/memory.md",
      {activation_checkpointing(), memory_limit(),
       choice(
           "offload", FIELD(parallel.offload), plan::offload_names,
           "state kept in host memory instead of device memory. optimizer: master parameters, "
           "moments and summed gradients, and updates run on the host; parameters: master "
           "parameters and compute copies, which are copied to the device for each use; all: both"),
       boolean("pinned", FIELD(pinned_host_memory),
               "allocate page-locked host memory, from and to which a device copies directly"),
       boolean("early_updates", FIELD(early_updates),
               "with updates on the host: begin a unit's update while earlier units compute "
               "backward. Applies if clip_norm is 0, no dtype is fp16, and neither on_non_finite: "
               "skip nor skip_outliers is set"),
       choice("activations", FIELD(parallel.offload_activations),
              std::vector<Named<bool>>{{false, "device"}, {true, "host"}},
              "memory that holds activations between forward and backward; those of the last "
              "units, whose backward follows at once, stay on the device")}};
}

#undef FIELD

}  // namespace ostrakon::config
