// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/stage_plans.hpp>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/threads.hpp>
#include <ostrakon/plan/build.hpp>
#include <ostrakon/plan/ir/levels.hpp>
#include <ostrakon/plan/ir/pipeline_schedule.hpp>
#include <ostrakon/plan/ir/tasks.hpp>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <ostrakon/plan/pipeline/deferral.hpp>
#include <ostrakon/plan/timing/timing.hpp>
#include <utility>

namespace ostrakon::plan {
namespace {

/// Checks the names of units on the whole model, as a stage has only some of them.
void check_names(const Policy& policy, const ModelDescription& model) {
  const auto is_unit = [&](const std::string& name) {
    return std::any_of(model.units.begin(), model.units.end(),
                       [&](const UnitDescription& unit) { return matches(name, unit.name); });
  };
  const auto check_list = [&](const std::optional<Prefetch>& prefetch) {
    if (!prefetch) return;
    for (const std::string& name : prefetch->units)
      require(is_unit(name), "parallel.units: prefetch ", name, ": the model has no such unit");
  };
  for (const UnitRule& rule : policy.units) {
    require(is_unit(rule.pattern), "parallel.units: ", rule.pattern,
            " matches none of the model's units");
    check_list(rule.forward_prefetch);
    check_list(rule.backward_prefetch);
  }
  check_list(policy.forward_prefetch);
  check_list(policy.backward_prefetch);
}

bool is_limited(const Policy& policy) {
  return policy.schedule == ScheduleKind::zero_bubble &&
         policy.zero_bubble_memory == ZeroBubbleMemory::as_1f1b;
}

/// Returns the units that may stay gathered: those for which the policy is automatic, and that a
/// plan gathers more than once. The smallest come first, so that as many as possible have room.
std::vector<std::string> units_to_keep(const StepPlan& plan, const Policy& policy) {
  std::vector<std::pair<std::int64_t, std::string>> units;
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
    const PlannedUnit& unit = plan.units[static_cast<std::size_t>(u)];
    Reshard reshard = policy.reshard_after_forward;
    for (const UnitRule& rule : policy.units)
      if (rule.reshard_after_forward && matches(rule.pattern, unit.name))
        reshard = *rule.reshard_after_forward;
    const auto gathered =
        std::count_if(plan.buffers.begin(), plan.buffers.end(), [&](const Buffer& buffer) {
          return buffer.category == Category::gathered && buffer.flats == unit.flats &&
                 buffer.divided == unit.layouts.gathered.divided;
        });
    if (reshard.kind == Reshard::automatic && gathered > 1)
      units.emplace_back(unit.parameter_elements, unit.name);
  }
  std::stable_sort(units.begin(), units.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (const auto& [size, name] : units) names.push_back(name);
  return names;
}

/// The stages of a pipeline, and their plans so far.
class StagePlans {
 public:
  StagePlans(const ModelDescription& model, const std::vector<UnitRange>& chunks,
             int ranks_of_stage, const Policy& policy, Purpose purpose, int threads,
             std::shared_ptr<ArenaSizeCache> arenas = std::make_shared<ArenaSizeCache>())
      : policy_(&policy),
        arenas_(std::move(arenas)),
        purpose_(purpose),
        threads_(threads),
        first_backward_(first_backward(model, chunks)),
        grid_(make_grid(model, ranks_of_stage, policy,
                        static_cast<int>(chunks.size()) / policy.chunks)) {
    for (ModelDescription& stage : make_stages(model, chunks, grid_.stages())) {
      const int number = static_cast<int>(stages_.size());
      Policy own = policy_of_stage(policy, stage);
      stages_.push_back({number, std::move(own), std::move(stage)});
    }
  }

  /// Plans all stages in the order of `schedule`.
  void build(ScheduleKind schedule) {
    const Pipeline pipeline = order(schedule);
    for_each([&](Stage& stage) {
      stage.pipeline = pipeline;
      stage.plan = build(stage, stage.policy, stage.most_waiting);
      stage.arena = -1;
    });
  }

  std::vector<std::int64_t> arenas() {
    for_each([&](Stage& stage) {
      if (stage.arena < 0) stage.arena = arenas_->arena_bytes(stage.plan);
    });
    std::vector<std::int64_t> bytes;
    for (const Stage& stage : stages_) bytes.push_back(stage.arena);
    return bytes;
  }
  /// Whether all arenas are smaller than `limit`.
  bool are_below(std::int64_t limit) {
    return std::all_of(stages_.begin(), stages_.end(),
                       [&](const Stage& stage) { return peak_live_bytes(stage.plan) < limit; }) &&
           largest_arena() < limit;
  }
  /// The time of a step in which only floating-point operations take time, one per second.
  double computing_time() const {
    std::vector<const StepPlan*> plans;
    for (const Stage& stage : stages_) plans.push_back(&stage.plan);
    constexpr double no_time = 1e300;
    return estimate_times(plans, 0, {1.0, no_time, no_time, no_time, no_time}).front().seconds;
  }
  std::int64_t largest_arena() {
    const std::vector<std::int64_t> bytes = arenas();
    return *std::max_element(bytes.begin(), bytes.end());
  }

