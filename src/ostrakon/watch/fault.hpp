// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/names.hpp>
#include <ostrakon/plan/ir/kinds.hpp>
#include <string>

namespace ostrakon::watch {

/// What a fault on purpose does to its rank.
enum class FaultKind : std::uint8_t {
  sleep,  ///< the thread of the action sleeps for a time
  spin,   ///< it loops forever
  stop,   ///< SIGSTOP to the process
  exit,   ///< the process ends with status 1, without a word
  skip,   ///< a collective is not called
  swap,   ///< a collective is called after the next one of another stream
  // From that step on:
  slow_data,     ///< each reading of a micro-batch takes so much longer
  slow_compute,  ///< each forward, recompute and backward of a unit does
  // Once, or each time from that step on:
  flip  ///< a bit of what the action reads or writes: train::BitFlip
};
constexpr Named<FaultKind> fault_names[] = {{FaultKind::sleep, "sleep"},
                                            {FaultKind::spin, "spin"},
                                            {FaultKind::stop, "stop"},
                                            {FaultKind::exit, "exit"},
                                            {FaultKind::skip, "skip"},
                                            {FaultKind::swap, "swap"},
                                            {FaultKind::slow_data, "slow_data"},
                                            {FaultKind::slow_compute, "slow_compute"},
                                            {FaultKind::flip, "flip"}};

/// Where a bit is flipped.
enum class FlipTarget : std::uint8_t {
  gradient,   ///< of parameters, which a backward has written
  parameter,  ///< that a forward or backward is about to read
  product,    ///< the output of a forward, or the gradient of activations of a backward
  message     ///< received by a gather of parameters, or an exchange of activations
};
constexpr Named<FlipTarget> flip_target_names[] = {{FlipTarget::gradient, "gradient"},
                                                   {FlipTarget::parameter, "parameter"},
                                                   {FlipTarget::product, "product"},
                                                   {FlipTarget::message, "message"}};

/// A fault on purpose, for tests and drills.
struct Fault {
  int rank = 0;           ///< in the world
  std::int64_t step = 1;  ///< of training
  /// An action as messages name it: "backward(block.1, micro-batch 0)", or its beginning
  /// "backward(block.1)" or "load", which means the first such action of the step. at_checkpoint:
  /// the writing of this rank's part of the checkpoint of that step.
  std::string action;
  FaultKind kind = FaultKind::sleep;
  double seconds = 0.0;                      ///< sleep, slow_data, slow_compute
  FlipTarget target = FlipTarget::gradient;  ///< flip
  std::uint64_t seed = 0;                    ///< flip: decides which bit
  bool recurs = false;  ///< flip: each time that the action runs, from that step on

  bool is_at_checkpoint() const { return action == at_checkpoint; }
  /// Whether it is of all steps from `step` on, and all actions of some kinds.
  bool lasts() const { return kind == FaultKind::slow_data || kind == FaultKind::slow_compute; }
  /// Whether a fault that lasts is of actions of this kind.
  bool slows(plan::Kind kind_of_action) const;
  /// Whether an action of this description is meant.
  bool names(const std::string& described) const;

  static constexpr const char* at_checkpoint = "checkpoint";
};

/// Parses "rank 2, step 5, backward(block.1): stop". Throws Error with a reason.
Fault parse_fault(const std::string& text);

/// Whether a fault leaves out or moves a call in place of doing something itself.
constexpr bool moves_call(FaultKind kind) {
  return kind == FaultKind::skip || kind == FaultKind::swap;
}

/// Does it, in the calling thread; returns after a sleep, or at once where moves_call() and for a
/// flip, which needs the arrays of the action.
void strike(const Fault& fault);

}  // namespace ostrakon::watch
