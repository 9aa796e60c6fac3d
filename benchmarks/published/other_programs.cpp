// SPDX-License-Identifier: Apache-2.0
#include "other_programs.hpp"

#include <algorithm>
#include <map>
#include <ostrakon/trainer/make_trainer.hpp>
#include <utility>

namespace ostrakon::published {

using plan::ExchangeKind;
using plan::KernelWork;
using plan::Phase;

Program program_of(const std::string& stack) {
  Program program;
  if (stack == "llm-foundry" || stack == "eager" || stack == "compiled" ||
      stack == "compiled-async") {
    program.stops_early = true;  // PyTorch's non-reentrant checkpointing
  } else if (stack == "megatron-deepspeed" || stack == "megatron-lm") {
    program.fused_attention = program.overlaps_reductions = false;
    program.blocking_sends = program.has_dropout = true;
  } else if (stack == "internevo") {
    program.calls_of_block = 9;  // a broadcast by each rank that owns tensors
  } else {
    program.hides_updates = true;
  }
  return program;
}

namespace {

Phase merge(const plan::Phases& phases) {
  Phase merged;
  for (const Phase& phase : phases) {
    merged.flops += phase.flops;
    merged.work += phase.work;
    merged.workspace_bytes = std::max(merged.workspace_bytes, phase.workspace_bytes);
  }
  merged.recompute_flops = merged.recompute_work.products = 0.0;
  for (const int p : plan::recomputed_phases(phases)) {
    merged.recompute_flops += phases[static_cast<std::size_t>(p)].recompute_flops;
    merged.recompute_work += phases[static_cast<std::size_t>(p)].recompute_work;
  }
  return merged;
}

/// The model of a row, its units as the row's program computes them.
class Describer {
 public:
  explicit Describer(const PublishedRow& row) : row_(row), program_(program_of(row.stack)) {
    config::Settings settings;
    settings.model.norm = row.gated ? math::NormKind::rmsnorm : math::NormKind::layernorm;
    settings.model.positions = row.rotary ? model::Positions::rotary : model::Positions::learned;
    settings.model.activation = row.gated ? model::Activation::swiglu : model::Activation::gelu;
    settings.model.layers = row.layers;
    settings.model.width = row.width;
    settings.model.heads = row.heads;
    settings.model.kv_heads = row.kv_heads;
    settings.model.head_dim = row.head_width * row.heads == row.width ? 0 : row.head_width;
    settings.model.ffn_width = row.ffn_width;
    settings.model.vocabulary = row.vocabulary;
    settings.model.tie_embeddings = row.tied;
    if (row.experts > 0) {
      settings.model.experts.count = row.experts;
      settings.model.experts.per_token = row.experts_per_token;
      settings.model.experts.width = row.ffn_width;
    }
    settings.training.micro_batch_size = row.micro_batch;
    settings.training.sequence_length = row.sequence;
    settings.context = row.context;
    settings.tensor = row.tensor;
    settings.expert = row.expert;
    settings.precision.gather = DType::bf16;
    const auto model = train::make_decoder(settings);
    model_.description = train::describe(*model, settings.optimizer);
    model_.extras.resize(model_.description.units.size());
    for (std::size_t u = 0; u < model_.description.units.size(); ++u) change(u);
  }

  /// Phases of units and exchanges between them in one.
  void merge_phases() {
    for (std::size_t u = 0; u < model_.description.units.size(); ++u) {
      plan::UnitDescription& unit = model_.description.units[u];
      const auto exchanges = [&](const plan::Phases& phases, const std::vector<int>& of) {
        std::vector<plan::Exchange> all;
        for (const int p : of)
          if (const auto& then = phases[static_cast<std::size_t>(p)].then;
              then && plan::first_reader(phases, p, of) >= 0)
            all.push_back(*then);
        return all;
      };
      model_.extras[u][forward_pass].exchanges =
          exchanges(unit.forward, plan::all_of(unit.forward));
      model_.extras[u][recompute_pass].exchanges =
          exchanges(unit.forward, plan::recomputed_phases(unit.forward));
      model_.extras[u][backward_pass].exchanges =
          exchanges(unit.backward, plan::all_of(unit.backward));
      unit.forward = {merge(unit.forward)};
      unit.backward = {merge(unit.backward)};
    }
  }

  TheirModel model() && { return std::move(model_); }

 private:
  bool is_block(const plan::UnitDescription& unit) const {
    return unit.name.rfind("block", 0) == 0 && unit.name.find("expert") == std::string::npos;
  }
  bool is_experts(const plan::UnitDescription& unit) const {
    return unit.expert_ranks > 1 || unit.name.find("expert") != std::string::npos;
  }
  double rows() const {
    return static_cast<double>(row_.micro_batch * row_.sequence / row_.context);
  }