  /// Uses, in a training step, the memory that the stage with the largest arena needs on the other
  /// stages.
  void use_memory() {
    if (grid_.stages() == 1) return;
    const std::int64_t limit = largest_arena();
    if (is_limited(*policy_)) defer(limit);
    keep_gathered(limit);
  }

  /// Defers gradients of parameters as zero_bubble says, but with no arena above `limit`.
  void defer(std::int64_t limit) {
    const Pipeline pipeline = order(ScheduleKind::zero_bubble);
    for_each([&](Stage& stage) {
      const PipelineSchedule& turns = pipeline.turns[static_cast<std::size_t>(stage.number)];
      const ModelDescription model = with_deferral(stage.model, stage.policy, turns);
      // Tasks don't depend on layouts here: early updates come after the last gradients in any
      // case.
      const Tasks tasks = make_tasks(model, Purpose::train, turns, Layouts{});
      if (waiting_bytes(model, tasks) == 0) return;  // the stage defers nothing
      Stage deferring = stage;
      deferring.pipeline = pipeline;
      find_most_waiting(model, tasks, [&](std::int64_t most) {
        deferring.plan = build(deferring, deferring.policy, most);
        deferring.most_waiting = most;
        deferring.arena = arena_up_to(limit, deferring.plan);
        const bool has_room = deferring.arena <= limit;
        if (has_room) stage = deferring;
        return has_room;
      });
    });
  }

  /// Keeps units gathered, as many as there is room for in arenas of `limit`.
  void keep_gathered(std::int64_t limit) {
    for_each([&](Stage& stage) {
      const std::vector<std::string> units = units_to_keep(stage.plan, stage.policy);
      const auto keep = [&](std::size_t count) {
        Policy keeping = stage.policy;
        for (std::size_t u = 0; u < count; ++u)
          keeping.units.push_back({units[u], Reshard{Reshard::end_of_step, 0}, {}, {}});
        StepPlan plan = build(stage, keeping, stage.most_waiting);
        const std::int64_t arena = arena_up_to(limit, plan);
        if (arena > limit) return false;
        stage.plan = std::move(plan);
        stage.arena = arena;
        return true;
      };
      if (units.empty() || keep(units.size())) return;
      // This finds not the maximum, but comes close to it after a few plans.
      constexpr int builds = 4;
      std::size_t low = 0, high = units.size();
      for (int i = 0; i < builds && high - low > 1; ++i) {
        const std::size_t count = low + (high - low) / 2;
        (keep(count) ? low : high) = count;
      }
    });
  }

  std::vector<StepPlan> take_plans() {
    std::vector<StepPlan> plans;
    for (Stage& stage : stages_) plans.push_back(std::move(stage.plan));
    return plans;
  }

 private:
  struct Stage {
    int number = 0;
    Policy policy;
    ModelDescription model;
    Pipeline pipeline = {};
    std::int64_t most_waiting = std::numeric_limits<std::int64_t>::max();
    StepPlan plan = {};
    std::int64_t arena = -1;  // size of the plan's arena; -1: not known
  };

  template <class Work>
  void for_each(const Work& work) {
    in_threads(threads_, static_cast<std::int64_t>(stages_.size()),
               [&](int, std::int64_t s) { work(stages_[static_cast<std::size_t>(s)]); });
  }

  /// Returns the arena size, or a lower bound if it is above `limit`.
  std::int64_t arena_up_to(std::int64_t limit, const StepPlan& plan) const {
    const std::int64_t least = peak_live_bytes(plan);
    return least > limit ? least : arenas_->arena_bytes(plan);
  }

  Pipeline order(ScheduleKind schedule) const {
    const auto micro_batches = static_cast<int>(grid_.micro_batches());
    return make_pipeline(schedule, grid_.stages(), policy_->chunks, first_backward_,
                         leaf_sequence(micro_batches, policy_->leaf_order), !trains(purpose_));
  }

  StepPlan build(const Stage& stage, const Policy& policy, std::int64_t most_waiting) const {
    return build_plan(stage.model, grid_, stage.number, stage.pipeline, policy, purpose_,
                      most_waiting);
  }

