// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/runtime/view_origins.hpp>

#include <utility>

namespace ostrakon::runtime {

/// Also false where its plan has been changed so that actions have other uses.
bool ViewOrigins::OfProgram::fits(const Program& program) const {
  const std::vector<plan::Action>& actions = program.plan.actions;
  if (id != program.id.value() || first.size() != actions.size() + 1) return false;
  for (std::size_t a = 0; a < actions.size(); ++a)
    if (first[a + 1] - first[a] != actions[a].uses.size()) return false;
  return true;
}

void ViewOrigins::prepare(const Program& program) {
  if (!views_check) return;
  for (const auto& known : programs_)
    if (known->fits(program)) {
      now_ = known.get();
      return;
    }
  auto made = std::make_unique<OfProgram>();
  made->id = program.id.value();
  made->first.push_back(0);
  for (const plan::Action& action : program.plan.actions)
    made->first.push_back(made->first.back() + action.uses.size());
  made->all = std::make_unique<ViewOrigin[]>(made->first.back());
  ViewOrigin* origin = made->all.get();
  for (const plan::Action& action : program.plan.actions)
    for (const plan::Use& use : action.uses) {
      origin->live = false;
      origin->buffer = program.plan.buffers[use.buffer].name;
      origin->action = program.plan.describe(action);
      ++origin;
    }
  now_ = made.get();
  programs_.push_back(std::move(made));
}

}  // namespace ostrakon::runtime
