// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/train/layout_candidates.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/numbers.hpp>
#include <ostrakon/config/checks.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/plan/levels.hpp>
#include <ostrakon/plan/memory_plan.hpp>
#include <ostrakon/plan/stage_plans.hpp>
#include <ostrakon/plan/sum_order.hpp>
#include <ostrakon/train/make_trainer.hpp>
#include <ostrakon/train/place_on_ranks.hpp>
#include <utility>

namespace ostrakon::train {
namespace {

using simulate::Point;

/// All that a description of a model depends on and a layout may change.
std::string model_name(const config::Settings& settings, std::int64_t layers) {
  const bool defers = settings.parallel.schedule == plan::ScheduleKind::zero_bubble;
  return text(layers, " ", settings.training.micro_batch_size, " ", settings.context, " ",
              settings.tensor, " ", settings.tensor_chunks, " ", settings.expert, " ", defers, " ",
              config::value_of(settings, "memory", "activation_checkpointing"));
}

bool have_the_bits_of_one_rank(const std::vector<const plan::StepPlan*>& plans) {
  return std::all_of(plans.begin(), plans.end(),
                     [](const plan::StepPlan* plan) { return plan->has_the_bits_of_one_rank(); });
}

/// Sums are not bitwise equal to 1 rank.
class OtherBits {};

}  // namespace

simulate::Streams streams_of(const config::Settings& settings, const simulate::Machine& machine,
                             int ranks_per_node) {
  using config::StreamsChoice;
  const StreamsChoice choice = settings.runtime.streams;
  if (machine.cores_per_node == 0)  // devices
    return choice == StreamsChoice::in_plan_order ? simulate::Streams::one_after_the_other
                                                  : simulate::Streams::concurrent;
  const bool has_cores = machine.cores_per_node >= 3 * ranks_per_node;  // StreamsChoice::automatic
  return choice == StreamsChoice::threads || (choice == StreamsChoice::automatic && has_cores)
             ? simulate::Streams::concurrent
             : simulate::Streams::one_after_the_other;
}

std::optional<bool> has_the_bits_of_one_rank(const config::Settings& deck, const RanksOn& on) {
  const LayoutSpace space;
  LayoutCandidates any(deck, space, on, false);
  if (!any.bound(Point())) return std::nullopt;
  LayoutCandidates with_bits(deck, space, on, true);
  return with_bits.bound(Point()) && with_bits.estimate(Point());
}

LayoutCandidates::LayoutCandidates(const config::Settings& deck, const LayoutSpace& space,
                                   const RanksOn& on, bool needs_bits)
    : deck_(deck),
      space_(space),
      on_(on),
      needs_bits_(needs_bits),
      least_(on.ranks, on.ranks_per_node,
             simulate::bounding_rates(on.machine, bytes_of(deck.precision.gather),
                                      on.ranks_per_node)) {}

std::vector<int> LayoutCandidates::sizes() const {
  std::vector<int> sizes;
  for (const LayoutDimension& dimension : space_.dimensions)
    sizes.push_back(static_cast<int>(dimension.choices.size()));
  return sizes;
}

std::vector<bool> LayoutCandidates::are_starts() const {
  std::vector<bool> starts;
  for (const LayoutDimension& dimension : space_.dimensions)
    starts.push_back(dimension.divides_work);
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
  const auto found = models_.find(name);
  if (found != models_.end()) return found->second;
  config::Settings shorter = settings;
  shorter.model.layers = layers;
  return models_.emplace(name, describe(*make_decoder(shorter), settings.optimizer)).first->second;
}

std::optional<LayoutCandidates::Placed> LayoutCandidates::place(const Point& point) {
  Placed placed;
  placed.settings = settings(point);
  try {
    config::check_together(placed.settings, "deck");
    place_on_ranks(placed.settings, on_.ranks, on_.ranks_per_node);
    placed.candidate.model = &model(placed.settings, placed.settings.model.layers);
  } catch (const Error&) {
    if (!error_) error_ = std::current_exception();
    return std::nullopt;
  }
  placed.candidate.policy = placed.settings.parallel;
  const std::int64_t ranks_of_stage = on_.ranks / placed.settings.pipeline;
  placed.length = {placed.settings.model.layers,
                   placed.settings.leaves() * placed.settings.tensor / ranks_of_stage};
  return placed;
}

std::optional<simulate::Cost> LayoutCandidates::bound(const Point& point) {
  const std::optional<Placed> placed = place(point);
  if (!placed) return std::nullopt;
  try {
    const plan::Least least = least_.of(placed->candidate);
    if (needs_bits_ && !least.bits_of_one_rank) {
      ++with_other_bits_;
      return std::nullopt;
    }
    return bounds_[point] = {least.seconds, least.device_bytes};
  } catch (const Error&) {
    if (!error_) error_ = std::current_exception();
    return std::nullopt;
  }
}

std::vector<plan::StepPlan> LayoutCandidates::plan_shortened(const Placed& placed,
                                                             const Length& length) {
  plan::Policy policy = placed.candidate.policy;
  const int ranks_of_stage = on_.ranks / policy.stages;
  // As in the whole step.
  policy.accumulation = plan::accumulation_of(policy, plan::one_level(ranks_of_stage, policy));
  policy.leaves = length.micro_batches * ranks_of_stage / policy.tensor_ranks;
  return plan::build_plain_stages(model(placed.settings, length.layers), ranks_of_stage, policy);
}

/// A step's time grows linearly with micro-batches and with layers, but for those that begin and
/// end it, so it follows from shorter steps.
simulate::Cost LayoutCandidates::estimate_placed(const Placed& placed) {
  const config::Settings& settings = placed.settings;
  const Length whole = placed.length;
  const std::int64_t stages = settings.pipeline;
  // In a pipeline layers decide how busy each stage is.
  const bool alike = stages == 1 && settings.parallel.units.empty() &&
                     settings.optimizer.parameters.empty() && settings.model.blocks_per_unit == 1;
  const auto pick = [](std::int64_t all, std::int64_t fewest, std::int64_t few) {
    return all > few ? std::vector<std::int64_t>{fewest, few} : std::vector<std::int64_t>{all};
  };
  const std::vector<std::int64_t> layers =
      alike ? pick(whole.layers, 4, 6) : std::vector<std::int64_t>{whole.layers};
  const std::vector<std::int64_t> micro_batches =
      stages > 1 ? pick(whole.micro_batches, stages, 2 * stages) : pick(whole.micro_batches, 2, 4);
  const auto follow = [](const std::vector<std::int64_t>& at, const std::vector<double>& seconds,
                         std::int64_t all) {
    if (at.size() == 1) return seconds.front();
    return seconds[0] + (seconds[1] - seconds[0]) * static_cast<double>(all - at[0]) /
                            static_cast<double>(at[1] - at[0]);
  };
  const simulate::Streams streams = streams_of(settings, on_.machine, on_.ranks_per_node);
  std::vector<double> of_micro_batches;
  std::int64_t alive = 0;  // peak bytes, at least
  for (const std::int64_t count : micro_batches) {
    std::vector<double> of_layers;
    for (const std::int64_t number : layers) {
      const std::vector<plan::StepPlan> plans = plan_shortened(placed, {number, count});
      std::vector<const plan::StepPlan*> stages_of_step;
      for (const plan::StepPlan& plan : plans) stages_of_step.push_back(&plan);
      // Sums over another number of micro-batches may be bitwise equal only if it is a power of 2.
      const bool is_like_whole = count == whole.micro_batches || is_power_of_two(count);
      if (needs_bits_ && is_like_whole && !have_the_bits_of_one_rank(stages_of_step))
        throw OtherBits();
      for (const plan::StepPlan* plan : stages_of_step)
        alive = std::max(alive, plan::peak_live_bytes(*plan));
      of_layers.push_back(
          simulate::predict(stages_of_step, on_.machine, on_.ranks_per_node, streams, 1.0)
              .step_seconds);
    }
    of_micro_batches.push_back(follow(layers, of_layers, whole.layers));
  }
  return {follow(micro_batches, of_micro_batches, whole.micro_batches), alive};
}

std::optional<simulate::Cost> LayoutCandidates::estimate(const Point& point) {
  std::optional<Placed> placed = place(point);
  if (!placed || (bounds_.count(point) == 0 && !bound(point))) return std::nullopt;
  try {
    simulate::Cost cost = estimate_placed(*placed);
    plan::Policy& policy = placed->candidate.policy;
    if (policy.schedule == plan::ScheduleKind::zero_bubble &&
        policy.zero_bubble_memory == plan::ZeroBubbleMemory::as_1f1b) {
      // How much has room to be deferred is known when memory is laid out: about so much.
      constexpr double part_deferred = 0.6;
      policy.schedule = placed->settings.parallel.schedule =
          plan::ScheduleKind::one_forward_one_backward;
      const simulate::Cost at_once = estimate_placed(*placed);
      cost = {part_deferred * cost.seconds + (1.0 - part_deferred) * at_once.seconds,
              at_once.bytes};
    }
    cost.bytes = std::max(cost.bytes, bounds_.at(point).bytes);
    return cost;
  } catch (const OtherBits&) {
    ++with_other_bits_;
  } catch (const Error&) {
    if (!error_) error_ = std::current_exception();
  }
  return std::nullopt;
}

double LayoutCandidates::model_flops(const Placed& placed) const {
  return plan::model_flops(*placed.candidate.model) *
         static_cast<double>(placed.settings.leaves()) *
         static_cast<double>(placed.settings.tensor);
}

std::optional<double> LayoutCandidates::seconds(const Point& point) {
  planned_point_ = {};
  planned_.reset();
  planned_placed_ = place(point);
  if (!planned_placed_) return std::nullopt;
  const Placed& placed = *planned_placed_;
  try {
    planned_ = std::make_unique<plan::CandidateStages>(placed.candidate, on_.ranks);
    const std::vector<const plan::StepPlan*> plans = planned_->plans();
    if (needs_bits_ && !have_the_bits_of_one_rank(plans)) {
      ++with_other_bits_;
      return std::nullopt;
    }
    simulate::Prediction& prediction = predictions_[point];
    prediction = simulate::predict(plans, on_.machine, on_.ranks_per_node,
                                   streams_of(placed.settings, on_.machine, on_.ranks_per_node),
                                   model_flops(placed));
    prediction.timings.clear();
    planned_point_ = point;
    return prediction.step_seconds;
  } catch (const Error&) {
    if (!error_) error_ = std::current_exception();
    return std::nullopt;
  }
}

std::int64_t LayoutCandidates::bytes(const Point& point) {
  if (planned_ == nullptr || planned_point_ != point) seconds(point);
  std::vector<plan::Timing> no_times(planned_->plans().size());
  const plan::Fit fit = planned_->count(on_.ranks_per_node, no_times);
  fits_[point] = fit;
  return fit.arena_bytes;
}

}  // namespace ostrakon::train