  void change(std::size_t u) {
    plan::UnitDescription& unit = model_.description.units[u];
    for (plan::Phases* phases : {&unit.forward, &unit.backward})
      for (Phase& phase : *phases) {
        if (phase.then) change(*phase.then, phases == &unit.backward);
        if (!program_.fused_attention) attend_in_memory(phase, phases == &unit.backward);
      }
    // Not every row of ours has as many ranks as experts need: `recomputes` stays.
    if (!program_.stops_early)
      for (Phase& phase : unit.forward) {
        phase.recompute_flops = phase.flops;
        phase.recompute_work = phase.work;
        phase.recomputes = true;
      }
    if (is_block(unit)) change_block(u);
    if (is_experts(unit)) {
      // Rows are permuted, and moved between buffers, on both sides of the exchanges: that instead
      // of our copies. SwiGLU reads and writes 3 elements for each of its own, in 2 bytes, and in
      // backward 3 again and 4.5.
      const double bytes = 2.0 * rows() * row_.experts_per_token * static_cast<double>(row_.width);
      for (auto* phases : {&unit.forward, &unit.backward})
        for (Phase& phase : *phases) {
          const bool is_backward = phases == &unit.backward;
          const double moved = &phase == &largest(*phases) ? (is_backward ? 16.0 : 8.0) : 0.0;
          phase.work.row_bytes = (is_backward ? 7.5 : 6.0) * phase.work.activations + moved * bytes;
          // An activation, and its derivative, for each expert, which has 2 and 5 products.
          phase.work.row_kernels = (is_backward ? 0.4 : 0.5) * phase.work.products + moved;
        }
    }
    // Our head of tensor ranks computes logits twice in backward, to keep none.
    if (row_.tensor > 1 && u + 1 == model_.description.units.size()) {
      Phase& last = largest(unit.backward);
      const double more = plan::flops(unit.forward);
      last.work.products_by_width *= (last.flops - more) / last.flops;
      last.flops -= more;
      last.work.products -= 1.0;
    }
  }

  /// Sums are sent in 16 bits; what backward gathers a second time of its inputs is hidden behind
  /// products, or was never divided.
  void change(plan::Exchange& exchange, bool is_backward) const {
    if (exchange.span.axis == plan::Axis::tensor) {
      exchange.element_bytes = std::min<std::int64_t>(exchange.element_bytes, 2);
      const bool again = is_backward && exchange.kind == ExchangeKind::gather;
      if (again && exchange.elements % (2 * exchange.span.ranks) == 0) exchange.elements /= 2;
    }
  }

  void attend_in_memory(Phase& phase, bool is_backward) const {
    KernelWork& work = phase.work;
    if (!(work.attention_flops > 0.0)) return;
    // Ours are of the causal half, and backward's five products have queries times keys again.
    const double products = 2.0 * work.attention_flops * (is_backward ? 0.8 : 1.0);
    phase.flops += products - work.attention_flops;
    if (phase.recompute_flops > 0.0) phase.recompute_flops = phase.flops;
    const auto narrow = static_cast<double>(std::min(row_.head_width, row_.sequence));
    work.products_by_width += products / narrow;
    work.products += is_backward ? 4.0 : 2.0;
    work.attention_flops = work.attention_by_width = 0.0;
    const double scores = 2.0 * static_cast<double>(row_.micro_batch * row_.heads) / row_.tensor *
                          static_cast<double>(row_.sequence * row_.sequence);
    const double passes = 2.0 + (program_.has_dropout ? 2.5 : 0.0);
    work += plan::row_work(scores * passes * (is_backward ? 1.5 : 1.0), 4.0);
    phase.recompute_work = work;
  }

  static Phase& largest(plan::Phases& phases) {
    return *std::max_element(phases.begin(), phases.end(),
                             [](const Phase& a, const Phase& b) { return a.flops < b.flops; });
  }

  void change_block(std::size_t u) {
    plan::UnitDescription& unit = model_.description.units[u];
    const auto width = static_cast<double>(row_.width);
    // Rows that all tensor ranks compute, where only some of ours would.
    double more = 0.0;
    if (!row_.sequence_parallel && row_.tensor > 1) more += 10.0 * (1.0 - 1.0 / row_.tensor);
    if (program_.has_dropout) more += 1.0;
    const KernelWork added = plan::row_work(2.0 * rows() * width * more, more > 0.0 ? 2.0 : 0.0);
    Phase& forward = largest(unit.forward);
    forward.work += added;
    if (forward.recompute_flops > 0.0) forward.recompute_work += added;
    Phase& backward = largest(unit.backward);
    backward.work += 2.0 * added;
    if (row_.autocast) {
      const double cast = 6.0 * static_cast<double>(unit.parameter_elements);
      model_.extras[u][forward_pass].plain_bytes = model_.extras[u][recompute_pass].plain_bytes =
          cast;
      model_.extras[u][backward_pass].plain_bytes = 2.0 * cast;
    }
    recompute_some(unit, backward);
  }

