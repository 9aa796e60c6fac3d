// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/stage_plans.hpp>

#include <algorithm>
#include <limits>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/build.hpp>
#include <ostrakon/plan/deferral.hpp>
#include <ostrakon/plan/levels.hpp>
#include <ostrakon/plan/memory_plan.hpp>
#include <ostrakon/plan/pipeline_schedule.hpp>
#include <ostrakon/plan/tasks.hpp>
#include <ostrakon/plan/timing.hpp>
#include <utility>

namespace ostrakon::plan {
namespace {

/// What is wrong with names of units is so for the model as a whole.
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

/// The schedule with which the memory is planned that stages have.
ScheduleKind schedule_of_memory(const Policy& policy) {
  return is_limited(policy) ? ScheduleKind::one_forward_one_backward : policy.schedule;
}

/// Units whose parameters may stay gathered: those for which the policy leaves it open, and that a
/// plan has gathered more than once. The smallest first, so that as many as can be have room.
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

/// The stages of a pipeline, and their plans as far as they have come.
class StagePlans {
 public:
  StagePlans(const ModelDescription& model, const std::vector<UnitRange>& chunks,
             int ranks_of_stage, const Policy& policy, Purpose purpose)
      : policy_(policy),
        purpose_(purpose),
        first_backward_(first_backward(model, chunks)),
        grid_(make_grid(model, ranks_of_stage, policy,
                        static_cast<int>(chunks.size()) / policy.chunks)) {
    for (ModelDescription& stage : make_stages(model, chunks, grid_.stages())) {
      const int number = static_cast<int>(stages_.size());
      Policy own = policy_of_stage(policy, stage);
      stages_.push_back({number, std::move(own), std::move(stage)});
    }
  }

  /// All stages, in the order of `schedule`.
  void build(ScheduleKind schedule) {
    const Pipeline pipeline = order(schedule);
    for (Stage& stage : stages_) {
      stage.pipeline = pipeline;
      stage.plan = build(stage, stage.policy, stage.most_waiting);
    }
  }

  std::vector<std::int64_t> arenas() const {
    std::vector<std::int64_t> bytes;
    for (const Stage& stage : stages_) bytes.push_back(plan_memory(stage.plan).arena_bytes);
    return bytes;
  }
  /// Of a step in which nothing but floating-point operations takes time, one each second.
  double computing_time() const {
    std::vector<const StepPlan*> plans;
    for (const Stage& stage : stages_) plans.push_back(&stage.plan);
    constexpr double no_time = 1e300;
    return estimate_times(plans, 0, {1.0, no_time, no_time, no_time, no_time}).front().seconds;
  }
  std::int64_t largest_arena() const {
    const std::vector<std::int64_t> bytes = arenas();
    return *std::max_element(bytes.begin(), bytes.end());
  }

  /// Defers gradients of parameters as zero_bubble says, but with no arena above `limit`.
  void defer(std::int64_t limit) {
    const Pipeline pipeline = order(ScheduleKind::zero_bubble);
    for (Stage& stage : stages_) {
      const PipelineSchedule& turns = pipeline.turns[static_cast<std::size_t>(stage.number)];
      const ModelDescription model = with_deferral(stage.model, stage.policy, turns);
      // Early updates come after the last gradients in any case.
      const Tasks tasks = make_tasks(model, Purpose::train, turns, Layouts{});
      if (waiting_bytes(model, tasks) == 0) continue;  // it defers nothing
      Stage deferring = stage;
      deferring.pipeline = pipeline;
      find_most_waiting(model, tasks, [&](std::int64_t most) {
        deferring.plan = build(deferring, deferring.policy, most);
        deferring.most_waiting = most;
        const bool has_room = plan_memory(deferring.plan).arena_bytes <= limit;
        if (has_room) stage = deferring;
        return has_room;
      });
    }
  }

  /// Has units stay gathered, as many as there is room for in arenas of `limit`.
  void keep_gathered(std::int64_t limit) {
    for (Stage& stage : stages_) {
      const std::vector<std::string> units = units_to_keep(stage.plan, stage.policy);
      const auto keep = [&](std::size_t count) {
        Policy keeping = stage.policy;
        for (std::size_t u = 0; u < count; ++u)
          keeping.units.push_back({units[u], Reshard{Reshard::end_of_step, 0}, {}, {}});
        StepPlan plan = build(stage, keeping, stage.most_waiting);
        const bool has_room = plan_memory(plan).arena_bytes <= limit;
        if (has_room) stage.plan = std::move(plan);
        return has_room;
      };
      if (units.empty() || keep(units.size())) continue;
      // Not the most there could be, but close to it after a few plans.
      constexpr int builds = 4;
      std::size_t low = 0, high = units.size();
      for (int i = 0; i < builds && high - low > 1; ++i) {
        const std::size_t count = low + (high - low) / 2;
        (keep(count) ? low : high) = count;
      }
    }
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
  };

