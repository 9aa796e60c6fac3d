// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/model/chain.hpp>
#include <ostrakon/model/guarded_buffer.hpp>
#include <string>
#include <vector>

namespace ostrakon::model {

/// The values of a unit's parameters, in host memory, as they lie in its flat parameter's segments.
template <class T>
struct ParameterValues {
  std::vector<T> trained, frozen;
};

/// Runs one unit of a chain by itself, as a Trainer does: with the buffers of its description, and
/// not a byte more. Before each call what it has to write is unset. T: float or double.
template <class T>
class UnitTrial {
 public:
  /// `batch`: host memory, the chain's leaf. `tied`: of the unit that it is tied to. Throws Error
  /// where it exchanges activations over more than one rank.
  UnitTrial(const Chain<T>& chain, int unit, const void* batch, const ParameterValues<T>& own,
            const ParameterValues<T>& tied, const std::vector<T>& input);

  /// What backward of the loss unit multiplies its losses with: not 1, so that a unit that leaves
  /// it out is found, and exact in any type.
  static constexpr T loss_scale = T(0.375);

  /// Forward. Returns its output, or losses.
  std::vector<T> forward();
  /// Forward for what it saves alone.
  void recompute();
  /// Backward, with what was saved last: from dL/d output (none for the loss unit) to dL/d input,
  /// which it returns. `base`: what the gradients of parameters hold before, to be added to; empty:
  /// nothing.
  std::vector<T> backward(const std::vector<T>& output_gradient, const std::vector<T>& base);

  std::vector<unsigned char> saved() const { return writes_.saved.get(); }
  /// The flat parameter's trained segment, after backward.
  std::vector<T> gradients() const { return writes_.gradients.template get_as<T>(); }
  std::vector<T> tied_gradients() const { return writes_.tied_gradients.template get_as<T>(); }

  void set_input(const std::vector<T>& input) { reads_.input.set(input.data()); }
  void set_trained(const std::vector<T>& values) { reads_.trained.set(values.data()); }
  void set_tied(const std::vector<T>& values) { reads_.tied_trained.set(values.data()); }

  /// What a call has changed that it may only read, or written next to a buffer; empty: nothing.
  /// `input` and so on: what was set last.
  std::string damage() const;

 private:
  void run(const plan::Phases& phases, bool is_backward, bool with_output, bool adds);
  void note_read_only();
  void look_at_gaps();

  struct Reads {
    GuardedBuffer batch, trained, frozen, tied_trained, tied_frozen, input;
  };
  struct Writes {
    GuardedBuffer output, saved, gradient, gradients, tied_gradients;
  };
  struct ReadOnly {
    const char* name;
    const GuardedBuffer* buffer;
    std::vector<unsigned char> before;
  };

  const Chain<T>& chain_;
  int unit_;
  const plan::UnitDescription& planned_;
  Reads reads_;
  Writes writes_;
  std::vector<ReadOnly> read_only_;  ///< of the last call
  std::vector<T> base_;              ///< what the gradients of parameters held before it
  std::string damage_;               ///< to what it may write, and next to it
};

}  // namespace ostrakon::model