  /// What a program computes again besides whole blocks.
  void recompute_some(const plan::UnitDescription& unit, Phase& backward) const {
    KernelWork all;
    double attention = 0.0;
    for (const Phase& phase : unit.forward) {
      all += phase.work;
      attention += phase.work.attention_flops;
    }
    const auto add_product = [&](std::int64_t inputs, std::int64_t outputs, double times) {
      const double flops = 2.0 * rows() * static_cast<double>(inputs * outputs);
      backward.flops += times * flops;
      backward.work += times * plan::product_work(flops, inputs, outputs);
    };
    const std::int64_t inner = row_.ffn_width * (row_.gated ? 2 : 1) / row_.tensor;
    if (row_.checkpointing == "core" || row_.checkpointing == "mlp") {
      backward.flops += attention;
      backward.work += plan::attention_work(attention, row_.head_width);
    }
    if (row_.checkpointing == "op2" || row_.checkpointing == "mlp")
      backward.work += plan::row_work(all.row_bytes, all.row_kernels);
    if (row_.checkpointing == "op2") {
      add_product(row_.heads * row_.head_width / row_.tensor, row_.width, 1.0);
      add_product(row_.width, inner, 0.5);
    }
    if (row_.checkpointing == "mlp") add_product(row_.width, inner, 1.0);
  }

  PublishedRow row_;
  Program program_;
  TheirModel model_;
};

/// Blocks of stages as Megatron divides them: equally many, the last stages less where they don't
/// divide. Where they divide with two more, the first and the last stage have one less each.
std::vector<int> units_of_chunks(const PublishedRow& row, const plan::ModelDescription& model) {
  const int chunks = row.pipeline * row.chunks;
  const auto layers = static_cast<int>(row.layers);
  const int all = static_cast<int>(model.units.size());
  const int of_block = (all - 2) / layers;  // a mixture of experts is a unit of its own
  std::vector<int> blocks(static_cast<std::size_t>(chunks), layers / chunks);
  if (layers % chunks != 0) {
    if ((layers + 2) % chunks == 0) {
      blocks.assign(blocks.size(), (layers + 2) / chunks);
      --blocks.front();
      --blocks.back();
    } else {
      for (int c = 0; c < layers % chunks; ++c) ++blocks[static_cast<std::size_t>(c)];
    }
  }
  for (int& count : blocks) count *= of_block;
  ++blocks.front();
  ++blocks.back();
  return blocks;
}

}  // namespace

TheirModel describe_model(const PublishedRow& row, bool merges_phases) {
  Describer describer(row);
  if (merges_phases) describer.merge_phases();
  return std::move(describer).model();
}

plan::Policy policy_of(const PublishedRow& row, int micro_batches,
                       const plan::ModelDescription& model) {
  plan::Policy policy;
  policy.sharding = row.sharding == "none"        ? plan::Sharding::none
                    : row.sharding == "optimizer" ? plan::Sharding::optimizer
                                                  : plan::Sharding::full;
  if (row.sharding == "keep") policy.reshard_after_forward.kind = plan::Reshard::never;
  const int of_stage = row.ranks / row.pipeline;
  policy.shard_group = row.sharding == "none" ? of_stage : row.tensor * row.shard_ranks;
  policy.rank_order = plan::RankOrder::tensor_first;
  policy.tensor_ranks = row.tensor;
  policy.stages = row.pipeline;
  if (row.chunks > 1) policy.schedule = plan::ScheduleKind::interleaved;
  policy.chunks = row.chunks;
  // Gradients of a context's ranks are summed with those of all others, once; so the plan sees
  // them as ranks with samples of their own.
  policy.context_ranks = 1;
  policy.expert_ranks = row.expert > 1 ? row.expert / row.tensor : 1;
  policy.leaves = std::int64_t{micro_batches} * row.data_ranks() * row.context;
  policy.sum_grain = policy.expert_ranks;
  policy.accumulation = policy.sharding == plan::Sharding::full ? plan::Accumulation::reduce_each
                        : policy.expert_ranks > 1               ? plan::Accumulation::shard_each
                                                                : plan::Accumulation::reduce_last;
  policy.summation = plan::Summation::library;
  policy.hierarchical.kind = plan::Hierarchical::never;
  policy.reduce = row.reduce_bytes == 2 ? DType::bf16 : DType::fp32;
  policy.ranks_per_node = row.ranks_per_node;
  const std::map<std::string, int> every = {{"full", 1}, {"half", 2}, {"third", 3}};
  if (const auto found = every.find(row.checkpointing); found != every.end())
    policy.activation_checkpointing.every = found->second;
  if (!program_of(row.stack).overlaps_reductions)
    policy.in_flight_reductions = static_cast<int>(model.units.size());
  if (row.pipeline > 1) policy.chunk_units = units_of_chunks(row, model);
  return policy;
}

}  // namespace ostrakon::published
