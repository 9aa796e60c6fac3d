// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/trainer/handlers/step_context.hpp>
#include <ostrakon/watch/fault.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

/// A fault on purpose: flips one bit in an array of this rank, to see whether audits find it. The
/// seed decides which bit.
class BitFlip {
 public:
  /// `fault`: a flip. `context` must outlive it.
  BitFlip(watch::Fault fault, const StepContext& context);

  /// Throws Error unless an action of one of these plans, on a rank, has the fault's name, and one
  /// of these has bytes that the fault may flip a bit of, and that it or a later action reads.
  static void require_target(const watch::Fault& fault,
                             const std::vector<const plan::StepPlan*>& plans, int rank);

  /// Called before and after each action, by runtime::Executor::set_fault_hook.
  void strike(const runtime::ActionBuffers& buffers, bool begins);
  /// Returns which bit was flipped last: "bit 7 of byte 812 of 'block.1 output'"; empty if none
  /// was.
  const std::string& flipped() const { return flipped_; }

 private:
  bool is_due(const plan::Action& action) const;

  const watch::Fault fault_;
  const StepContext& context_;
  std::string flipped_;
};

}  // namespace ostrakon::train
