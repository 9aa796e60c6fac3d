// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <ostrakon/plan/builder.hpp>
#include <ostrakon/plan/parameter_uses.hpp>
#include <ostrakon/plan/tasks.hpp>
#include <vector>

namespace ostrakon::plan {

/// What a micro-batch leaves behind in a unit from forward for backward: buffers, -1 where there is
/// none.
struct UnitTape {
  int output = -1;
  int saved = -1;
  /// That this micro-batch's backwards write: of each addend.
  std::array<int, most_addends> parameter_gradients = {-1, -1};
};

/// The same for all units.
struct Tape {
  int batch = -1;
  int received = -1;  ///< what the first unit reads, where it comes from another stage
  int gradient = -1;  ///< passed backward from unit to unit
  std::vector<UnitTape> units;

  /// What a unit reads.
  int& input(int u) { return u > 0 ? units[u - 1].output : received; }
};

/// The tapes of the micro-batches that are on.
class Tapes {
 public:
  explicit Tapes(Builder& builder) : builder_(builder) {}

  /// Of the task's micro-batch; new with its first task.
  Tape& of(const Task& task);

  /// After the last task. Decoding keeps what it leaves: later rows read it.
  void finish();

 private:
  Builder& builder_;
  std::map<int, Tape> tapes_;  // by micro-batch
};

}  // namespace ostrakon::plan
