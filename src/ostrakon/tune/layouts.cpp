// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/tune/layouts.hpp>

#include <algorithm>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/numbers.hpp>
#include <ostrakon/base/threads.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/plan/build.hpp>
#include <ostrakon/plan/ir/levels.hpp>
#include <ostrakon/plan/ir/sum_order.hpp>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <ostrakon/plan/pipeline/deferral.hpp>
#include <ostrakon/plan/pipeline/stages.hpp>
#include <ostrakon/trainer/make_trainer.hpp>
#include <ostrakon/trainer/resolve.hpp>
#include <ostrakon/tune/run_plans.hpp>
#include <ostrakon/tune/step_bound.hpp>
#include <utility>

namespace ostrakon::tune {
namespace {

/// All that a description of a model depends on and a layout may change.
std::string model_name(const config::Settings& settings, std::int64_t layers) {
  const bool defers = settings.parallel.schedule == plan::ScheduleKind::zero_bubble;
  return text(layers, " ", settings.training.micro_batch_size, " ", settings.context, " ",
              settings.tensor, " ", settings.tensor_chunks, " ", settings.expert, " ", defers, " ",
              config::value_of(settings, "precision", "gather"), " ",
              config::value_of(settings, "precision", "activations"), " ",
              config::value_of(settings, "memory", "activation_checkpointing"));
}

/// Is thrown where the sums of a point are not bitwise equal to those of 1 rank.
class OtherBits {};

}  // namespace

std::optional<bool> has_the_bits_of_one_rank(const config::Settings& deck, const MachineRanks& on) {
  const Space space;
  LayoutCandidates deck_alone(deck, space, on, {true});
  if (deck_alone.bound(Point())) return deck_alone.estimate(Point()).has_value();
  if (deck_alone.with_other_bits() == 0) return std::nullopt;
  return false;
}

LayoutCandidates::LayoutCandidates(const config::Settings& deck, const Space& space,
                                   const MachineRanks& on, const Limits& limits)
    : deck_(deck),
      space_(space),
      on_(on),
      needs_bits_(limits.needs_bits),
      room_(limits.room),
      threads_(limits.threads),
      rates_(simulate::bounding_rates(on.machine, bytes_of(deck.precision.gather),
                                      on.ranks_per_node)) {}

std::vector<int> LayoutCandidates::sizes() const {
  std::vector<int> sizes;
  for (const Dimension& dimension : space_.dimensions)
    sizes.push_back(static_cast<int>(dimension.choices.size()));
  return sizes;
}

std::vector<bool> LayoutCandidates::are_starts() const {
  std::vector<bool> starts;
  for (const Dimension& dimension : space_.dimensions) starts.push_back(dimension.divides_work);
  return starts;
}

std::string LayoutCandidates::kind(const Point& point) const {
  const config::Settings of = settings(point);
  const int ranks_of_stage = on_.ranks / static_cast<int>(of.pipeline);
  const int group = of.shard_group == mesh::world_group  ? ranks_of_stage
                    : of.shard_group == mesh::node_group ? on_.ranks_per_node
                                                         : of.shard_group;
  return text(of.pipeline, " ", of.tensor, " ", of.context, " ", of.expert, " ",
              plan::name(of.parallel.sharding), " ", std::min(group, ranks_of_stage), " ",
              plan::name(of.parallel.offload), " ", of.parallel.offload_activations);
}

config::Settings LayoutCandidates::settings(const Point& point) const {
  config::Settings settings = deck_;
  for (std::size_t d = 0; d < point.size(); ++d)
    config::set(settings, space_.dimensions[d].choices[static_cast<std::size_t>(point[d])]);
  return settings;
}

const plan::ModelDescription& LayoutCandidates::model(const config::Settings& settings,
                                                      std::int64_t layers) {
  const std::string name = model_name(settings, layers);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = models_.find(name);
  if (found != models_.end()) return found->second;
  config::Settings shorter = settings;
  shorter.model.layers = layers;
  return models_.emplace(name, train::describe(*train::make_decoder(shorter), settings.optimizer))
      .first->second;
}

const std::optional<LayoutCandidates::Placed>& LayoutCandidates::place(const Point& point) {
  if (placed_point_ != point) {
    placed_ = find_placed(point);
    placed_point_ = point;
  }
  return placed_;
}

std::optional<LayoutCandidates::Placed> LayoutCandidates::find_placed(const Point& point) {
  Placed placed;
  placed.settings = settings(point);
  try {
    config::check_consistency(placed.settings, "deck");
    placed.policy = train::resolve(placed.settings, on_.ranks, on_.ranks_per_node);
    placed.model = &model(placed.settings, placed.settings.model.layers);
    if (placed.settings.runtime.audit > 0) plan::require_auditable(*placed.model, placed.policy);
  } catch (const Error&) {
    if (!error_) error_ = std::current_exception();
    return std::nullopt;
  }
  const std::int64_t ranks_of_stage = on_.ranks / placed.settings.pipeline;
  const config::Settings& settings = placed.settings;
  placed.whole = {settings.model.layers, settings.leaves() * settings.tensor / ranks_of_stage,
                  static_cast<int>(settings.pipeline), placed.policy.chunk_units};
  return placed;
}

std::optional<Cost> LayoutCandidates::bound(const Point& point) {
  const std::optional<Placed>& placed = place(point);
  if (!placed) return std::nullopt;
  try {
    const RunState state = find_state(*placed->model, placed->policy, on_.ranks);
    if (needs_bits_ && !state.bits_of_one_rank) {
      ++with_other_bits_;
      return std::nullopt;
    }
    return bounds_[point] = {kernel_seconds(*placed), needed(state.memory)};
  } catch (const Error&) {
    if (!error_) error_ = std::current_exception();
    return std::nullopt;
  }
}

double LayoutCandidates::kernel_seconds(const Placed& placed) {
  const plan::ModelDescription* model = placed.model;
  const plan::Policy& policy = placed.policy;
  const KernelKey key{model,
                      placed.whole.micro_batches,
                      policy.stages,
                      policy.chunks,
                      policy.schedule,
                      policy.activation_checkpointing.every,
                      policy.chunk_units};
  if (const auto known = kernel_seconds_.find(key); known != kernel_seconds_.end())
    return known->second;
  const auto found = with_kernel_times_.find(model);
  const plan::ModelDescription& timed =
      found != with_kernel_times_.end()
          ? found->second
          : with_kernel_times_
                .emplace(model, simulate::with_kernel_times(*model, on_.machine, rates_))
                .first->second;
  // What is computed may be added, and so rounded, in another order in a plan.
  constexpr double rounding = 1.0 - 1e-9;
  return kernel_seconds_[key] =
             rounding * least_step_seconds(timed, policy,
                                           static_cast<int>(placed.whole.micro_batches), rates_);
}

const plan::ShorterSteps& LayoutCandidates::shorter_steps(const Placed& placed) {
  const plan::Policy& policy = placed.policy;
  const ShorterKey key{placed.model, placed.whole.micro_batches, policy.stages, policy.chunks,
                       policy.chunk_units};
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = shorter_.find(key);
  if (found != shorter_.end()) return found->second;
  const config::Settings& settings = placed.settings;
  const bool has_like_layers = settings.parallel.units.empty() &&
                               settings.optimizer.parameters.empty() &&
                               settings.model.blocks_per_unit == 1;
  const int ranks_of_stage = on_.ranks / policy.stages, node = on_.ranks_per_node;
  const bool is_one_node = on_.ranks <= node && on_.machine.cores_per_node == 0;
  const int stages_at_a_time = is_one_node                  ? 1
                               : node % ranks_of_stage == 0 ? node / ranks_of_stage
                               : ranks_of_stage % node == 0 ? 1
                                                            : 0;
  return shorter_
      .emplace(key, plan::ShorterSteps(*placed.model, policy, placed.whole, has_like_layers,
                                       stages_at_a_time))
      .first->second;
}

bool LayoutCandidates::shows_bits(const Placed& placed, const plan::StepLength& length) {
  // Sums over another number of micro-batches may be bitwise equal only if it is a power of 2.
  return length.micro_batches == placed.whole.micro_batches ||
         is_power_of_two(length.micro_batches);
}

std::vector<plan::StepPlan> LayoutCandidates::plan_shorter(const Placed& placed,
                                                           const plan::StepLength& length) {
  plan::Policy policy = placed.policy;
  const int ranks_of_stage = on_.ranks / policy.stages;
  // The whole step accumulates in this way, too.
  policy.accumulation = plan::accumulation_of(policy, plan::one_level(ranks_of_stage, policy));
  if (plan::make_grid(*placed.model, ranks_of_stage, policy).node == 0)
    policy.hierarchical.kind = plan::Hierarchical::never;
  policy.leaves = length.micro_batches * ranks_of_stage / policy.tensor_ranks;
  policy.stages = length.stages;
  policy.chunk_units = length.chunk_units;
  std::vector<plan::StepPlan> plans =
      plan::build_plain_stages(model(placed.settings, length.layers), ranks_of_stage, policy);
  if (needs_bits_ && shows_bits(placed, length) && !have_the_bits_of_one_rank(plans))
    throw OtherBits();
  return plans;
}

LayoutCandidates::Takes LayoutCandidates::simulate_shorter(
    const Placed& placed, const std::vector<plan::StepPlan>& plans) const {
  Takes takes;
  takes.on_device.seconds = simulate::seconds_if_equally_fast(
      pointers_to(plans), on_.machine, on_.ranks_per_node,
      train::streams_of(placed.settings, on_.machine, on_.ranks_per_node));
  for (const plan::StepPlan& plan : plans) {
    // Stages differ in what is in flight, which hides most of it.
    const Memory more =
        plans.size() == 1 ? more_partial_sums(plan, placed.whole.micro_batches) : Memory();
    takes.on_device.bytes.push_back(plan::peak_live_bytes(plan) + more.device);
    takes.on_host.bytes.push_back(plan::peak_live_bytes(plan, plan::Space::host) + more.host);
  }
  return takes;
}

Memory LayoutCandidates::needed(const Memory& arenas) const {
  // Where ranks compute on the host, both arenas are in its memory.
  return {arenas.device + (deck_.processor.is_device ? 0 : arenas.host), arenas.host};
}

std::string LayoutCandidates::layout_name(const Placed& placed) const {
  config::Settings settings = placed.settings;
  const plan::Policy& policy = placed.policy;
  const int ranks = on_.ranks / policy.stages;
  const int node = plan::make_grid(*placed.model, ranks, policy).node;
  settings.parallel.hierarchical = {};
  settings.parallel.accumulation = plan::accumulation_of(policy, plan::one_level(ranks, policy));
  settings.shard_group = policy.shard_group;
  std::string name = text(node);
  for (const config::Varied* key : varied_keys()) name += " " + key->get(settings);
  return name;
}

Cost LayoutCandidates::estimate_placed(const Placed& placed) {
  const std::string name = layout_name(placed);
  const auto known = estimates_of_layouts_.find(name);
  if (known != estimates_of_layouts_.end()) return known->second;
  prepare(placed);
  return estimates_of_layouts_[name] = estimate_layout(placed, threads_);
}

std::optional<LayoutCandidates::Placed> LayoutCandidates::with_nothing_deferred(
    const Placed& placed) {
  const plan::Policy& policy = placed.policy;
  if (policy.schedule != plan::ScheduleKind::zero_bubble ||
      policy.zero_bubble_memory != plan::ZeroBubbleMemory::as_1f1b)
    return std::nullopt;
  Placed other = placed;
  other.policy.schedule = other.settings.parallel.schedule =
      plan::ScheduleKind::one_forward_one_backward;
  other.model = &model(other.settings, other.settings.model.layers);
  return other;
}

double LayoutCandidates::effort(const Point& point) {
  const std::optional<Placed>& placed = place(point);
  if (!placed) return 0.0;
  // Whatever is known: that depends on the threads.
  const auto actions = [&](const Placed& of) {
    std::size_t phases = 0;
    const std::vector<plan::UnitDescription>& units = of.model->units;
    for (const plan::UnitDescription& unit : units)
      phases += 2 * unit.forward.size() + unit.backward.size();
    const double of_layer = static_cast<double>(phases) / static_cast<double>(units.size());
    double sum = 0.0;  // each phase with an exchange
    for (const plan::StepLength& length : shorter_steps(of).lengths())
      sum += 2.0 * of_layer * static_cast<double>(length.layers * length.micro_batches);
    return sum;
  };
  const std::optional<Placed> other = with_nothing_deferred(*placed);
  return actions(*placed) + (other ? actions(*other) : 0.0);
}

void LayoutCandidates::prepare(const Placed& placed) {
  for (const plan::StepLength& length : shorter_steps(placed).lengths())
    model(placed.settings, length.layers);
}

void LayoutCandidates::expect(const std::vector<Point>& points) {
  if (threads_ == 1) return;
  std::map<std::string, Placed> layouts;
  const auto add = [&](const Placed& placed) {
    const std::string name = layout_name(placed);
    if (estimates_of_layouts_.count(name) > 0) return;
    prepare(placed);
    layouts.emplace(name, placed);
  };
  for (const Point& point : points) {
    const std::optional<Placed>& placed = place(point);
    if (!placed) continue;
    try {
      add(*placed);
      if (const std::optional<Placed> other = with_nothing_deferred(*placed)) add(*other);
    } catch (const Error&) {
      // Whoever asks for it is told.
    }
  }
  const std::vector<std::pair<std::string, Placed>> all(layouts.begin(), layouts.end());
  if (all.size() < 2) return;  // an estimate uses all threads by itself
  std::vector<std::optional<Cost>> found(all.size());
  in_threads(threads_, static_cast<std::int64_t>(all.size()), [&](int, std::int64_t i) {
    try {
      found[static_cast<std::size_t>(i)] =
          estimate_layout(all[static_cast<std::size_t>(i)].second, 1);
    } catch (const OtherBits&) {
    } catch (const Error&) {
    }
  });
  for (std::size_t i = 0; i < all.size(); ++i)
    if (found[i]) estimates_of_layouts_[all[i].first] = *found[i];
}

Cost LayoutCandidates::estimate_layout(const Placed& placed, int threads) {
  const plan::ShorterSteps& shorter = shorter_steps(placed);
  std::vector<Takes> takes(shorter.lengths().size());
  // The shortest comes first. Settings that make no difference to it make none.
  std::vector<plan::StepPlan> plans = plan_shorter(placed, shorter.lengths().back());
  std::vector<std::uint64_t> hashes;
  for (const plan::StepPlan& plan : plans) hashes.push_back(plan.hash());
  std::string hidden;
  for (const char* key :
       {"forward_prefetch", "backward_prefetch", "in_flight_gathers", "in_flight_reductions"})
    hidden += config::value_of(placed.settings, "parallel", key) + " ";
  const std::tuple name{&shorter, std::move(hidden), std::move(hashes)};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto known = estimates_.find(name); known != estimates_.end()) return known->second;
  }
  bool knows_bits = false;
  for (const plan::StepLength& length : shorter.lengths()) knows_bits |= shows_bits(placed, length);
  if (needs_bits_ && !knows_bits) {
    plan::StepLength like_whole = shorter.lengths().back();
    like_whole.micro_batches = placed.whole.micro_batches;
    plan_shorter(placed, like_whole);
  }
  in_threads(threads, static_cast<std::int64_t>(takes.size()), [&](int, std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    if (at + 1 == takes.size())
      takes[at] = simulate_shorter(placed, plans);
    else
      takes[at] = simulate_shorter(placed, plan_shorter(placed, shorter.lengths()[at]));
  });
  const double variation = simulate::added_by_variation(on_.machine, on_.ranks);
  std::vector<plan::StepCost> on_device, on_host;
  for (const Takes& one : takes) {
    on_device.push_back(one.on_device);
    on_host.push_back(one.on_host);
  }
  Memory memory = needed({shorter.bytes(on_device), shorter.bytes(on_host)});
  // What lies badly in the arena of a short step does so in that of a longer one.
  if (memory.device <= room_.device && memory.device > room_.device - room_.device / 16) {
    const std::vector<std::int64_t>& alive = on_device.back().bytes;
    const auto largest = std::max_element(alive.begin(), alive.end());
    const auto stage = static_cast<std::size_t>(largest - alive.begin());
    const plan::MemoryPlan laid_out = plan::plan_memory(plans[stage]);
    memory.device += laid_out.arena_bytes - laid_out.peak_live_bytes;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  return estimates_[name] = {shorter.seconds(on_device) * (1.0 + variation), memory};
}

