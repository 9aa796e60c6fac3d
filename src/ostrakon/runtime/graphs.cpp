// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/runtime/graphs.hpp>

#if OSTRAKON_HAS_DEVICE

#include <exception>
#include <ostrakon/math/launch_count.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <set>

namespace ostrakon::runtime {
namespace {

/// Returns all that the work of an action depends on, besides its inputs.
std::vector<std::int64_t> key_of(const Program& program, const ActionBuffers& buffers) {
  const plan::Action& action = buffers.action;
  std::vector<std::int64_t> key = {static_cast<std::int64_t>(program.plan.purpose),
                                   static_cast<std::int64_t>(action.kind), action.unit,
                                   action.phase, action.adds_gradients() ? 1 : 0};
  for (const plan::Use& use : action.uses) {
    key.push_back(static_cast<std::int64_t>(use.role));
    key.push_back(program.plan.buffers[static_cast<std::size_t>(use.buffer)].bytes);
    key.push_back(reinterpret_cast<std::intptr_t>(buffers.address(use.buffer)));
  }
  return key;
}

std::int64_t kernels_of(const Graphs::Handler& handler, const ActionBuffers& buffers) {
  const math::LaunchCount count;
  handler(buffers);
  return count.launches();
}

}  // namespace

void Graphs::capture(const Program& program, int index, const ActionBuffers& buffers,
                     const Handler& handler, const InputsOf& inputs) {
  std::vector<const Captured*>& all = of_program_[program.id.value()];
  all.resize(program.plan.actions.size());
  const GraphInputs found = inputs(buffers);
  if (!found) return;
  std::vector<std::int64_t> key = key_of(program, buffers);
  auto before = captured_.find(key);
  if (before == captured_.end()) {
    const std::int64_t kernels = kernels_of(handler, buffers);
    if (kernels < least_kernels) return;
    try {
      const auto submit = [&] { handler(buffers); };
      Captured made{*found, kernels, device::Graph::capture(stream_of(buffers.exec), submit)};
      before = captured_.emplace(std::move(key), std::move(made)).first;
    } catch (const std::exception& error) {
      if (refused_.empty()) refused_ = error.what();
      return;
    }
  }
  all[static_cast<std::size_t>(index)] = &before->second;
}

bool Graphs::submit(const Program& program, int index, const ActionBuffers& buffers,
                    const InputsOf& inputs) const {
  const auto all = of_program_.find(program.id.value());
  if (all == of_program_.end()) return false;
  const Captured* const captured = all->second[static_cast<std::size_t>(index)];
  if (captured == nullptr || inputs(buffers) != captured->inputs) return false;
  captured->graph.launch(stream_of(buffers.exec));
  return true;
}

GraphCount Graphs::count(const Program& program) const {
  GraphCount count;
  count.refused = refused_;
  const auto all = of_program_.find(program.id.value());
  if (all == of_program_.end()) return count;
  std::set<const Captured*> graphs;
  for (const Captured* captured : all->second) {
    if (captured == nullptr) continue;
    graphs.insert(captured);
    ++count.actions;
    count.kernels += captured->kernels;
  }
  count.graphs = static_cast<std::int64_t>(graphs.size());
  return count;
}

}  // namespace ostrakon::runtime

#endif
