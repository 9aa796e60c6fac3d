// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/stages.hpp>

#include <algorithm>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/build.hpp>
#include <ostrakon/plan/deferral.hpp>
#include <ostrakon/plan/levels.hpp>
#include <ostrakon/plan/memory_plan.hpp>
#include <ostrakon/plan/pipeline_schedule.hpp>
#include <ostrakon/plan/tasks.hpp>
#include <utility>

namespace ostrakon::plan {
namespace {

void check_chunks(const ModelDescription& model, const std::vector<UnitRange>& chunks) {
  const int units = static_cast<int>(model.units.size());
  int next = 0;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    require(chunks[c].first == next && chunks[c].end > next && chunks[c].end <= units, "chunk ", c,
            " has the units [", chunks[c].first, ", ", chunks[c].end, "), expected some from ",
            next, " on, of ", units);
    next = chunks[c].end;
    if (next == units) continue;
    const UnitDescription& last = model.units[next - 1];
    require(last.output_bytes > 0, "unit ", last.name, " is the last of chunk ", c,
            " and leaves nothing for the next");
    for (std::int64_t bytes : {last.output_bytes, model.gradient_bytes})
      require(bytes % model.element_bytes == 0, "unit ", last.name, " is the last of chunk ", c,
              " and passes on ", bytes, " bytes, which is not a multiple of the dtype's ",
              model.element_bytes, " bytes");
  }
  require(next == units, "the chunks have ", next, " units of ", units);
}

/// The first chunk with a unit that is trained; as many as there are where none is.
int first_backward(const ModelDescription& model, const std::vector<UnitRange>& chunks) {
  int first = 0;
  for (const UnitRange& chunk : chunks) {
    for (int u = chunk.first; u < chunk.end; ++u)
      if (model.units[u].trained_elements() > 0) return first;
    ++first;
  }
  return first;
}

/// Puts what units of a stage are tied to in other stages before them, as copies.
void borrow_tied(const ModelDescription& model, const std::vector<UnitRange>& chunks, int stages,
                 ModelDescription& stage) {
  std::vector<UnitDescription> borrowed;
  for (UnitDescription& unit : stage.units) {
    const auto is_it = [&](const UnitDescription& other) { return other.number == unit.tied_to; };
    if (unit.tied_to < 0 || std::any_of(stage.units.begin(), stage.units.end(), is_it)) continue;
    UnitDescription copy = model.units[unit.tied_to];
    copy.number = unit.tied_to;
    copy.recomputes = copy.reads_batch = false;
    copy.tied_to = -1;
    copy.whole_matrices.clear();
    for (std::size_t c = 0; c < chunks.size(); ++c)
      if (chunks[c].has(unit.tied_to)) copy.borrowed_from = static_cast<int>(c) % stages;
    borrowed.push_back(copy);
    unit.sums_tied_apart = unit.tied_gradients;
  }
  const int before = static_cast<int>(borrowed.size());
  stage.units.insert(stage.units.begin(), borrowed.begin(), borrowed.end());
  for (Chunk& chunk : stage.chunks) {
    chunk.units.first += before;
    chunk.units.end += before;
  }
}

/// Notes who has copies of a stage's units, and whether that changes the order of sums.
void note_copies(const ModelDescription& model, std::vector<ModelDescription>& stages) {
  for (int s = 0; s < static_cast<int>(stages.size()); ++s)
    for (const UnitDescription& unit : stages[s].units) {
      const int tied_to = unit.number < 0 ? -1 : model.units[unit.number].tied_to;
      if (tied_to < 0) continue;
      for (ModelDescription& other : stages)
        for (UnitDescription& lent : other.units)
          if (lent.number == tied_to && lent.borrowed_from < 0 && &other != &stages[s]) {
            lent.lent_to = s;
            lent.lent_has_gradient = unit.tied_gradients && lent.trained_elements() > 0;
          }
      if (unit.sums_tied_apart == model.units[unit.number].sums_tied_apart) continue;
      for (ModelDescription& other : stages) other.splits_ties = true;
    }
}

/// Ties of a stage's units become ties among them.
void renumber_ties(ModelDescription& stage) {
  for (UnitDescription& unit : stage.units) {
    if (unit.tied_to < 0) continue;
    const auto found =
        std::find_if(stage.units.begin(), stage.units.end(),
                     [&](const UnitDescription& other) { return other.number == unit.tied_to; });
    unit.tied_to = static_cast<int>(found - stage.units.begin());
  }
}

/// Of a list of units to prefetch by name, those of the stage.
std::optional<Prefetch> only_of_stage(std::optional<Prefetch> prefetch,
                                      const ModelDescription& stage) {
  if (!prefetch || prefetch->units.empty()) return prefetch;
  std::vector<std::string>& names = prefetch->units;
  names.erase(std::remove_if(names.begin(), names.end(),
                             [&](const std::string& name) {
                               return std::none_of(
                                   stage.units.begin(), stage.units.end(),
                                   [&](const UnitDescription& unit) { return unit.name == name; });
                             }),
              names.end());
  // The list stands instead of the next units, also where none of it is left.
  if (names.empty()) prefetch->depth = 0;
  return prefetch;
}

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

/// The same stages, which defer gradients of parameters as `pipeline` says, but none with a larger
/// arena than the largest of `plans`, which do not.
std::vector<StepPlan> defer(std::vector<StepPlan> plans,
                            const std::vector<ModelDescription>& stages, const Grid& grid,
                            const Pipeline& pipeline, const Policy& policy) {
  std::int64_t limit = 0;
  for (const StepPlan& plan : plans) limit = std::max(limit, plan_memory(plan).arena_bytes);
  for (std::size_t s = 0; s < plans.size(); ++s) {
    const PipelineSchedule& turns = pipeline.turns[s];
    const Policy own = policy_of_stage(policy, stages[s]);
    const ModelDescription deferring = with_deferral(stages[s], own, turns);
    // Early updates come after the last gradients in any case.
    const Tasks tasks = make_tasks(deferring, Purpose::train, turns, Layouts{});
    if (waiting_bytes(deferring, tasks) == 0) continue;  // it defers nothing
    plans[s] = build_within(
        limit, deferring, tasks,
        [&](std::int64_t most) {
          return build_plan(stages[s], grid, static_cast<int>(s), pipeline, own, Purpose::train,
                            most);
        },
        std::move(plans[s]));
  }
  return plans;
}

}  // namespace

