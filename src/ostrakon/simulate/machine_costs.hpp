// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/ir/description.hpp>
#include <ostrakon/plan/timing/timing.hpp>
#include <ostrakon/simulate/collectives.hpp>
#include <ostrakon/simulate/machine.hpp>
#include <vector>

namespace ostrakon::simulate {

/// Whether the streams of a rank are concurrent (runtime.streams: threads or device), or it runs
/// one action after the other (inline).
enum class Streams { concurrent, one_after_the_other };

/// Models how long the actions of plans take on a machine:
///
/// - Phases of units: products and attention at the rates of the dtype in which they compute,
/// memory traffic of other kernels at the rate of memory, and a time for each kernel. Recomputation
/// in backward counts; the experts of a mixture get equally many tokens.
/// - Collectives: by collectives.hpp. Gradients that this program sums itself (parallel.reduction:
/// ordered) are sent by an all-to-all, and their sum is computed.
/// - Updates, norms, sums: by the bytes of the arrays that they read and write.
/// - Copies, and updates on the host: by their bytes.
///
/// If ranks share the cores of a node (Machine::cores_per_node), compute, collectives inside a node
/// and copies all need cores: a rank has a core for each or shares one, and if there are more ranks
/// than cores, times grow in proportion.
class MachineCosts : public plan::Costs {
 public:
  /// `stages`: the plans of all stages. Throws Error where the machine has no rates for their
  /// dtype, or lacks a network that they need.
  MachineCosts(const std::vector<const plan::StepPlan*>& stages, const Machine& machine,
               int ranks_per_node, Streams streams);

  plan::ResourceSeconds seconds(int stage, const plan::Action& action) const override;
  double slowdown() const override { return machine_.slowdown * machine_.stack.slowdown; }
  bool is_inline() const override {
    return streams_ == Streams::one_after_the_other && !machine_.plain_rates;
  }

  /// Continues with the same plans on another machine.
  void set_machine(const Machine& machine);

  /// The group of a collective of a stage.
  GroupShape group(int stage, const plan::Action& action) const;

 private:
  /// What is known of a stage besides its plan.
  struct Stage {
    plan::Kind global_sum;
    /// Spans over which summed gradients are gathered: sums over them are all-reduces.
    std::vector<plan::Span> all_reduced;
    /// Whether the unit's gradients are summed over that span again later, for each such sum.
    std::vector<bool> is_summed_again;
  };
  static Stage known_of(const plan::StepPlan& plan);
  double compute_seconds(const plan::StepPlan& plan, const plan::Action& action) const;
  double cast_seconds(const plan::StepPlan& plan, const plan::Action& action) const;
  CollectiveSeconds collective_seconds(int stage, const plan::Action& action, double bytes) const;
  bool is_omitted(int stage, const plan::Action& action) const;
  void check_networks() const;

  std::vector<const plan::StepPlan*> stages_;
  Machine machine_;
  std::vector<plan::Links> links_;
  std::vector<Stage> known_;  ///< per stage
  Streams streams_;
  int ranks_per_node_;
  double oversubscribed_ = 1.0;  ///< ranks per core
  bool shares_core_ = false;     ///< whether a rank does all its work on one core
};

/// A machine with any number of devices on a node, of any memory, on which actions take what
/// plan::seconds_at says.
Machine machine_with(const plan::Rates& rates);

/// Rates at which no action takes longer than MachineCosts says: nothing has a latency, and all
/// computes, sends and copies at the most that the machine can. `element_bytes`: of the dtype in
/// which plans compute. Throws Error where the machine has no rates for it.
plan::Rates bounding_rates(const Machine& machine, std::int64_t element_bytes, int ranks_per_node);

/// Returns `model` with changed numbers of floating-point operations, which at `rates` take at most
/// the time that MachineCosts says. So bounds that count operations consider the speed of each
/// kernel.
plan::ModelDescription with_kernel_times(plan::ModelDescription model, const Machine& machine,
                                         const plan::Rates& rates);

}  // namespace ostrakon::simulate
