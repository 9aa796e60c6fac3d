// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/stages.hpp>

#include <algorithm>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/build.hpp>
#include <ostrakon/plan/levels.hpp>
#include <ostrakon/plan/tasks.hpp>

namespace ostrakon::plan {
namespace {

void check_stages(const ModelDescription& model, const std::vector<UnitRange>& stages) {
  const int units = static_cast<int>(model.units.size());
  int next = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    require(stages[s].first == next && stages[s].end > next && stages[s].end <= units, "stage ", s,
            " has the units [", stages[s].first, ", ", stages[s].end, "), expected some from ",
            next, " on, of ", units);
    next = stages[s].end;
    if (next == units) continue;
    const UnitDescription& last = model.units[next - 1];
    require(last.output_bytes > 0, "unit ", last.name, " is the last of stage ", s,
            " and leaves nothing for the next");
    for (std::int64_t bytes : {last.output_bytes, model.gradient_bytes})
      require(bytes % model.element_bytes == 0, "unit ", last.name, " is the last of stage ", s,
              " and passes on ", bytes, " bytes, which is not a multiple of the dtype's ",
              model.element_bytes, " bytes");
  }
  require(next == units, "the stages have ", next, " units of ", units);
  for (const UnitRange& stage : stages)
    for (int u = stage.first; u < stage.end; ++u) {
      const int other = model.units[u].tied_to;
      require(other < 0 || other >= stage.first, "unit ", model.units[u].name, " is tied to ",
              model.units[std::max(other, 0)].name, ", a unit of another stage");
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

}  // namespace

std::vector<UnitRange> divide_units(const ModelDescription& model, int stages) {
  const int units = static_cast<int>(model.units.size());
  require(stages >= 1 && stages <= units, "expected at least as many units as stages: ", units,
          " units in ", stages, " stages");
  std::vector<double> before(static_cast<std::size_t>(units) + 1, 0.0);
  for (int u = 0; u < units; ++u)
    before[u + 1] = before[u] + flops(model.units[u].forward) + flops(model.units[u].backward);
  // Of the first `end` units in s stages: the least that the busiest stage can have, and where the
  // last stage begins then.
  std::vector<std::vector<double>> least(
      stages + 1, std::vector<double>(units + 1, std::numeric_limits<double>::infinity()));
  std::vector<std::vector<int>> begins(stages + 1, std::vector<int>(units + 1, 0));
  least[0][0] = 0.0;
  for (int s = 1; s <= stages; ++s)
    for (int end = s; end <= units; ++end)
      for (int begin = s - 1; begin < end; ++begin) {
        const double busiest = std::max(least[s - 1][begin], before[end] - before[begin]);
        if (!(busiest < least[s][end])) continue;
        least[s][end] = busiest;
        begins[s][end] = begin;
      }
  std::vector<UnitRange> ranges(static_cast<std::size_t>(stages));
  for (int s = stages, end = units; s > 0; end = begins[s--][end])
    ranges[s - 1] = {begins[s][end], end};
  return ranges;
}

ModelDescription model_of_stage(const ModelDescription& model, UnitRange units) {
  ModelDescription stage = model;
  stage.units.assign(model.units.begin() + units.first, model.units.begin() + units.end);
  for (UnitDescription& unit : stage.units)
    if (unit.tied_to >= 0) unit.tied_to -= units.first;
  if (units.first > 0) {
    stage.input_bytes = model.units[units.first - 1].output_bytes;
    stage.input_has_gradient = first_trained(model) < units.first;
  }
  stage.has_loss = units.end == static_cast<int>(model.units.size());
  return stage;
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
                                        const std::vector<UnitRange>& stages, int ranks_of_stage,
                                        const Policy& policy, Purpose purpose) {
  check_step(model, policy, purpose, ranks_of_stage);
  check_stages(model, stages);
  check_names(policy, model);
  const int count = static_cast<int>(stages.size());
  require(purpose != Purpose::decode || count == 1,
          "decoding is one rank's: expected one stage, "
          "not ",
          count);
  const Grid grid = make_grid(model, ranks_of_stage, policy, count);
  std::vector<StepPlan> plans;
  for (int s = 0; s < count; ++s) {
    const ModelDescription stage = model_of_stage(model, stages[s]);
    plans.push_back(build_plan(stage, grid, s, policy_of_stage(policy, stage), purpose));
  }
  return plans;
}

}  // namespace ostrakon::plan
