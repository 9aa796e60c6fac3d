// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/warm_up.hpp>

#include <algorithm>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/math/warm_up.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/trainer/distinct_actions.hpp>

namespace ostrakon::train {
namespace {

using plan::Action;
using plan::Kind;

bool is_on_device(const runtime::Program& program, const plan::Use& use) {
  return program.plan.buffers[static_cast<std::size_t>(use.buffer)].space == plan::Space::device;
}

/// Whether an action only copies between host and device, or has all of its arrays on the host.
bool launches_nothing(const runtime::Program& program, const Action& action) {
  return plan::is_copy(action.kind) ||
         std::none_of(action.uses.begin(), action.uses.end(),
                      [&](const plan::Use& use) { return is_on_device(program, use); });
}

/// Sets the context of a step that computes everything: it updates, and repeats updates made before
/// `clip`.
void set_context(StepContext& context, const runtime::Program& program, int rank) {
  context.rank = rank;
  context.program = &program;
  context.step = 1;
  context.visitor = [](int, View<const float*>, View<const float*>) {};
  context.verdict = StepDecision();
  context.assumed = StepDecision();
  context.assumed.gradient_scale = 2.0 * context.verdict.gradient_scale;
}

/// Clears the arrays that an action reads: they were not computed, and zeros are always valid
/// indices.
void clear_arrays(const runtime::Program& program, const Action& action, runtime::Arenas arenas) {
  for (const plan::Use& use : action.uses)
    if (is_on_device(program, use))
      math::clear(Exec(), runtime::view_of<char, OnDevice>(program, arenas, use.buffer));
}

}  // namespace

void warm_up_programs([[maybe_unused]] const StepHandlers::Parts& parts,
                      [[maybe_unused]] runtime::Arenas arenas) {
  if constexpr (!has_device) return;
  const math::WarmUp scope;
  math::warm_up(Exec());
  for (const runtime::Program* all :
       {&parts.programs.train, &parts.programs.evaluate, &parts.programs.export_parameters}) {
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

}  // namespace ostrakon::train