  const Policy* policy_;
  std::shared_ptr<ArenaSizeCache> arenas_;  // shared with other divisions
  Purpose purpose_;
  int threads_;
  int first_backward_;
  Grid grid_;
  std::vector<Stage> stages_;
};

/// Returns chunks with a unit less in `from` and one more in `to`; chunks between pass one on.
std::vector<UnitRange> with_moved(std::vector<UnitRange> chunks, int from, int to) {
  const int by = from < to ? -1 : 1;
  for (int c = std::min(from, to); c < std::max(from, to); ++c) {
    chunks[c].end += by;
    chunks[c + 1].first += by;
  }
  return chunks;
}

/// Returns the result of find_chunks, and the training steps that were planned to find it.
std::pair<std::vector<UnitRange>, StagePlans> find_stages(const ModelDescription& model,
                                                          int ranks_of_stage, const Policy& policy,
                                                          int threads) {
  check_step(model, policy, Purpose::train, ranks_of_stage);
  check_names(policy, model);
  std::vector<UnitRange> chunks = make_chunks(model, policy);
  // Stages with as many units are alike in many divisions, so arena sizes are cached.
  const auto known = std::make_shared<ArenaSizeCache>();
  const auto plan = [&](const std::vector<UnitRange>& some) {
    StagePlans plans(model, some, ranks_of_stage, policy, Purpose::train, threads, known);
    plans.build(schedule_of_memory(policy));
    return plans;
  };
  StagePlans planned = plan(chunks);
  if (!moves_units(policy)) return {chunks, std::move(planned)};
  int tries_left = 2 * policy.stages + 8;  // each plans all stages
  constexpr int most_tries = 3;            // attempts to take a unit from a chunk
  double busiest = 0.0;
  for (const UnitRange& chunk : chunks) busiest = std::max(busiest, flops_of(model, chunk));
  busiest *= max_slowdown;
  std::optional<double> most_time;
  const int count = static_cast<int>(chunks.size());
  for (bool moves = true; moves;) {
    moves = false;
    const std::vector<std::int64_t> arenas = planned.arenas();
    const auto largest = std::max_element(arenas.begin(), arenas.end());
    const int stage = static_cast<int>(largest - arenas.begin());
    std::vector<int> others;  // chunks, those of the smallest arenas first
    for (int c = 0; c < count; ++c)
      if (arenas[c % policy.stages] < *largest) others.push_back(c);
    std::stable_sort(others.begin(), others.end(), [&](int one, int other) {
      return arenas[one % policy.stages] < arenas[other % policy.stages];
    });
    for (int from = stage; from < count && !moves; from += policy.stages) {
      int tries = 0;
      for (const int to : others) {
        if (chunks[from].end - chunks[from].first < 2 || tries == most_tries) break;
        const std::vector<UnitRange> moved = with_moved(chunks, from, to);
        const bool is_busier = std::any_of(moved.begin(), moved.end(), [&](const UnitRange& chunk) {
          return flops_of(model, chunk) > busiest;
        });
        if (is_busier) continue;
        if (tries_left-- == 0) return {chunks, std::move(planned)};
        ++tries;
        StagePlans then = plan(moved);
        if (!then.are_below(*largest)) continue;
        // At the first smaller division, `planned` still has the one that all others are compared
        // with.
        if (!most_time) most_time = max_slowdown * planned.computing_time();
        if (then.computing_time() > *most_time) continue;
        chunks = moved;
        planned = std::move(then);
        moves = true;
        break;
      }
    }
  }
  return {chunks, std::move(planned)};
}

}  // namespace

double flops_of(const ModelDescription& model, const UnitRange& units) {
  double sum = 0.0;
  for (int u = units.first; u < units.end; ++u)
    sum += flops(model.units[u].forward) + flops(model.units[u].backward);
  return sum;
}

ScheduleKind schedule_of_memory(const Policy& policy) {
  return is_limited(policy) ? ScheduleKind::one_forward_one_backward : policy.schedule;
}

bool moves_units(const Policy& policy) {
  // If zero_bubble has the memory of 1f1b, less memory would mean a longer bubble.
  return policy.stages > 1 && policy.chunk_units.empty() && !is_limited(policy);
}

std::vector<UnitRange> find_chunks(const ModelDescription& model, int ranks_of_stage,
                                   const Policy& policy) {
  return moves_units(policy) ? find_stages(model, ranks_of_stage, policy, 1).first
                             : make_chunks(model, policy);
}

std::vector<StepPlan> build_stage_plans(const ModelDescription& model,
                                        const std::vector<UnitRange>& chunks, int ranks_of_stage,
                                        const Policy& policy, Purpose purpose, int threads) {
  check_step(model, policy, purpose, ranks_of_stage);
  check_names(policy, model);
  const int stages = static_cast<int>(chunks.size()) / policy.chunks;
  require(purpose != Purpose::decode || stages == 1,
          "decoding is one rank's: expected one stage, not ", stages);
  StagePlans plans(model, chunks, ranks_of_stage, policy, purpose, threads);
  if (!trains(purpose)) {
    plans.build(policy.schedule);
    return plans.take_plans();
  }
  plans.build(schedule_of_memory(policy));
  plans.use_memory();
  return plans.take_plans();
}

std::vector<StepPlan> build_plain_stages(const ModelDescription& model, int ranks_of_stage,
                                         const Policy& policy) {
  check_step(model, policy, Purpose::train, ranks_of_stage);
  check_names(policy, model);
  StagePlans plans(model, make_chunks(model, policy), ranks_of_stage, policy, Purpose::train, 1);
  plans.build(policy.schedule);
  return plans.take_plans();
}

TrainingStages plan_training(const ModelDescription& model, int ranks_of_stage,
                             const Policy& policy, int threads) {
  auto [chunks, plans] = find_stages(model, ranks_of_stage, policy, threads);
  plans.use_memory();
  TrainingStages training;
  training.chunks = std::move(chunks);
  training.arenas = plans.arenas();
  training.plans = plans.take_plans();
  return training;
}

}  // namespace ostrakon::plan
