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

/// Where each element of a parameter, row by row, lies in its segment.
std::vector<std::size_t> places_of(const Parameter& parameter);

/// Whether damage() is asked for after a call: to watch it, all that it may only read is copied.
enum class Watched { no, yes };

/// Runs one unit of a chain by itself, as a Trainer does: with the buffers of its description, and
/// not a byte more. Before each call what it has to write is unset. Arrays that a call does not
/// have are of no elements and not null, so that a unit that writes there is found. T: float or
/// double.
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
  std::vector<T> forward(Watched watched = Watched::no);
  /// Forward for what it saves alone; watched.
  void recompute();
  /// Backward, with what was saved last: from dL/d output (none for the loss unit) to dL/d input,
  /// which it returns. `base`: what the gradients of parameters hold before, to be added to; empty:
  /// nothing.
  std::vector<T> backward(const std::vector<T>& output_gradient, const std::vector<T>& base,
                          Watched watched = Watched::no);

  std::vector<unsigned char> saved() const { return writes_.saved.get(); }
  /// The flat parameter's trained segment, after backward.
  std::vector<T> gradients() const { return writes_.gradients.template get<T>(); }
  std::vector<T> tied_gradients() const { return writes_.tied_gradients.template get<T>(); }

  /// One element, of those that the constructor was given.
  void set_input(std::int64_t element, T value) { set(reads_.input, element, value); }
  void set_trained(std::int64_t element, T value) { set(reads_.trained, element, value); }
  void set_tied(std::int64_t element, T value) { set(reads_.tied_trained, element, value); }

  /// What the last call, a watched one, has changed that it may only read, or written next to a
  /// buffer; empty: nothing.
  std::string damage() const;

 private:
  /// How unit and chain are called.
  struct Run {
    bool is_backward, with_output, adds;
    Watched watched;
  };

  void run(const plan::Phases& phases, const Run& how);
  void note_read_only();
  AbsentArrays<T> absent_arrays() const;
  void look_at_gaps();
  void look_at_absent(bool with_output);
  const Parameter* find_written(const GuardedBuffer& absent, int owner) const;
  static void set(const GuardedBuffer& buffer, std::int64_t element, T value) {
    constexpr auto size = static_cast<std::int64_t>(sizeof(T));
    buffer.set(element * size, &value, size);
  }

  struct Reads {
    GuardedBuffer batch, trained, frozen, tied_trained, tied_frozen, input;
  };
  struct Writes {
    GuardedBuffer output, saved, gradient, gradients, tied_gradients;
  };
  /// What a call does not have, with memory that a unit must not write to.
  struct Absent {
    GuardedBuffer output, losses, frozen_gradients, tied_frozen_gradients;
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
  Absent absent_;
  std::vector<ReadOnly> read_only_;  ///< of the last call; empty unless it was watched
  std::vector<T> base_;              ///< what the gradients of parameters held before it
  std::string damage_;               ///< to what it may write, and next to it
};

}  // namespace ostrakon::model
