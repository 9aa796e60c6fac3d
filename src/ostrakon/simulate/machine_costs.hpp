// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/description.hpp>
#include <ostrakon/plan/timing.hpp>
#include <ostrakon/simulate/collectives.hpp>
#include <ostrakon/simulate/machine.hpp>
#include <vector>

namespace ostrakon::simulate {

/// Whether streams run at the same time (runtime.streams: threads or device), or a rank runs one
/// action after the other (inline).
enum class Streams { concurrent, one_after_the_other };

/// What the actions of plans take on a machine.
///
/// - Phases of units: their products and attention at the rates of the dtype in which they compute,
///   what other kernels read and write at the rate of memory, and a time for each kernel. What
///   backward computes again counts; a mixture's experts get equally many tokens.
/// - Collectives: collectives.hpp. Gradients that this program adds up itself
///   (parallel.reduction: ordered) travel as an all-to-all, and their sum is computed.
/// - Updates, norms, sums: the bytes of the arrays that they read and write.
/// - Copies, and what the host updates.
///
/// Where ranks share the cores of a node (Machine::cores_per_node), computing, collectives inside a
/// node and copies all need them: a rank has a core for each or shares one, and more ranks than
/// cores take longer in proportion.
class MachineCosts : public plan::Costs {
 public:
  /// The plans of all stages. Throws Error where the machine has no rates for their dtype, or not
  /// the network that they need.
  MachineCosts(const std::vector<const plan::StepPlan*>& stages, const Machine& machine,
               int ranks_per_node, Streams streams);

  plan::ResourceSeconds seconds(int stage, const plan::Action& action) const override;
  double slowdown() const override { return machine_.slowdown; }
  bool is_inline() const override { return streams_ == Streams::one_after_the_other; }

  /// Goes on with the same plans on another machine.
  void set_machine(const Machine& machine);

  /// The group of a collective of a stage.
  GroupShape group(int stage, const plan::Action& action) const;

 private:
  double compute_seconds(const plan::StepPlan& plan, const plan::Action& action) const;
  void check_networks() const;

  std::vector<const plan::StepPlan*> stages_;
  Machine machine_;
  std::vector<plan::Links> links_;
  std::vector<plan::Kind> meetings_;  ///< of each stage
  Streams streams_;
  int ranks_per_node_;
  double oversubscribed_ = 1.0;  ///< ranks of a core
  bool shares_core_ = false;     ///< whether a rank does all on one core
};

/// Rates at which no action takes longer than MachineCosts says: nothing has a latency, and all
/// computes, sends and copies at the most that the machine can. `element_bytes`: of the dtype in
/// which plans compute. Throws Error where the machine has no rates for it.
plan::Rates bounding_rates(const Machine& machine, std::int64_t element_bytes, int ranks_per_node);

/// `model` with other numbers of floating-point operations: as many as take, at `rates`, the time
/// that MachineCosts says, or less. So bounds that are made of operations know how fast each kernel
/// is.
plan::ModelDescription with_kernel_times(plan::ModelDescription model, const Machine& machine,
                                         const plan::Rates& rates);

}  // namespace ostrakon::simulate