std::vector<UnitRange> divide_units(const ModelDescription& model, int chunks) {
  const int units = static_cast<int>(model.units.size());
  require(chunks >= 1 && chunks <= units, "expected at least as many units as chunks: ", units,
          " units in ", chunks, " chunks");
  std::vector<double> before(static_cast<std::size_t>(units) + 1, 0.0);
  for (int u = 0; u < units; ++u)
    before[u + 1] = before[u] + flops(model.units[u].forward) + flops(model.units[u].backward);
  // Of the first `end` units in c chunks: the least that the busiest chunk can have, and where the
  // last chunk begins then.
  std::vector<std::vector<double>> least(
      chunks + 1, std::vector<double>(units + 1, std::numeric_limits<double>::infinity()));
  std::vector<std::vector<int>> begins(chunks + 1, std::vector<int>(units + 1, 0));
  least[0][0] = 0.0;
  for (int c = 1; c <= chunks; ++c)
    for (int end = c; end <= units; ++end)
      for (int begin = c - 1; begin < end; ++begin) {
        const double busiest = std::max(least[c - 1][begin], before[end] - before[begin]);
        if (!(busiest < least[c][end])) continue;
        least[c][end] = busiest;
        begins[c][end] = begin;
      }
  std::vector<UnitRange> ranges(static_cast<std::size_t>(chunks));
  for (int c = chunks, end = units; c > 0; end = begins[c--][end])
    ranges[c - 1] = {begins[c][end], end};
  return ranges;
}

std::vector<UnitRange> make_chunks(const ModelDescription& model, const Policy& policy) {
  const std::vector<int>& given = policy.chunk_units;
  const std::int64_t count = std::int64_t{policy.stages} * policy.chunks;
  const int units = static_cast<int>(model.units.size());
  if (given.empty()) {
    require(count <= units, "parallel.pipeline = ", policy.stages,
            policy.chunks > 1 ? text(" with parallel.pipeline_chunks = ", policy.chunks) : "",
            " needs at least ", count, " units, but the model has ", units,
            "; expected fewer, or more units (model.blocks_per_unit)");
    return divide_units(model, static_cast<int>(count));
  }
  require(static_cast<std::int64_t>(given.size()) == count, "parallel.pipeline_units has ",
          given.size(), " numbers; expected ", count, ", one for each chunk of each stage");
  std::vector<UnitRange> chunks;
  int next = 0;
  for (int of_chunk : given) {
    chunks.push_back({next, next + of_chunk});
    next += of_chunk;
  }
  require(next == units, "parallel.pipeline_units are ", next, " units in all; the model has ",
          units);
  return chunks;
}

