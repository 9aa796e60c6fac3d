// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <ostrakon/config/key_kinds.hpp>
#include <ostrakon/config/key_sections.hpp>
#include <ostrakon/config/policy_text.hpp>
#include <ostrakon/config/rule_text.hpp>

namespace ostrakon::config {
namespace {

#define FIELD(member) \
  [](auto& settings) -> auto& { return settings.member; }

Key reshard() {
  Key key;
  key.name = "reshard_after_forward";
  key.meaning =
      "full only: what is kept of a unit's gathered parameters until its backward. always: "
      "nothing; "
      "default: nothing, but where they would be gathered again at once; never: all of them; N: "
      "one part in N on each rank";
  key.expected = expected_reshard();
  key.limits = "default | always | never | N";
  key.set = [](Settings& settings, const Value& value) {
    const auto read = read_reshard(value);
    if (read) settings.parallel.reshard_after_forward = *read;
    return read.has_value();
  };
  key.get = [](const Settings& settings) {
    return write_reshard(settings.parallel.reshard_after_forward);
  };
  return key;
}

Key gather_limit() {
  Key key;
  key.name = "in_flight_gathers";
  key.meaning =
      "full only: limit of parameters gathered and not yet released, as a number of units "
      "(such as 2) or bytes (such as 8 GiB)";
  key.expected = expected_gather_limit();
  key.limits = "unlimited | >= 1 | bytes";
  key.set = [](Settings& settings, const Value& value) {
    const auto read = read_gather_limit(value);
    if (read) settings.parallel.in_flight_gathers = *read;
    return read.has_value();
  };
  key.get = [](const Settings& settings) {
    return write_gather_limit(settings.parallel.in_flight_gathers);
  };
  return key;
}

Key loss_scale() {
  Key key;
  key.name = "loss_scale";
  key.meaning =
      "gather or reduce fp16 only: initial factor on the loss, so that small gradients do not "
      "vanish; halves on a step whose gradient overflows, which is skipped, and doubles again";
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
  Key key;
  key.name = "hierarchical_collectives";
  static_assert(plan::Hierarchical::default_bytes == 4 << 20);
  key.meaning =
      "where a group of ranks spans nodes, whether it gathers and reduces in two levels, inside "
      "the nodes and across them: a node then sends as much as one rank would. auto: where nodes "
      "have equally many ranks, a power of two in each group, and the largest unit's parameters "
      "have 4 MiB or more; or name these bytes. Changes no bit of the result";
  key.expected = expected_hierarchical();
  key.limits = "auto | never | always | BYTES such as 4 MiB";
  key.set = [](Settings& settings, const Value& value) {
    const auto read = read_hierarchical(value);
    if (read) settings.parallel.hierarchical = *read;
    return read.has_value();
  };
  key.get = [](const Settings& settings) {
    return write_hierarchical(settings.parallel.hierarchical);
  };
  return key;
}

Key activation_checkpointing() {
  Key key;
  key.name = "activation_checkpointing";
  key.meaning =
      "what is not kept from forward to backward but computed again. full: all of each block; "
      "every N: of every n-th unit of blocks; selective, followed by parts such as attention mlp: "
      "these, in all blocks. Changes no bit of the result";
  key.expected = expected_checkpointing();
  key.limits = "none | full | every N | selective attention norms mlp";
  key.set = [](Settings& settings, const Value& value) {
    const auto read = read_checkpointing(value);
    if (!read) return false;
    settings.parallel.activation_checkpointing = read->units;
    settings.recompute = read->within_blocks;
    return true;
  };
  key.get = [](const Settings& settings) {
    return write_checkpointing({settings.parallel.activation_checkpointing, settings.recompute});
  };
  return key;
}

}  // namespace

Section parallel_section() {
  return {
      "parallel",
      "how ranks share the work: the same result where ranks and leaves are powers of two. What "
      "to choose is in docs/strategies.md; keys marked `full only` change nothing with another "
      "sharding, unless memory.offload has parameters copied to the device for each use",
      {choice("sharding", FIELD(parallel.sharding), plan::sharding_names,
              "what is divided over a shard group: as DDP, ZeRO-1, -2, -3"),
       named_integer("shard_group", FIELD(shard_group),
                     {{"world", mesh::world_group}, {"node", mesh::node_group}}, 1, most_ranks,
                     "ranks that share one replica; further groups hold replicas"),
       choice(
           "shard_optimizer_over", FIELD(parallel.shard_optimizer_over),
           plan::optimizer_group_names,
           "ranks over which optimizer state is divided: a shard group, or all, which divides it "
           "over replicas too"),
       choice("accumulation", FIELD(parallel.accumulation), plan::accumulation_names,
              "when micro-batches' gradients are summed over ranks. reduce_each: each over all "
              "ranks; shard_each: each over the shard group, their sum over replicas; reduce_last: "
              "only their sum; auto: shard_each where gradients are sharded (or on the host, and "
              "optimizer state is), else reduce_last; with training.sum_grain what has the bits of "
              "one rank, if one of them has"),
       choice("leaf_order", FIELD(parallel.leaf_order), plan::leaf_order_names,
              "in which micro-batches are computed; shuffled takes more memory"),
       reshard(),
       integer("forward_prefetch", FIELD(parallel.forward_prefetch.depth), 0, most_units_ahead,
               "units whose gathers are issued ahead while one computes: parameters (full only), "
               "and inputs of updates"),
       integer("backward_prefetch", FIELD(parallel.backward_prefetch.depth), 0, most_units_ahead,
               "full only: the same in backward"),
       gather_limit(),
       integer("in_flight_reductions", FIELD(parallel.in_flight_reductions), 0, most_units_ahead,
               "units whose gradients are reduced while others compute; 0: compute waits"),
       rules(
           "units", FIELD(parallel.units), read_unit_rules, write_unit_rules,
           "full only: rules for units by name, in which * stands for any text; the last that "
           "matches applies. Each sets one or more of reshard_after_forward, forward_prefetch and "
           "backward_prefetch; a prefetch is a number or names of units. Such as \"block.*: "
           "reshard_after_forward never, backward_prefetch 2; block.0: forward_prefetch block.1 "
           "block.2\""),
       only("reduction", "ordered", "how gradients are summed"), hierarchical_collectives(),
       integer("ranks_per_node", FIELD(ranks_per_node), 0, most_ranks,
               "0: as found; ranks of one host")}};
}

Section precision_section() {
  std::vector<Named<std::optional<DType>>> automatic_or_dtypes = {{std::nullopt, "auto"}};
  for (const Named<DType>& dtype : dtype_names)
    automatic_or_dtypes.push_back({dtype.value, dtype.name});
  return {"precision",
          "dtypes",
          {only("parameters", "fp32", "dtype of master parameters"),
           choice("gather", FIELD(precision.gather), dtype_names,
                  "gather dtype: of gathered parameters, compute and activations"),
           choice("activations", FIELD(precision.activations), automatic_or_dtypes,
                  "auto: the gather dtype, the only choice"),
           choice("reduce", FIELD(parallel.reduce), dtype_names,
                  "dtype in which gradients are sent within a shard group; sums are fp32"),
           loss_scale()}};
}

Section memory_section() {
  return {
      "memory",
      "what saves memory: see docs/memory.md",
      {activation_checkpointing(),
       choice(
           "offload", FIELD(parallel.offload), plan::offload_names,
           "what is kept in host memory instead of device memory. optimizer: masters, moments and "
           "summed gradients, which the host updates; parameters: masters and compute copies, "
           "copied to the device for each use; all: both"),
       boolean("pinned", FIELD(pinned_host_memory),
               "host memory that a device copies from and to directly"),
       boolean(
           "early_updates", FIELD(early_updates),
           "with updates on the host and clip_norm 0, fp16 nowhere, and no step skipped: begin a "
           "unit's update overlapped with the backward of the units before it"),
       choice("activations", FIELD(parallel.offload_activations),
              std::vector<Named<bool>>{{false, "device"}, {true, "host"}},
              "memory space of what forward saves for backward, except for the last units, "
              "whose backward follows at once")}};
}

#undef FIELD

}  // namespace ostrakon::config
