// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <ostrakon/plan/ir/policy.hpp>
#include <ostrakon/plan/ir/tasks.hpp>
#include <ostrakon/plan/passes/builder.hpp>
#include <ostrakon/plan/passes/gather_pass.hpp>
#include <ostrakon/plan/passes/tape.hpp>
#include <vector>

namespace ostrakon::plan {

/// Whether the activations of a unit wait for backward in host memory. Those of the last two
/// backwards before the loss do not, as they follow their forwards at once.
bool waits_on_host(const ModelDescription& model, const Policy& policy, int unit);

/// Moves activations to host memory between forward and backward, or recomputes them.
class ActivationPass {
 public:
  ActivationPass(Builder& builder, const Policy& policy, const GatherPass& gathers);

  /// Copies back or recomputes the activations that a backward reads.
  void before(const Task& task, Tape& tape);
  /// Copies a forward's activations to the host; ends the host copies that a backward has used.
  void after(const Task& task, Tape& tape);

 private:
  /// Host copies of the activations that a unit's backward reads; -1: none.
  struct OffloadedUnit {
    int input = -1;
    int saved = -1;
    bool is_back = false;
  };
  /// Host copies of one micro-batch.
  struct Away {
    std::vector<OffloadedUnit> units;
  };

  std::vector<int> send_away(int u, Tape& tape, Away& away);
  void bring_back(int u, Tape& tape, Away& away);
  void end_on_host(int u, const Away& away);
  void recompute(const Task& task, Tape& tape);

  Builder& builder_;
  const GatherPass& gathers_;
  const std::vector<bool> checkpointed_;
  std::vector<bool> waits_on_host_;  // per unit: whether its activations wait on the host
  std::map<int, Away> away_;         // keyed by micro-batch
  std::vector<int> leaving_;         // device buffers that are being copied since the last forward
};

}  // namespace ostrakon::plan