std::vector<ModelDescription> make_stages(const ModelDescription& model,
                                          const std::vector<UnitRange>& chunks, int stages) {
  check_chunks(model, chunks);
  const int count = static_cast<int>(chunks.size());
  require(stages >= 1 && count % stages == 0, count, " chunks in ", stages,
          " stages; expected as many in each");
  const int first_trained = first_backward(model, chunks);
  std::vector<ModelDescription> made;
  for (int s = 0; s < stages; ++s) {
    ModelDescription stage = model;
    stage.units.clear();
    for (int number = s; number < count; number += stages) {
      Chunk chunk;
      chunk.number = number;
      chunk.units.first = static_cast<int>(stage.units.size());
      for (int u = chunks[number].first; u < chunks[number].end; ++u) {
        stage.units.push_back(model.units[u]);
        stage.units.back().number = u;
      }
      chunk.units.end = static_cast<int>(stage.units.size());
      if (number > 0) chunk.input_bytes = model.units[chunks[number].first - 1].output_bytes;
      chunk.input_has_gradient = number > first_trained;
      stage.chunks.push_back(chunk);
    }
    stage.has_loss = s == stages - 1;
    borrow_tied(model, chunks, stages, stage);
    renumber_ties(stage);
    made.push_back(std::move(stage));
  }
  note_copies(model, made);
  return made;
}

Policy policy_of_stage(const Policy& policy, const ModelDescription& stage) {
  Policy ours = policy;
  ours.forward_prefetch = *only_of_stage(policy.forward_prefetch, stage);
  ours.backward_prefetch = *only_of_stage(policy.backward_prefetch, stage);
  ours.units.clear();
  for (UnitRule rule : policy.units) {
    if (std::none_of(stage.units.begin(), stage.units.end(),
                     [&](const UnitDescription& unit) { return matches(rule.pattern, unit.name); }))
      continue;
    rule.forward_prefetch = only_of_stage(rule.forward_prefetch, stage);
    rule.backward_prefetch = only_of_stage(rule.backward_prefetch, stage);
    ours.units.push_back(std::move(rule));
  }
  return ours;
}

std::vector<StepPlan> build_stage_plans(const ModelDescription& model,
                                        const std::vector<UnitRange>& chunks, int ranks_of_stage,
                                        const Policy& policy, Purpose purpose) {
  check_step(model, policy, purpose, ranks_of_stage);
  check_names(policy, model);
  const int count = static_cast<int>(chunks.size()) / policy.chunks;
  const std::vector<ModelDescription> stages = make_stages(model, chunks, count);
  require(purpose != Purpose::decode || count == 1,
          "decoding is one rank's: expected one stage, "
          "not ",
          count);
  const Grid grid = make_grid(model, ranks_of_stage, policy, count);
  const auto order = [&](ScheduleKind schedule) {
    return make_pipeline(schedule, count, policy.chunks, first_backward(model, chunks),
                         leaf_sequence(static_cast<int>(grid.micro_batches()), policy.leaf_order),
                         purpose != Purpose::train);
  };
  const auto build = [&](const Pipeline& pipeline) {
    std::vector<StepPlan> plans;
    for (int s = 0; s < count; ++s)
      plans.push_back(
          build_plan(stages[s], grid, s, pipeline, policy_of_stage(policy, stages[s]), purpose));
    return plans;
  };
  const bool is_limited = policy.schedule == ScheduleKind::zero_bubble &&
                          purpose == Purpose::train &&
                          policy.zero_bubble_memory == ZeroBubbleMemory::as_1f1b;
  if (!is_limited) return build(order(policy.schedule));
  return defer(build(order(ScheduleKind::one_forward_one_backward)), stages, grid,
               order(ScheduleKind::zero_bubble), policy);
}

}  // namespace ostrakon::plan
