// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/runtime/view_origins.hpp>

#include <utility>

namespace ostrakon::runtime {

void ViewOrigins::prepare(const Program& program) {
  const std::vector<plan::Action>& actions = program.plan.actions;
  if (!views_check || (program_ == &program && actions_ == actions.size())) return;
  program_ = &program;
  actions_ = actions.size();
  if (origins_.size() < actions.size()) origins_.resize(actions.size());
  for (std::size_t a = 0; a < actions.size(); ++a) {
    Origins& origins = origins_[a];
    const std::size_t uses = actions[a].uses.size();
    if (origins.count < uses) {
      if (origins.all) retired_.push_back(std::move(origins.all));
      origins.all = std::make_unique<ViewOrigin[]>(uses);
      origins.count = uses;
    }
    for (std::size_t u = 0; u < uses; ++u) {
      origins.all[u].live = false;
      origins.all[u].buffer = program.plan.buffers[actions[a].uses[u].buffer].name;
      origins.all[u].action = program.plan.describe(actions[a]);
    }
  }
}

}  // namespace ostrakon::runtime
