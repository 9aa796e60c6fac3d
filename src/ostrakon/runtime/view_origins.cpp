// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/runtime/view_origins.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ostrakon::runtime {
namespace {

std::size_t index_of(const Program& program, const plan::Action& action) {
  return static_cast<std::size_t>(&action - program.plan.actions.data());
}

}  // namespace

/// Whether the origins are those of a program. False also if its plan was changed so that actions
/// have other uses.
bool ViewOrigins::OfProgram::fits(const Program& program) const {
  const std::vector<plan::Action>& actions = program.plan.actions;
  if (id != program.id.value() || first.size() != actions.size() + 1) return false;
  for (std::size_t a = 0; a < actions.size(); ++a)
    if (first[a + 1] - first[a] != actions[a].uses.size()) return false;
  return true;
}

void ViewOrigins::prepare(const Program& program) {
  if (views_check) find_or_add(program);
}

void ViewOrigins::find_or_add(const Program& program) {
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

const ViewOrigin* ViewOrigins::of(const Program& program, const plan::Action& action,
                                  int buffer) const {
  const auto used = std::find_if(action.uses.begin(), action.uses.end(),
                                 [&](const plan::Use& use) { return use.buffer == buffer; });
  if (used == action.uses.end())
    throw std::logic_error(program.plan.describe(action) + " does not use the buffer '" +
                           program.plan.buffers[buffer].name + "'");
  const auto place = static_cast<std::size_t>(used - action.uses.begin());
  return now_->all.get() + now_->first[index_of(program, action)] + place;
}

const ViewOrigin* ViewOrigins::of_none(const Program& program, const plan::Action& action,
                                       plan::Role role) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [found, is_new] = now_->none.try_emplace({index_of(program, action), role});
  if (is_new) {
    found->second.buffer = plan::name(role);
    found->second.action = program.plan.describe(action);
  }
  return &found->second;
}

}  // namespace ostrakon::runtime
