// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <ostrakon/plan/ir/tasks.hpp>
#include <ostrakon/plan/passes/builder.hpp>
#include <ostrakon/plan/passes/gather_pass.hpp>
#include <ostrakon/plan/passes/tape.hpp>
#include <tuple>

namespace ostrakon::plan {

/// Writes what an audited step does besides training. Each rank computes digests of the gradients
/// of its leaves, as backward completes them, and of the parameters that forward and backward read.
/// Once its gradients are reduced, or on their way, it computes a leaf of another rank again, with
/// the same digests. `audit` compares them over all ranks, before anything is updated. Writes
/// nothing into other plans.
class AuditPass {
 public:
  AuditPass(Builder& builder, const GatherPass& gathers);

  /// After a task is computed, while its parameters are gathered and its gradients not yet reduced.
  void on(const Task& task, Tape& tape);
  /// After the step's sums are begun, or their verdict is known.
  void after(const Task& task);

 private:
  void add(const Digest& digest, Role role, int buffer, int micro_batch, std::int64_t elements);
  void add_stored(Digest::What what);
  void add_read(const Task& task);
  void add_gradients(const Task& task, Tape& tape);
  void compare();

  Builder& builder_;
  const GatherPass& gathers_;
  const bool audits_;
  std::map<std::tuple<Digest::What, int, bool, int, Kind>, int> numbers_;  // of digests
  int digests_ = -1;  // buffers on the device and on the host
  int on_host_ = -1;
};

}  // namespace ostrakon::plan