  Pipeline order(ScheduleKind schedule) const {
    const auto micro_batches = static_cast<int>(grid_.micro_batches());
    return make_pipeline(schedule, grid_.stages(), policy_.chunks, first_backward_,
                         leaf_sequence(micro_batches, policy_.leaf_order),
                         purpose_ != Purpose::train);
  }

  StepPlan build(const Stage& stage, const Policy& policy, std::int64_t most_waiting) const {
    return build_plan(stage.model, grid_, stage.number, stage.pipeline, policy, purpose_,
                      most_waiting);
  }

  const Policy& policy_;
  Purpose purpose_;
  int first_backward_;
  Grid grid_;
  std::vector<Stage> stages_;
};

double flops_of(const ModelDescription& model, const UnitRange& chunk) {
  double sum = 0.0;
  for (int u = chunk.first; u < chunk.end; ++u)
    sum += flops(model.units[u].forward) + flops(model.units[u].backward);
  return sum;
}

/// With a unit less in chunk `from` and one more in `to`; those between pass one on.
std::vector<UnitRange> with_moved(std::vector<UnitRange> chunks, int from, int to) {
  const int by = from < to ? -1 : 1;
  for (int c = std::min(from, to); c < std::max(from, to); ++c) {
    chunks[c].end += by;
    chunks[c + 1].first += by;
  }
  return chunks;
}

}  // namespace

std::vector<UnitRange> find_chunks(const ModelDescription& model, int ranks_of_stage,
                                   const Policy& policy) {
  std::vector<UnitRange> chunks = make_chunks(model, policy);
  // With zero_bubble in the memory of 1f1b less memory would be a longer bubble.
  if (policy.stages == 1 || !policy.chunk_units.empty() || is_limited(policy)) return chunks;
  check_step(model, policy, Purpose::train, ranks_of_stage);
  check_names(policy, model);
  struct Planned {
    std::vector<std::int64_t> arenas;  // of stages
    double time;
  };
  const auto plan = [&](const std::vector<UnitRange>& some) {
    StagePlans plans(model, some, ranks_of_stage, policy, Purpose::train);
    plans.build(policy.schedule);
    return Planned{plans.arenas(), plans.computing_time()};
  };
  int tries_left = 2 * policy.stages + 8;  // each plans all stages
  constexpr int most_tries = 3;            // to take a unit from a chunk
  constexpr double no_longer = 1.001;
  double busiest = 0.0;
  for (const UnitRange& chunk : chunks) busiest = std::max(busiest, flops_of(model, chunk));
  busiest *= no_longer;
  Planned planned = plan(chunks);
  const double most_time = no_longer * planned.time;
  const int count = static_cast<int>(chunks.size());
  for (bool moves = true; moves;) {
    moves = false;
    const std::vector<std::int64_t>& arenas = planned.arenas;
    const auto largest = std::max_element(arenas.begin(), arenas.end());
    const int stage = static_cast<int>(largest - arenas.begin());
    std::vector<int> others;  // chunks, of the smallest arenas first
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
        if (tries_left-- == 0) return chunks;
        ++tries;
        Planned then = plan(moved);
        if (*std::max_element(then.arenas.begin(), then.arenas.end()) >= *largest ||
            then.time > most_time)
          continue;
        chunks = moved;
        planned = std::move(then);
        moves = true;
        break;
      }
    }
  }
  return chunks;
}

std::vector<StepPlan> build_stage_plans(const ModelDescription& model,
                                        const std::vector<UnitRange>& chunks, int ranks_of_stage,
                                        const Policy& policy, Purpose purpose) {
  check_step(model, policy, purpose, ranks_of_stage);
  check_names(policy, model);
  const int stages = static_cast<int>(chunks.size()) / policy.chunks;
  require(purpose != Purpose::decode || stages == 1,
          "decoding is one rank's: expected one stage, not ", stages);
  StagePlans plans(model, chunks, ranks_of_stage, policy, purpose);
  if (purpose != Purpose::train) {
    plans.build(policy.schedule);
    return plans.take_plans();
  }
  plans.build(schedule_of_memory(policy));
  const std::int64_t limit = stages > 1 ? plans.largest_arena() : 0;
  if (is_limited(policy)) plans.defer(limit);
  if (stages > 1) plans.keep_gathered(limit);
  return plans.take_plans();
}

}  // namespace ostrakon::plan
