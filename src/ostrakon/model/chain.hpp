// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <ostrakon/model/chain_unit.hpp>
#include <ostrakon/model/model.hpp>
#include <type_traits>
#include <utility>
#include <vector>

namespace ostrakon::model {

/// Samples that a rank computes at once, and the bytes of each in a batch.
struct LeafSize {
  std::int64_t samples = 1;
  std::int64_t sample_bytes = 0;

  std::int64_t bytes() const { return samples * sample_bytes; }
};

/// What calls get for arrays that they don't have, of no elements: null where a model is trained.
/// Where gradients are checked there is memory at each, so that a unit that writes there is found.
/// Those of gradients are as long as the frozen segments that they belong to.
template <class T>
struct AbsentArrays {
  View<T*> output = {};
  View<compute_t<T>*> losses = {};
  View<compute_t<T>*> frozen_gradients = {};
  View<compute_t<T>*> tied_frozen_gradients = {};
};

/// What the losses of a Chain are called in messages, where a Decoder has tokens.
constexpr const char* chain_losses = "losses";

/// Units one after the other, of which the last computes the losses. Lays out their parameters and
/// describes them to the planner. T: float, double, bf16 or fp16.
template <class T>
class Chain {
  static_assert(std::is_same<T, float>::value || std::is_same<T, double>::value ||
                    std::is_same<T, bf16>::value || std::is_same<T, fp16>::value,
                "a Chain is of float, double, bf16 or fp16");

 public:
  using Units = std::vector<std::unique_ptr<ChainUnit<T>>>;

  /// `frozen`: parameters that are not trained, by full name, besides those that units say
  /// themselves.
  ///
  /// Throws Error, naming the unit, where sizes are negative, too large to be counted or do not
  /// meet, the last unit has no losses or another has, two units or parameters have one name,
  /// tied_to names no earlier unit, or `frozen` is given and names no parameter.
  Chain(Units units, LeafSize leaf, const Frozen& frozen = {});

  int units() const { return static_cast<int>(units_.size()); }
  const ChainUnitDescription& unit(int index) const {
    return descriptions_[static_cast<std::size_t>(index)];
  }
  /// With offsets.
  const std::vector<Parameter>& parameters(int unit) const { return this->unit(unit).parameters; }
  /// The unit that `unit` is tied to, or -1.
  int tied_to(int unit) const { return description_.units[static_cast<std::size_t>(unit)].tied_to; }
  LeafSize leaf() const { return leaf_; }
  /// Losses of a leaf.
  std::int64_t losses() const { return descriptions_.back().output; }
  /// The loss unit's backward is its forward's phases and then its own, as it has no forward
  /// before it.
  const plan::ModelDescription& description() const { return description_; }

  /// A phase of a unit's forward, or backward as it is planned. An Error that the unit throws gets
  /// "unit NAME, forward: " (or "forward that recomputes", or "backward") in front.
  void forward(int unit, const Exec& exec, const UnitBuffers<T>& buffers,
               const AbsentArrays<T>& absent = {}) const;
  void backward(int unit, const Exec& exec, const UnitBuffers<T>& buffers, compute_t<T> loss_scale,
                bool gradients_opened, const AbsentArrays<T>& absent = {}) const;

 private:
  bool is_loss(int unit) const { return this->unit(unit).is_loss; }
  void describe(int unit, const Frozen& frozen);
  void require_frozen(const Frozen& frozen) const;
  template <class Call>
  Call make_call(int unit, const Exec& exec, const UnitBuffers<T>& buffers, int phase,
                 const plan::Phases& phases) const;
  void run_forward(int unit, const Exec& exec, const UnitBuffers<T>& buffers,
                   const AbsentArrays<T>& absent) const;

  Units units_;
  LeafSize leaf_;
  std::vector<ChainUnitDescription> descriptions_;
  plan::ModelDescription description_;
};

/// make_model() of the types that it takes.
template <class T>
std::unique_ptr<const Model> make_chain_model(Chain<T> chain);

/// As a Trainer takes it. T: float, bf16 or fp16.
template <class T>
std::unique_ptr<const Model> make_model(Chain<T> chain) {
  static_assert(!std::is_same<T, double>::value,
                "make_model takes a Chain of float, bf16 or fp16: one of double is for "
                "check_gradients");
  return make_chain_model(std::move(chain));
}

}  // namespace ostrakon::model
