// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <ostrakon/plan/ir/parameter_uses.hpp>
#include <ostrakon/plan/ir/tasks.hpp>
#include <ostrakon/plan/passes/builder.hpp>
#include <vector>

namespace ostrakon::plan {

/// Buffers of a unit that a micro-batch keeps from forward to backward; -1: none.
struct UnitTape {
  int output = -1;
  int saved = -1;
  int deferred = -1;  ///< written by backward for the phases that it defers
  /// The gradient buffers that this micro-batch's backwards write: one for each addend.
  std::array<int, most_addends> parameter_gradients = {-1, -1};
};

/// Buffers of a chunk that a micro-batch keeps.
struct ChunkTape {
  int received = -1;  ///< input of its first unit, if it comes from another chunk
  int gradient = -1;  ///< gradient of activations, passed backward from unit to unit
};

/// Buffers of all units that a micro-batch keeps.
class Tape {
 public:
  explicit Tape(const ModelDescription& model);

  int batch = -1;
  bool is_loaded = false;  ///< whether the batch was read
  std::vector<UnitTape> units;

  /// The buffer of a unit's input.
  int& input(int u) { return begins_chunk(u) ? chunk(u).received : units[u - 1].output; }
  /// The gradient of a unit's chunk, which is passed backward from unit to unit.
  int& gradient(int u) { return chunk(u).gradient; }
  bool begins_chunk(int u) const { return u == 0 || chunk_of_[u] != chunk_of_[u - 1]; }

 private:
  ChunkTape& chunk(int u) { return chunks_[static_cast<std::size_t>(chunk_of_[u])]; }

  std::vector<int> chunk_of_;  // chunk of each unit
  std::vector<ChunkTape> chunks_;
};

/// The tapes of the micro-batches in flight.
class Tapes {
 public:
  explicit Tapes(Builder& builder) : builder_(builder) {}

  /// The tape of the task's micro-batch, which begins with its first task.
  Tape& of(const Task& task);

  /// To be called after the last task. When decoding, buffers are kept: later rows read them.
  void finish();

 private:
  Builder& builder_;
  std::map<int, Tape> tapes_;  // keyed by micro-batch
};

}  // namespace ostrakon::plan
