// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <ostrakon/model/builder.hpp>
#include <ostrakon/model/chain_unit.hpp>
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
  std::int64_t rows = 1;  ///< of a sample, in the units of a Builder: tokens of a sequence
  /// Neighbouring ranks that compute a leaf together: each has some columns of each linear layer
  /// and heads of attention, and between these an equal part of the rows.
  std::int64_t tensor_ranks = 1;
  /// Pieces of columns and heads whose terms are summed by themselves, whichever tensor ranks have
  /// them: with equal pieces all numbers of ranks have the same bits. 1: as many as tensor ranks.
  std::int64_t tensor_grain = 1;

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

/// The units of a chain, in order: described by a function of a Builder, or written by hand.
template <class T>
class UnitList {
 public:
  struct Entry {
    std::string name;
    UnitFunction<T> function;  ///< none of one that is written by hand
    std::unique_ptr<ChainUnit<T>> unit;
  };

  UnitList() = default;
  UnitList(std::vector<std::unique_ptr<ChainUnit<T>>> units) {
    for (auto& unit : units) add(std::move(unit));
  }

  /// `function`: of (Builder<T>&, Value x), or of (Builder<T>&) in the first unit. Returns a Value.
  template <class F>
  void add(std::string name, F function) {
    if constexpr (std::is_invocable<F, Builder<T>&>::value)
      entries_.push_back(
          {std::move(name), [=](Builder<T>& b, const Value&) { return function(b); }, nullptr});
    else
      entries_.push_back({std::move(name), std::move(function), nullptr});
  }
  void add(std::unique_ptr<ChainUnit<T>> unit) { entries_.push_back({"", {}, std::move(unit)}); }

  std::size_t size() const { return entries_.size(); }
  std::vector<Entry>& entries() { return entries_; }

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
  /// Throws Error, naming the unit, where a Builder refuses what it is called with, sizes are
  /// negative, too large to be counted or do not meet, the last unit has no losses or another has,
  /// two units or parameters have one name, tied_to names no earlier unit, or `frozen` is given and
  /// names no parameter.
  Chain(Units units, LeafSize leaf, const Frozen& frozen = {});

  int units() const { return static_cast<int>(computed_.size()); }
  const ChainUnitDescription& unit(int index) const {
    return descriptions_[static_cast<std::size_t>(index)];
  }
  /// With offsets.
  const std::vector<Parameter>& parameters(int unit) const { return this->unit(unit).parameters; }
  /// The unit that `unit` is tied to, or -1.
  int tied_to(int unit) const { return description_.units[static_cast<std::size_t>(unit)].tied_to; }
  LeafSize leaf() const { return leaf_; }
  /// Losses of a leaf, over all tensor ranks.
  std::int64_t losses() const { return descriptions_.back().output * leaf_.tensor_ranks; }
  /// The backward of a loss unit that is written by hand is its forward's phases and then its own,
  /// as it has no forward before it.
  const plan::ModelDescription& description() const { return description_; }

  /// A phase of a unit's forward, or backward as it is planned. An Error that the unit throws gets
  /// "unit NAME, forward: " (or "forward that recomputes", or "backward") in front.
  void forward(int unit, const Exec& exec, const UnitBuffers<T>& buffers,
               const AbsentArrays<T>& absent = {}) const;
  void backward(int unit, const Exec& exec, const UnitBuffers<T>& buffers, compute_t<T> loss_scale,
                bool gradients_opened, const AbsentArrays<T>& absent = {}) const;

 private:
  /// How calls reach a unit: one that a Builder has made, or one that is written by hand.
  struct Computed {
    std::unique_ptr<const model::Unit<T>> built;
    std::unique_ptr<ChainUnit<T>> by_hand;
    std::string table = {};  ///< Builder::Built::table
  };

  const model::Unit<T>* built(int unit) const {
    return computed_[static_cast<std::size_t>(unit)].built.get();
  }
  void add(typename Units::Entry entry, const Frozen& frozen);
  void build(const std::string& name, const UnitFunction<T>& function, const Frozen& frozen);
  const Parameter* find_table(const std::string& unit) const;
  int find_tied(int unit) const;
  bool is_loss(int unit) const { return this->unit(unit).is_loss; }
  plan::UnitDescription describe(int unit, const Frozen& frozen);
  void require_frozen(const Frozen& frozen) const;
  template <class Call>
  Call make_call(int unit, const Exec& exec, const UnitBuffers<T>& buffers, int phase,
                 const plan::Phases& phases) const;
  void run_forward(int unit, const Exec& exec, const UnitBuffers<T>& buffers,
                   const AbsentArrays<T>& absent) const;

  LeafSize leaf_;
  std::vector<Computed> computed_;
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
