// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/distinct_actions.hpp>

#include <cmath>
#include <cstdint>
#include <map>
#include <utility>

namespace ostrakon::train {
namespace {

using plan::Action;
using plan::Kind;

using Signature = std::vector<std::int64_t>;

/// Returns all properties of a unit that its kernels may depend on, except sizes of buffers.
/// `model` is passed, as making a description takes long.
Signature signature(const ShardLayout& layout, const plan::ModelDescription& model,
                    const TrainerSettings& settings, int unit) {
  const int number = layout.plan().units[unit].number;
  const plan::UnitDescription& own = model.units[static_cast<std::size_t>(number)];
  Signature all = {layout.model().is_known_by_sizes() ? -1 : number, own.tied_to,
                   std::llround(own.gradient_flops)};
  const auto add = [&](const auto& list) {
    all.push_back(static_cast<std::int64_t>(list.size()));
    all.insert(all.end(), list.begin(), list.end());
  };
  for (const plan::Phases* phases : {&own.forward, &own.backward, &own.deferral.backward_at_once}) {
    all.push_back(static_cast<std::int64_t>(phases->size()));
    for (const plan::Phase& phase : *phases) all.push_back(std::llround(phase.flops));
  }
  for (const model::Parameter& parameter : layout.parameters(unit)) {
    all.insert(all.end(), {parameter.offset, parameter.elements(), parameter.frozen ? 1 : 0});
    add(parameter.shape);
    add(parameter.name);
  }
  for (const UpdateRange& range :
       layout.update_ranges(unit, settings.policy.moments.dtype, settings.seed))
    all.insert(all.end(), {static_cast<std::int64_t>(range.rule), range.offset, range.count});
  return all;
}

/// Returns for each unit the first one that is equal to it.
std::vector<int> alike(const ShardLayout& layout, const TrainerSettings& settings) {
  const plan::ModelDescription model = layout.model().description();
  std::map<Signature, int> seen;
  std::vector<int> first;
  for (int u = 0; u < layout.units(); ++u)
    first.push_back(seen.emplace(signature(layout, model, settings, u), u).first->second);
  return first;
}

/// Returns all properties of an action that its kernels may depend on.
Signature signature(const plan::StepPlan& plan, const std::vector<int>& units,
                    const Action& action) {
  Signature all = {static_cast<std::int64_t>(action.kind),
                   action.unit < 0 ? -1 : units[static_cast<std::size_t>(action.unit)],
                   action.phase,
                   action.elements,
                   action.flats.first,
                   action.flats.end,
                   action.element_bytes,
                   action.span.ranks,
                   action.tree,
                   static_cast<std::int64_t>(action.exchange),
                   static_cast<std::int64_t>(action.converts),
                   static_cast<std::int64_t>(action.gradients_opened)};
  for (const plan::Use& use : action.uses) {
    all.push_back(static_cast<std::int64_t>(use.role));
    all.push_back(plan.buffers[static_cast<std::size_t>(use.buffer)].bytes);
  }
  return all;
}

}  // namespace

DistinctActions::DistinctActions(const runtime::Program& all, const ShardLayout& layout,
                                 const TrainerSettings& settings)
    : program(all) {
  const std::vector<int> units = alike(layout, settings);
  std::map<Signature, int> seen;
  std::vector<Action>& actions = program.plan.actions;
  for (int a = 0; a < static_cast<int>(actions.size()); ++a) {
    Action& action = actions[static_cast<std::size_t>(a)];
    const bool is_for_device = action.stream != plan::Stream::host && action.kind != Kind::release;
    like.push_back(is_for_device ? seen.emplace(signature(all.plan, units, action), a).first->second
                                 : -1);
    if (like.back() != a) action.kind = Kind::release;
  }
}

}  // namespace ostrakon::train
