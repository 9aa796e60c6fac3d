// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <ostrakon/plan/builder.hpp>
#include <ostrakon/plan/gather_pass.hpp>
#include <ostrakon/plan/policy.hpp>
#include <ostrakon/plan/tape.hpp>
#include <ostrakon/plan/tasks.hpp>
#include <vector>

namespace ostrakon::plan {

/// Whether what backward of a unit reads waits in host memory. Next to the loss, the last two
/// backwards follow their forwards at once.
bool waits_on_host(const ModelDescription& model, const Policy& policy, int unit);

/// What becomes of activations between forward and backward: they wait in host memory, or are
/// computed again.
class ActivationPass {
 public:
  ActivationPass(Builder& builder, const Policy& policy, const GatherPass& gathers);

  /// Brings back or computes again what a backward reads.
  void before(const Task& task, Tape& tape);
  /// Sends away what a forward left; ends what waited on the host for a backward.
  void after(const Task& task, Tape& tape);

 private:
  /// What a unit's backward reads, as it waits on the host: copies, or -1.
  struct UnitAway {
    int input = -1;
    int saved = -1;
    bool is_back = false;
  };
  /// What is away of one micro-batch.
  struct Away {
    std::vector<UnitAway> units;
  };

  std::vector<int> send_away(int u, Tape& tape, Away& away);
  void bring_back(int u, Tape& tape, Away& away);
  void end_on_host(int u, const Away& away);
  void recompute(const Task& task, Tape& tape);

  Builder& builder_;
  const GatherPass& gathers_;
  const std::vector<bool> checkpointed_;
  std::vector<bool> waits_on_host_;  // of each unit: what its backward reads
  std::map<int, Away> away_;         // by micro-batch
  std::vector<int> leaving_;         // on the device, being copied since the last forward
};

}  // namespace ostrakon::plan
