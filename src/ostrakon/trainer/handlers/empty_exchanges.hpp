// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <ostrakon/trainer/programs.hpp>

namespace ostrakon::train {

/// Notes which send buffers of exchanges are empty on all ranks. Only a unit knows that, when it
/// computes; the exchange, which waits for it, reads the note here.
class EmptyExchanges {
 public:
  explicit EmptyExchanges(const Programs& programs) : EmptyExchanges(most_buffers(programs)) {}
  explicit EmptyExchanges(const runtime::Program& program)
      : EmptyExchanges(program.plan.buffers.size()) {}

  /// The note on the send buffer that an action writes; null if it writes none.
  bool* empty(const plan::Action& action) const {
    const int buffer = action.buffer(plan::Role::send_buffer);
    return buffer < 0 ? nullptr : &are_empty_[static_cast<std::size_t>(buffer)];
  }

 private:
  static std::size_t most_buffers(const Programs& programs) {
    std::size_t most = 0;
    for (const runtime::Program* program : programs.all())
      most = std::max(most, program->plan.buffers.size());
    return most;
  }
  explicit EmptyExchanges(std::size_t buffers) : are_empty_(std::make_unique<bool[]>(buffers)) {}

  std::unique_ptr<bool[]> are_empty_;
};

}  // namespace ostrakon::train
