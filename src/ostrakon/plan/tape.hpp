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
  int deferred = -1;  ///< left by backward for the phases that it defers
  /// The buffers that this micro-batch's backwards write: one for each addend.
  std::array<int, most_addends> parameter_gradients = {-1, -1};
};

/// What is noted for a chunk.
struct ChunkTape {
  int received = -1;  ///< what its first unit reads, where it comes from another chunk
  int gradient = -1;  ///< passed backward from unit to unit
};

/// What is noted for all units.
class Tape {
 public:
  explicit Tape(const ModelDescription& model);

  int batch = -1;
  bool is_loaded = false;  ///< whether the batch was read
  std::vector<UnitTape> units;

  /// What a unit reads.
  int& input(int u) { return begins_chunk(u) ? chunk(u).received : units[u - 1].output; }
  /// The gradient of a unit's chunk, which is passed backward from unit to unit.
  int& gradient(int u) { return chunk(u).gradient; }
  bool begins_chunk(int u) const { return u == 0 || chunk_of_[u] != chunk_of_[u - 1]; }

 private:
  ChunkTape& chunk(int u) { return chunks_[static_cast<std::size_t>(chunk_of_[u])]; }

  std::vector<int> chunk_of_;  // of each unit
  std::vector<ChunkTape> chunks_;
};

/// The tapes of the micro-batches that are on.
class Tapes {
 public:
  explicit Tapes(Builder& builder) : builder_(builder) {}

  /// The tape of the task's micro-batch; new with its first task.
  Tape& of(const Task& task);

  /// After the last task. Decoding keeps what it leaves: later rows read it.
  void finish();

 private:
  Builder& builder_;
  std::map<int, Tape> tapes_;  // by micro-batch
};

}  // namespace ostrakon::plan
