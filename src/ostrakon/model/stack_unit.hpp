// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/model/unit.hpp>
#include <string>
#include <vector>

namespace ostrakon::model {

/// Several units in a chain that are gathered and released as one. It computes what they compute,
/// bit by bit; what changes is how many messages there are, of which size, and how long memory is
/// held.
///
/// Each segment of its flat parameter is theirs end to end, or where they come in pieces the first
/// piece of each, then the second; parameters keep their names and owners.
/// `saved` is theirs, and the outputs between them, which backward needs as inputs. Its workspace
/// is the largest of theirs. Where they compute in phases, its phases are all of theirs, one after
/// the other; those that are deferred come last. Without a buffer for what is deferred, backward is
/// theirs at once.
template <class T>
class StackUnit final : public Unit<T> {
 public:
  using typename Unit<T>::RowRange;
  using Units = std::vector<std::unique_ptr<const Unit<T>>>;

  /// `units`: one or more, each reading the output of the one before. `name`: of the whole. Throws
  /// std::logic_error where there are none, or where one is tied to another unit's parameters.
  StackUnit(std::string name, Units units);

  const plan::UnitDescription& description() const override { return description_; }
  const std::vector<Parameter>& parameters() const override { return parameters_; }

  void forward(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows) const override;
  void backward(const Exec& exec, const UnitBuffers<T>& buffers, compute_t<T> loss_scale,
                bool gradients_opened) const override;

 private:
  /// Where one of the units finds its part of the stack's buffers.
  struct UnitOffsets {
    std::int64_t frozen;    // elements into each piece of the frozen segment
    std::int64_t trained;   // the same of the trained segment, and of its gradients
    std::int64_t saved;     // bytes into `saved`
    std::int64_t output;    // bytes into `saved` too; the last unit's is the stack's own output
    std::int64_t deferred;  // bytes into `deferred`
    std::int64_t counts;    // numbers into `counts`
  };
  /// A phase of one of the units.
  struct UnitPhase {
    std::size_t unit;
    int phase;
  };

  UnitBuffers<T> buffers_of(std::size_t index, const UnitBuffers<T>& stack) const;
  void describe_phases();
  using Order = std::vector<std::vector<UnitPhase>>;
  plan::Phases describe_backward(bool at_once, Order& order);

  std::int64_t pieces_ = 1;                              // of each segment
  std::int64_t frozen_stride_ = 0, trained_stride_ = 0;  // elements of one
  Units units_;
  std::vector<UnitOffsets> offsets_;  // of each unit
  // Of each of its phases, those that it consists of.
  Order forward_, backward_, at_once_;
  std::vector<Parameter> parameters_;
  plan::UnitDescription description_;
};

}  // namespace ostrakon::model
