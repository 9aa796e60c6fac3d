// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <ostrakon/model/builder.hpp>
#include <ostrakon/model/model.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ostrakon::model {

/// Samples that a rank, or tensor ranks together, compute at once, and the bytes of each in a
/// batch.
struct LeafSize {
  std::int64_t samples = 1;
  std::int64_t sample_bytes = 0;
  std::int64_t rows = 1;  ///< of a sample: tokens of a sequence
  /// Neighbouring ranks that compute a leaf together: each has some columns of each linear layer
  /// and heads of attention, and between these an equal part of the rows.
  std::int64_t tensor_ranks = 1;
  /// Pieces of columns and heads whose terms are summed by themselves, whichever tensor ranks have
  /// them: with equal pieces all numbers of ranks have the same bits. 1: as many as tensor ranks.
  std::int64_t tensor_grain = 1;

  std::int64_t bytes() const { return samples * sample_bytes; }
};

/// What the losses of a Chain are called in messages, where a Decoder has tokens.
constexpr const char* chain_losses = "losses";

/// The units of a chain, in order: a name and a function of a Builder each.
template <class T>
class UnitList {
 public:
  struct Entry {
    std::string name;
    UnitFunction<T> function;
  };

  /// `function`: of (Builder<T>&, Value x), or of (Builder<T>&) in the first unit. Returns a Value.
  template <class F>
  void add(std::string name, F function) {
    if constexpr (std::is_invocable<F, Builder<T>&>::value)
      entries_.push_back(
          {std::move(name), [=](Builder<T>& b, const Value&) { return function(b); }});
    else
      entries_.push_back({std::move(name), std::move(function)});
  }

  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

/// Units one after the other, of which the last computes the losses. Lays out their parameters and
/// describes them to the planner. T: float, double, bf16 or fp16.
template <class T>
class Chain {
  static_assert(std::is_same<T, float>::value || std::is_same<T, double>::value ||
                    std::is_same<T, bf16>::value || std::is_same<T, fp16>::value,
                "a Chain is of float, double, bf16 or fp16");

 public:
  using Units = UnitList<T>;

  /// `frozen`: parameters that are not trained, by full name, besides those that units say
  /// themselves.
  ///
  /// Throws Error, naming the unit, where a Builder refuses what it is called with, sizes are too
  /// large to be counted, the last unit has no losses or another has, two units or parameters have
  /// one name, or `frozen` is given and names no parameter.
  Chain(const Units& units, LeafSize leaf, const Frozen& frozen = {});

  int units() const { return static_cast<int>(units_.size()); }
  /// The parameters of a unit, with their offsets in its flat parameter, in elements.
  const std::vector<Parameter>& parameters(int unit) const { return this->unit(unit).parameters(); }
  LeafSize leaf() const { return leaf_; }
  /// Losses of a leaf, over all tensor ranks.
  std::int64_t losses() const {
    return description_.units.back().output_bytes /
           static_cast<std::int64_t>(sizeof(compute_t<T>)) * leaf_.tensor_ranks;
  }
  const plan::ModelDescription& description() const { return description_; }

  /// Computes phase `buffers.phase` of a unit's forward, or of its backward. An Error that a kernel
  /// throws gets "unit NAME, forward: " (or "backward") in front.
  void forward(int unit, const Exec& exec, const UnitBuffers<T>& buffers) const;
  void backward(int unit, const Exec& exec, const UnitBuffers<T>& buffers, compute_t<T> loss_scale,
                bool adds_gradients) const;

 private:
  const model::Unit<T>& unit(int index) const { return *units_[static_cast<std::size_t>(index)]; }
  typename Builder<T>::Built build(const typename Units::Entry& entry, const Frozen& frozen) const;
  void add(const typename Units::Entry& entry, bool is_last, const Frozen& frozen);
  void require_different_names(const Frozen& frozen) const;

  LeafSize leaf_;
  std::vector<std::unique_ptr<const model::Unit<T>>> units_;
  std::vector<std::string> tables_;  ///< of each unit: Builder::Built::table
  plan::ModelDescription description_;
};

/// make_model() of the types that it takes.
template <class T>
std::unique_ptr<const Model> make_chain_model(Chain<T> chain);

/// Returns the chain as a Trainer takes it. T: float, bf16 or fp16.
template <class T>
std::unique_ptr<const Model> make_model(Chain<T> chain) {
  static_assert(!std::is_same<T, double>::value,
                "make_model takes a Chain of float, bf16 or fp16: one of double is for "
                "check_gradients");
  return make_chain_model(std::move(chain));
}

}  // namespace ostrakon::model