std::optional<Cost> LayoutCandidates::estimate(const Point& point) {
  const std::optional<Placed>& placed = place(point);
  if (!placed || (bounds_.count(point) == 0 && !bound(point))) return std::nullopt;
  try {
    Cost cost = estimate_placed(*placed);
    if (const std::optional<Placed> other = with_nothing_deferred(*placed)) {
      const plan::ModelDescription& model = *placed->model;
      const plan::Policy& policy = placed->policy;
      const double part = plan::part_deferred(
          plan::make_stages(model, plan::make_chunks(model, policy), policy.stages),
          static_cast<int>(placed->whole.micro_batches));
      const Cost at_once = estimate_placed(*other);
      cost = {part * cost.seconds + (1.0 - part) * at_once.seconds, at_once.memory};
    }
    const Cost& bound = bounds_.at(point);
    return Cost{std::max(cost.seconds, bound.seconds),
                {std::max(cost.memory.device, bound.memory.device),
                 std::max(cost.memory.host, bound.memory.host)}};
  } catch (const OtherBits&) {
    ++with_other_bits_;
  } catch (const Error&) {
    if (!error_) error_ = std::current_exception();
  }
  return std::nullopt;
}

double LayoutCandidates::model_flops(const Placed& placed) const {
  return plan::model_flops(*placed.model) * static_cast<double>(placed.settings.leaves()) *
         static_cast<double>(placed.settings.tensor);
}

