// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/passes/activation_pass.hpp>

#include <functional>
#include <ostrakon/plan/passes/phases.hpp>
#include <utility>

namespace ostrakon::plan {

bool waits_on_host(const ModelDescription& model, const Policy& policy, int unit) {
  return policy.offload_activations && has_backward(model, unit) && !computes_loss(model, unit) &&
         !computes_loss(model, unit + 1);
}

ActivationPass::ActivationPass(Builder& builder, const Policy& policy, const GatherPass& gathers)
    : builder_(builder),
      gathers_(gathers),
      checkpointed_(find_checkpointed(builder.model(), policy.activation_checkpointing)) {
  const bool has_backward = trains(builder.plan().purpose);
  for (int u = 0; u < builder.units(); ++u)
    waits_on_host_.push_back(has_backward && waits_on_host(builder.model(), policy, u));
}

void ActivationPass::before(const Task& task, Tape& tape) {
  if (task.work != Work::backward) return;
  Away& away = away_[task.micro_batch];
  bring_back(task.unit, tape, away);
  if (!tape.begins_chunk(task.unit)) bring_back(task.unit - 1, tape, away);
  if (checkpointed_[task.unit]) recompute(task, tape);
}

void ActivationPass::after(const Task& task, Tape& tape) {
  if (!task.computes()) return;
  Away& away = away_[task.micro_batch];
  std::vector<int> leaving;
  if (task.work == Work::forward) leaving = send_away(task.unit, tape, away);
  // The last forward's activations, which this task may have read, have been copied by now.
  builder_.release(task.unit, std::exchange(leaving_, std::move(leaving)));
  if (task.work == Work::backward) end_on_host(task.unit, away);
}

/// After forward of unit `u`: begins to copy to the host the activations that backwards of this
/// unit and the next will read. Returns the buffers that are being copied.
std::vector<int> ActivationPass::send_away(int u, Tape& tape, Away& away) {
  away.units.resize(tape.units.size());
  std::vector<int> leaving;
  const auto send = [&](int buffer, const char* what) {
    leaving.push_back(buffer);
    return builder_.copied(u, buffer, what);
  };
  if (waits_on_host_[u] && !checkpointed_[u] && tape.units[u].saved >= 0)
    away.units[u].saved = send(tape.units[u].saved, "saved on host");
  if (tape.begins_chunk(u) && waits_on_host_[u] && tape.input(u) >= 0)
    away.units[u].input = send(tape.input(u), "input on host");
  if (u + 1 < builder_.units() && !tape.begins_chunk(u + 1) && waits_on_host_[u + 1] &&
      tape.units[u].output >= 0)
    away.units[u + 1].input = send(tape.units[u].output, "output on host");
  return leaving;
}

/// Begins to copy back the activations that backward of unit `u` reads.
void ActivationPass::bring_back(int u, Tape& tape, Away& away) {
  if (!waits_on_host_[u] || away.units[u].is_back) return;
  away.units[u].is_back = true;
  if (away.units[u].saved >= 0)
    tape.units[u].saved = builder_.copied(u, away.units[u].saved, "saved again");
  if (away.units[u].input >= 0)
    tape.input(u) = builder_.copied(u, away.units[u].input, "input again");
}

void ActivationPass::end_on_host(int u, const Away& away) {
  if (away.units.empty()) return;
  std::vector<int> ended;
  if (away.units[u].saved >= 0) ended.push_back(away.units[u].saved);
  if (away.units[u].input >= 0) ended.push_back(away.units[u].input);
  builder_.release(u, ended);
}

void ActivationPass::recompute(const Task& task, Tape& tape) {
  const int u = task.unit;
  const UnitDescription& unit = builder_.unit(u);
  tape.units[u].saved = builder_.make_buffer("saved", u, Category::activations, unit.saved_bytes);
  const auto use = [&](Action& action, Workspace workspace, PhasePosition position) {
    if (unit.reads_batch) builder_.use(action, Role::batch, tape.batch, Access::read);
    for (const ParameterUse& parameters : builder_.parameter_uses(u))
      builder_.use(action, parameters.parameters, gathers_.parameters(parameters.unit),
                   Access::read);
    builder_.use(action, Role::input, tape.input(u), Access::read);
    builder_.use(action, Role::saved, tape.units[u].saved, position.filling());
    builder_.use(action, Role::workspace, workspace.buffer, workspace.access);
  };
  append_phases(builder_, task, Kind::recompute, unit.forward, recomputed_phases(unit.forward),
                "forward workspace", std::cref(use));
}

}  // namespace ostrakon::plan
