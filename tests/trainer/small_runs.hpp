// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <ostrakon/base/error.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/data/dataset.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/trainer/make_trainer.hpp>
#include <string>
#include <thread>
#include <vector>

#include "plan/traffic.hpp"
#include "support/messages.hpp"
#include "trainer/in_documents.hpp"
#include "trainer/some_targets.hpp"

namespace ostrakon::tests {

/// Streams that overlap: on threads of their own, or streams of the device.
constexpr config::StreamsChoice on_threads =
    has_device ? config::StreamsChoice::automatic : config::StreamsChoice::threads;

constexpr plan::Sharding all_shardings[] = {plan::Sharding::none, plan::Sharding::optimizer,
                                            plan::Sharding::gradients, plan::Sharding::full};

/// Sizes of shard groups: all ranks, and every smaller number that divides them.
inline std::vector<int> groups_of(int ranks) {
  std::vector<int> groups = {mesh::world_group};
  for (int group = 1; group < ranks; ++group)
    if (ranks % group == 0) groups.push_back(group);
  return groups;
}
inline int world_ranks() {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return ranks;
}
inline std::vector<int> groups_of_world() { return groups_of(world_ranks()); }

/// The first `ranks` ranks of the world; MPI_COMM_NULL on the others. Freed with the object.
class FirstRanks {
 public:
  explicit FirstRanks(int ranks) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank < ranks ? 0 : MPI_UNDEFINED, rank, &comm_);
  }
  ~FirstRanks() {
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  }
  FirstRanks(const FirstRanks&) = delete;
  FirstRanks& operator=(const FirstRanks&) = delete;
  MPI_Comm comm() const { return comm_; }
  bool has_me() const { return comm_ != MPI_COMM_NULL; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// The ranks of the world in groups of `ranks`, which divides their number: each runs for itself.
class WorldGroup {
 public:
  explicit WorldGroup(int ranks) : ranks_(ranks) {
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank_);
    MPI_Comm_split(MPI_COMM_WORLD, index(), world_rank_, &comm_);
  }
  ~WorldGroup() { MPI_Comm_free(&comm_); }
  WorldGroup(const WorldGroup&) = delete;
  WorldGroup& operator=(const WorldGroup&) = delete;
  MPI_Comm comm() const { return comm_; }
  int groups() const { return world_ranks() / ranks_; }
  int index() const { return world_rank_ / ranks_; }
  int rank() const { return world_rank_ % ranks_; }

 private:
  int ranks_ = 1, world_rank_ = 0;
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// A GPT-2 of odd sizes on the synthetic data set.
inline config::Settings small_gpt2(std::int64_t leaves) {
  config::Settings settings;
  model::DecoderSettings& model = settings.model;
  model.norm = math::NormKind::layernorm;
  model.positions = model::Positions::learned;
  model.activation = model::Activation::gelu;
  model.layers = 2;
  model.width = 36;
  model.heads = 3;
  model.kv_heads = 3;
  model.ffn_width = 100;
  model.vocabulary = 61;
  model.bias = true;
  model.tie_embeddings = true;
  settings.data.dataset = data::DatasetKind::synthetic;
  settings.training.sequence_length = 24;
  settings.training.micro_batch_size = 2;
  settings.training.global_batch_size = 2 * leaves;
  settings.training.steps = 20;
  settings.optimizer.learning_rate = 3e-3;
  settings.schedule.warmup_steps = 5;
  return settings;
}

/// A Llama of odd sizes.
inline config::Settings small_llama(std::int64_t leaves) {
  config::Settings settings = small_gpt2(leaves);
  model::DecoderSettings& model = settings.model;
  model.norm = math::NormKind::rmsnorm;
  model.positions = model::Positions::rotary;
  model.activation = model::Activation::swiglu;
  model.width = 40;
  model.heads = 4;
  model.kv_heads = 2;
  model.bias = false;
  model.tie_embeddings = false;
  return settings;
}

/// Has attention compute all that scores may be, with a window in every second layer.
inline void with_scores(model::DecoderSettings& model) {
  model.positions = model::Positions::alibi;
  model.attention_scale = 0.4;
  model.attention_soft_cap = 3.0;
  model.attention_window = 7;
  model.window_layers = *model::LayerPattern::parse("every 2nd");
  model.attention_sinks = true;
  model.clip_qkv = 0.5;
}

/// Has latents make queries, keys and values, which are narrower than keys, in up to 8 pieces.
inline void with_latents(model::DecoderSettings& model) {
  model.kv_heads = model.heads;
  model.head_dim = 12;
  model.latent = {32, 16, 8, 6};
}

/// Waits for all ranks of `comm`, which it returns, without a core: others may compute meanwhile.
inline MPI_Comm gathered(MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(comm, &request);
  for (int done = 0; done == 0;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return comm;
}

/// Makes values the first rank's on all ranks of `comm`.
template <class T>
void from_rank_0(std::vector<T>& values, MPI_Comm comm = MPI_COMM_WORLD) {
  auto count = static_cast<std::int64_t>(values.size());
  MPI_Bcast(&count, 1, MPI_INT64_T, 0, gathered(comm));
  values.resize(static_cast<std::size_t>(count));
  MPI_Bcast(values.data(), static_cast<int>(values.size() * sizeof(T)), MPI_BYTE, 0, comm);
}

/// A trainer on all ranks of `comm` with its arenas and its first weights, and data as the settings
/// say; synthetic ones may be in documents.
struct SmallRun {
  explicit SmallRun(const config::Settings& settings, MPI_Comm comm = MPI_COMM_WORLD)
      : mesh(gathered(comm), static_cast<int>(settings.ranks_per_node), settings.shard_group,
             static_cast<int>(settings.pipeline)),
        trainer(train::make_trainer(settings, mesh)),
        training(open(settings, data::Split::training)),
        validation(open(settings, data::Split::validation)) {
    runtime::start_counting_memory();
    before = runtime::memory_count();
    trainer.allocate();
    allocated = runtime::memory_count();
    trainer.initialize();
  }

  train::StepResult step(std::int64_t number) { return trainer.step(*training, number); }

  mesh::Mesh mesh;
  train::Trainer trainer;
  std::unique_ptr<data::Dataset> training, validation;
  runtime::MemoryCount before, allocated;  ///< without the arenas, and with them

 private:
  std::unique_ptr<data::Dataset> open(const config::Settings& settings, data::Split split) {
    data::DataSettings from = settings.data;
    from.documents = data::Documents::continued;
    auto samples =
        data::open_dataset(from, split, settings.training.sequence_length,
                           settings.model.vocabulary, settings.training.seed, mesh.world());
    if (settings.data.documents == data::Documents::continued) return samples;
    return std::make_unique<InDocuments>(std::move(samples));
  }
};

/// Returns why no trainer of the world's ranks can be made with these settings.
inline std::string refusal(const config::Settings& settings) {
  mesh::Mesh mesh(MPI_COMM_WORLD, 0, settings.shard_group);
  return ostrakon::testing::error_of([&] { train::make_trainer(settings, mesh); });
}

/// Samples that the first rank can't read: while it `fails`, or after so many reads.
class Unreadable : public data::SampleSource {
 public:
  explicit Unreadable(data::SampleSource& samples) : samples_(samples) {}
  std::int64_t sample_bytes() const override { return samples_.sample_bytes(); }
  void fill(std::uint64_t first, std::int64_t count, void* batch) override {
    fill_part(first, count, {}, batch);
  }
  void fill_part(std::uint64_t first, std::int64_t count, const data::SamplePart& part,
                 void* batch) override {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0 && (fails || ++reads > most_reads)) throw Error("the disk is gone");
    samples_.fill_part(first, count, part, batch);
  }
  bool fails = false;
  std::int64_t reads = 0, most_reads = 1000000;  // of rank 0

 private:
  data::SampleSource& samples_;
};

/// What a run leaves behind step by step, to compare runs with.
struct History {
  std::vector<double> losses, norms;
  std::vector<double> further;  ///< losses of modules of multi-token prediction
  std::vector<std::uint64_t> digests;
  std::vector<train::ExpertLoad> loads;  // of all steps and layers
  double validation_loss = 0.0;
  double half_batch_loss = 0.0;  ///< of the first half of a validation's samples
  std::uint64_t plan_hash = 0, validation_plan_hash = 0;
  int stay_gathered = 0;         // units of the rank's stage, until the end of a step
  std::int64_t most_rounds = 1;  // in which tokens travelled between ranks that share experts

  void add(const train::StepResult& result, train::Trainer& trainer) {
    losses.push_back(result.loss);
    norms.push_back(result.grad_norm);
    if (result.multi_token_loss) further.push_back(*result.multi_token_loss);
    digests.push_back(trainer.state_digest());
    loads.insert(loads.end(), result.expert_load.begin(), result.expert_load.end());
    for (const train::ExpertRoundsTaken& rounds : result.expert_rounds)
      most_rounds = std::max(most_rounds, rounds.most);
  }
};

/// Bytes that a rank sends in a step, by formulas independent of plans but for the sizes of flat
/// parameters: M bytes of a unit, W ranks in groups of G with R = W / G replicas, m micro-batches
/// on a rank. With tensor ranks, M is what one of them has, and they exchange none of it but whole
/// matrices.
struct Traffic {
  std::int64_t within = 0, across = 0, kept = 0;
};
inline int first_trained_unit(const plan::StepPlan& plan) {
  int u = 0;
  while (plan.trained(u).empty()) ++u;
  return u;
}
/// The levels of the shard axis over which a unit's parameters are divided.
inline plan::Spans levels_of(const plan::StepPlan& plan, int unit) {
  return plan::without_first(plan.grid.levels(plan::Axis::shard),
                             plan.units[unit].layouts.expert_ranks);
}
/// Whether the unit before the head that is tied to the embedding is computed again in backward.
inline bool recomputes_module(const plan::StepPlan& plan) {
  return std::any_of(plan.actions.begin(), plan.actions.end(), [&](const plan::Action& action) {
    return action.kind == plan::Kind::recompute && plan.units[action.unit].tied_to == 0 &&
           action.unit + 1 < static_cast<int>(plan.units.size());
  });
}
/// Whether the embedding, which has a norm, is computed again in backward.
inline bool recomputes_embedding(const plan::StepPlan& plan) {
  return std::any_of(plan.actions.begin(), plan.actions.end(), [](const plan::Action& action) {
    return action.kind == plan::Kind::recompute && action.unit == 0;
  });
}
/// Bytes of a unit's parameters, of one tensor rank, as they are gathered.
inline std::int64_t bytes_gathered(const config::Settings& settings, const plan::StepPlan& plan,
                                   int unit) {
  const plan::PlannedUnit& of = plan.units[unit];
  const plan::Spans& whole = of.layouts.gathered.divided;
  return plan.quantizes(of.flats)
             ? plan.quantized_bytes(of.flats, whole)
             : plan.elements(of.flats, whole) * bytes_of(settings.precision.gather);
}
inline Traffic traffic_by_formula(const config::Settings& settings, const plan::StepPlan& plan) {
  const plan::PolicyChoices& policy = settings.parallel;
  const std::int64_t replicas = plan.grid.replicas();
  const std::int64_t m = plan.grid.micro_batches();
  const auto units = static_cast<int>(plan.units.size());
  const int first_trained = first_trained_unit(plan);
  const bool full = policy.sharding == plan::Sharding::full;
  const bool none = policy.sharding == plan::Sharding::none;
  const bool over_world = !none && policy.shard_optimizer_over == plan::OptimizerGroup::world;
  const plan::Accumulation accumulation = plan.layouts.accumulation;
  const std::int64_t reductions_within = accumulation == plan::Accumulation::reduce_last ? 1 : m;
  const std::int64_t reductions_across = accumulation == plan::Accumulation::reduce_each ? m : 1;
  // In fp32 but what is sent in 16 bits: gathers, reductions within a group, updates of copies to
  // compute with, which ranks keep but where masters on the device are converted as they are
  // gathered.
  const std::int64_t gather_bytes = bytes_of(settings.precision.gather);
  const bool keeps_copies =
      !full || policy.offload != plan::Offload::none || plan.layouts.frozen_without_masters;
  const bool uploads =
      policy.offload == plan::Offload::parameters || policy.offload == plan::Offload::all;
  Traffic traffic;
  const config::TrainingSettings& training = settings.training;
  const bool by_leaf = training.leaf == config::Leaf::sequence || training.context_grain > 1;
  for (int u = 0; u < units; ++u) {
    // Ranks that share experts have no gradients or values of each other's.
    const std::int64_t sharing = plan.units[u].layouts.expert_ranks;
    const std::int64_t group = plan.grid.shard() / sharing;
    const std::int64_t own_ranks = plan.grid.tensor() * sharing;
    const std::int64_t trained = plan.padded(plan.trained(u)) / own_ranks;
    const std::int64_t share_within = trained / group * (group - 1);
    const std::int64_t share_across = trained / group / replicas * (replicas - 1);
    // A tied table's gradients as embedding and as head are summed apart, and a module's always.
    const bool has_module = settings.model.multi_token_depth > 0;
    const bool is_apart = (by_leaf && settings.model.tie_embeddings) || has_module;
    const int sums = u == 0 && is_apart ? 2 : 1;
    // In two levels, only what goes inside nodes may be rounded.
    std::int64_t rest = trained;
    for (const plan::Span& span : levels_of(plan, u)) {
      rest /= span.ranks;
      traffic.within += sums * reductions_within * (span.stride > 1 ? 4 : bytes_of(policy.reduce)) *
                        rest * (span.ranks - 1);
    }
    traffic.across += sums * reductions_across * 4 * share_across;
    // Gradients come back to ranks that update more than their part, updates to ranks that store
    // more: one or the other, so that over which ranks moments are divided makes no difference in
    // fp32.
    traffic.across += (over_world && keeps_copies ? gather_bytes : 4) * share_across;
    if (!full) traffic.within += (none ? 4 : gather_bytes) * share_within;
    // Muon's directions, to ranks that have not all of them.
    if (!plan.units[u].whole_matrices.empty()) {
      if (over_world) traffic.across += 4 * share_across;
      if (!none) traffic.within += 4 * share_within;
    }
    // Copied up where every rank has the whole in host memory, which sends nothing; but what is
    // kept of it in parts is gathered like any other.
    if (!full && !uploads) continue;

    const std::int64_t bytes = (trained + plan.padded(plan.frozen(u)) / own_ranks) * gather_bytes;
    const std::int64_t gathered = bytes_gathered(settings, plan, u);
    const std::int64_t within = full ? gathered / group * (group - 1) : 0;
    const plan::Reshard& reshard = policy.reshard_after_forward;
    const bool head = u == units - 1, embedding = u == 0;
    // Who needs it again in the same micro-batch: a block for backward, a tied embedding for the
    // head. The head's forward and backward are one.
    // A norm behind experts, alone in its unit, keeps the weight that tensor pieces have gathered.
    const bool keeps_weight =
        plan.units[u].name.find(".addition") != std::string::npos && settings.tensor_grain > 1;
    const bool again = embedding ? settings.model.tie_embeddings || has_module
                                 : !head && u >= first_trained && !keeps_weight;
    // A module that is computed again looks up embeddings once more.
    if (embedding && has_module && recomputes_module(plan)) traffic.within += m * within;
    if (reshard.kind == plan::Reshard::end_of_step) {
      traffic.within += within;
      continue;
    }
    traffic.within += m * within;
    // What it is gathered for then stays for the next micro-batch, but for the last one's.
    if (embedding && !again && reshard.kind != plan::Reshard::never && recomputes_embedding(plan))
      traffic.within += within;
    if (!again || reshard.kind == plan::Reshard::never) continue;
    if (reshard.kind == plan::Reshard::partly && reshard.ranks < group) {
      traffic.kept += m * (bytes / reshard.ranks * (reshard.ranks - 1));
      continue;
    }
    traffic.within += m * within;
  }
  return traffic;
}

/// What `default` saves of that: gathers that would follow a release at once. No formula of the
/// field, but the rule said once more, for models with a few blocks whose backward goes down to the
/// embedding.
inline std::int64_t saved_by_default(const config::Settings& settings, const plan::StepPlan& plan) {
  const plan::PolicyChoices& policy = settings.parallel;
  const int group = plan.grid.shard();
  const auto units = static_cast<int>(plan.units.size());
  if (policy.sharding != plan::Sharding::full || group == 1 ||
      policy.reshard_after_forward.kind != plan::Reshard::automatic)
    return 0;
  const auto bytes = [&](int u) { return bytes_gathered(settings, plan, u) / group * (group - 1); };
  const bool tied = settings.model.tie_embeddings;
  const int blocks = units - 2;
  const int forward = policy.forward_prefetch.depth, backward = policy.backward_prefetch.depth;
  const std::int64_t limit =
      policy.in_flight_gathers.units == 0 ? 1000 : policy.in_flight_gathers.units;
  const std::int64_t m = plan.grid.micro_batches();
  std::int64_t saved = 0;
  // The last block, when its gather for backward goes along with the head's compute.
  if (backward >= 1 && limit >= (tied ? 3 : 2)) saved += m * bytes(blocks);
  // The first block, from backward to the next micro-batch's forward: during the embedding's
  // backward, that gather and the embedding's are next.
  if (backward >= 2 && limit >= 2) saved += (m - 1) * bytes(1);
  // A tied embedding, where the first block's forward prefetches as far as the head, and where the
  // last block's backward prefetches as far as the next micro-batch.
  if (tied && forward >= blocks && limit >= blocks + 2) saved += m * bytes(0);
  if (tied && backward >= blocks && limit >= blocks + 1) saved += (m - 1) * bytes(0);
  return saved;
}

/// Checks what a rank sends in a plan against the formulas.
inline void expect_traffic_by_formula(const config::Settings& settings,
                                      const plan::StepPlan& plan) {
  const Traffic formula = traffic_by_formula(settings, plan);
  // The bytes that are planned of parameters and gradients.
  const auto planned = [&](const auto& spans) {
    std::int64_t bytes = 0;
    for (const plan::Span& span : spans) bytes += bytes_sent(plan, span) - exchanged(plan, span);
    return bytes;
  };
  std::vector<plan::Span> kept = kept_spans(plan), shard;
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u)
    for (const plan::Span& span : levels_of(plan, u))
      if (std::find(shard.begin(), shard.end(), span) == shard.end()) shard.push_back(span);
  // The ranks of a node may be those that keep parts.
  std::int64_t formula_within = formula.within, formula_kept = formula.kept;
  if (plan.grid.has_levels()) {
    for (const plan::Span& span : kept)
      if (std::find(shard.begin(), shard.end(), span) == shard.end()) shard.push_back(span);
    kept.clear();
    formula_within += std::exchange(formula_kept, 0);
  }
  const bool whole_backward = first_trained_unit(plan) == 0;
  const bool automatic = settings.parallel.reshard_after_forward.kind == plan::Reshard::automatic;
  // Where a module's gathers of the embedding follow a release at once, the rule has no words.
  const bool has_rule =
      settings.model.multi_token_depth == 0 || settings.parallel.sharding != plan::Sharding::full;
  if ((whole_backward && settings.expert == 1 && has_rule) || !automatic)
    EXPECT_EQ(planned(shard), formula_within - saved_by_default(settings, plan)) << "shard";
  else
    EXPECT_LE(planned(shard), formula_within) << "shard";
  EXPECT_EQ(planned(plan.grid.levels(plan::Axis::replicate)), formula.across) << "replicate";
  EXPECT_EQ(planned(kept), formula_kept) << "kept";
}

