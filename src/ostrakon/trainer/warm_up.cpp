// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/warm_up.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <ostrakon/math/launch_count.hpp>
#include <ostrakon/math/products/pinned_products.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/math/warm_up.hpp>
#include <ostrakon/runtime/executor.hpp>
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
                   static_cast<std::int64_t>(action.adds_gradients())};
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

namespace {

bool is_on_device(const runtime::Program& program, const plan::Use& use) {
  return program.plan.buffers[static_cast<std::size_t>(use.buffer)].space == plan::Space::device;
}

/// Whether an action only copies between host and device, or has all of its arrays on the host.
bool launches_nothing(const runtime::Program& program, const Action& action) {
  return plan::is_copy(action.kind) ||
         std::none_of(action.uses.begin(), action.uses.end(),
                      [&](const plan::Use& use) { return is_on_device(program, use); });
}

/// Sets the context of a step that computes everything: it updates, repeats updates made before
/// `clip`, and audits the micro-batch whose digests are left in the program, which are those of the
/// first one.
void set_context(StepContext& context, const runtime::Program& program, int rank) {
  context.rank = rank;
  context.program = &program;
  context.step = 1;
  context.visitor = [](int, View<const float*>, View<const float*>) {};
  context.verdict = StepDecision();
  context.assumed = StepDecision();
  context.assumed.gradient_scale = 2.0 * context.verdict.gradient_scale;
  const std::vector<Action>& actions = program.plan.actions;
  const auto digest = std::find_if(actions.begin(), actions.end(), [](const Action& action) {
    return action.kind == Kind::digest && action.micro_batch >= 0;
  });
  if (digest != actions.end()) context.audit.micro_batch = digest->micro_batch;
}

/// Clears the arrays that an action reads: they were not computed, and zeros are always valid
/// indices.
void clear_arrays(const runtime::Program& program, const Action& action, runtime::Arenas arenas) {
  for (const plan::Use& use : action.uses)
    if (is_on_device(program, use))
      math::clear(Exec(), runtime::view_of<char, OnDevice>(program, arenas, use.buffer));
}

/// Calls the handlers of a run for each distinct action of its programs.
void run_distinct_actions(const StepHandlers::Parts& parts, runtime::Arenas arenas) {
  const math::WarmUp scope;
  for (const runtime::Program* all : parts.programs.all()) {
    runtime::Program program = DistinctActions(*all, parts.layout, parts.settings).program;
    for (Action& action : program.plan.actions)
      if (launches_nothing(program, action)) action.kind = Kind::release;
    StepContext context;
    set_context(context, program, parts.context.rank);
    StepHandlers handlers({context, parts.programs, parts.layout, parts.description, parts.settings,
                           parts.channels, parts.guard, parts.world});
    runtime::Executor executor(arenas);
    handlers.install(executor);
    executor.observe([&](const Action& action, bool begins) {
      if (begins) clear_arrays(program, action, arenas);
    });
    executor.run(program);
  }
}

}  // namespace

std::vector<math::NotedProduct> products_of_programs(const StepHandlers::Parts& parts,
                                                     runtime::Arenas arenas) {
  if constexpr (!math::pins_products) return {};
  const math::LaunchCount nothing_runs;
  const math::ProductNotes notes;
  run_distinct_actions(parts, arenas);
  return notes.all();
}

void warm_up_programs(const StepHandlers::Parts& parts, runtime::Arenas arenas) {
  if constexpr (!has_device) return;
  math::warm_up(Exec());
  run_distinct_actions(parts, arenas);
}

}  // namespace ostrakon::train
