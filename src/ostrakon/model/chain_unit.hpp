// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/model/unit_calls.hpp>
#include <ostrakon/plan/phase.hpp>
#include <string>
#include <vector>

namespace ostrakon::model {

/// What is planned of a unit: all sizes are of one leaf (the samples that a rank computes at once),
/// and known before the run. Sizes decide what memory a step takes; floating-point operations only
/// how long a plan is said to take, and MFU.
struct ChainUnitDescription {
  std::string name;  ///< no two units of a chain have the same; letters, digits, "_", "-" and "."
  /// Set name, shape, initializer, deviation, decays and frozen; the rest is set by the chain.
  std::vector<Parameter> parameters = {};
  std::int64_t input = 0;   ///< elements of T: the output of the unit before; 0 for the first unit
  std::int64_t output = 0;  ///< elements of T; of the loss unit: losses
  bool is_loss = false;     ///< the last unit, and no other: its output are losses
  std::int64_t saved_bytes = 0;           ///< from forward for backward
  bool reads_batch = false;               ///< whether forward or backward read the samples
  bool backward_reads_parameters = true;  ///< else they are not gathered for it
  /// Phases that are computed one after the other, with their workspaces. Of forward also
  /// recompute_flops: where the output is not wanted.
  plan::Phases forward{1};
  plan::Phases backward{1};
  /// The name of an earlier unit whose parameters this unit computes with, too; empty: none.
  std::string tied_to = {};
};

/// A part of a model whose parameters are gathered and released together: implement it, for T =
/// float, double, bf16 or fp16, to train a model of your own. A unit holds sizes and no arrays: a
/// call brings those that it works with, in buffers that the plan has placed. It is called with one
/// leaf at a time, and its results must depend on nothing but the call.
template <class T>
class ChainUnit {
 public:
  virtual ~ChainUnit() = default;

  /// Returns equal descriptions at each call.
  virtual ChainUnitDescription describe() const = 0;
  virtual void forward(const ForwardCall<T>& call) const = 0;
  virtual void backward(const BackwardCall<T>& call) const = 0;
};

}  // namespace ostrakon::model