/// Trains on all ranks of `comm` for settings.training.steps steps, and checks that memory and
/// traffic are as planned. `counts`: which targets count; empty: all.
inline History train_history(const config::Settings& settings, MPI_Comm comm,
                             runtime::Perturbation perturbation = {},
                             const SomeTargets::Counts& counts = {}) {
  SmallRun run(settings, comm);
  const int arrays = settings.data.documents == data::Documents::separate ? 3 : 2;
  SomeTargets training(*run.training, counts, arrays), validation(*run.validation, counts, arrays);
  train::Trainer& trainer = run.trainer;
  trainer.perturb(perturbation);
  History history;
  for (std::int64_t step = 1; step <= settings.training.steps; ++step)
    history.add(counts ? trainer.step(training, step) : run.step(step), trainer);
  const plan::StepPlan& plan = trainer.program(plan::Purpose::train).plan;
  history.plan_hash = plan.hash();
  for (const plan::PlannedUnit& unit : plan.units) history.stay_gathered += unit.stays_gathered;
  history.validation_plan_hash = trainer.program(plan::Purpose::evaluate).plan.hash();
  if (plan.grid.stages() == 1) expect_traffic_by_formula(settings, plan);
  std::vector<plan::Span> spans = spans_of_messages(plan);
  if (plan.grid.stages() > 1) spans.push_back(plan.grid.span(plan::Axis::pipeline));
  for (const plan::Span& span : spans)
    EXPECT_EQ(trainer.bytes_sent(span) + trainer.bytes_left_out(span),
              settings.training.steps * bytes_sent(plan, span));
  data::SampleSource& samples =
      counts ? static_cast<data::SampleSource&>(validation) : *run.validation;
  history.validation_loss = trainer.evaluate(samples, 2);
  history.half_batch_loss =
      trainer.evaluate_samples(samples, (settings.training.global_batch_size + 1) / 2);
  const runtime::MemoryCount after = runtime::memory_count();
  EXPECT_EQ(after.bytes - run.before.bytes, trainer.planned_peak_bytes());
  EXPECT_EQ(after.allocations - run.before.allocations, 2)
      << "something but the arenas was allocated";
  EXPECT_EQ(after.library_allocations, run.allocated.library_allocations);
  return history;
}

/// The history of one rank, which the first of `comm` trains for all of them.
inline History train_alone(const config::Settings& settings, MPI_Comm comm = MPI_COMM_WORLD,
                           const SomeTargets::Counts& counts = {}) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  History history;
  if (rank == 0) history = train_history(settings, MPI_COMM_SELF, {}, counts);
  std::vector<double> validation = {history.validation_loss, history.half_batch_loss};
  from_rank_0(validation, comm);
  history.validation_loss = validation[0];
  history.half_batch_loss = validation[1];
  from_rank_0(history.losses, comm);
  from_rank_0(history.norms, comm);
  from_rank_0(history.further, comm);
  from_rank_0(history.digests, comm);
  from_rank_0(history.loads, comm);
  return history;
}

}  // namespace ostrakon::tests