std::optional<double> LayoutCandidates::seconds(const Point& point) {
  planned_point_ = {};
  planned_.reset();
  planned_placed_ = place(point);
  if (!planned_placed_) return std::nullopt;
  const Placed& placed = *planned_placed_;
  try {
    planned_ = std::make_unique<RunPlans>(*placed.model, placed.policy, on_.ranks,
                                          placed.settings.runtime.audit > 0, threads_);
    const bool bits = bits_[point] = have_the_bits_of_one_rank(planned_->training());
    if (needs_bits_ && !bits) {
      ++with_other_bits_;
      return std::nullopt;
    }
    simulate::Prediction& prediction = predictions_[point];
    prediction = simulate::predict(
        pointers_to(planned_->training()), on_.machine, on_.ranks_per_node,
        train::streams_of(placed.settings, on_.machine, on_.ranks_per_node), model_flops(placed));
    prediction.timings.clear();
    planned_point_ = point;
    return prediction.step_seconds;
  } catch (const Error&) {
    if (!error_) error_ = std::current_exception();
    return std::nullopt;
  }
}

Memory LayoutCandidates::memory(const Point& point) {
  if (planned_ == nullptr || planned_point_ != point) seconds(point);
  return needed(arenas_[point] = planned_->arenas());
}

}  // namespace ostrakon::tune
