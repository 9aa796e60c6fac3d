// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostrakon/base/files/shared_memory.hpp>
#include <string>
#include <vector>

namespace ostrakon::comm {

class Communicator;

/// Counters of a rank in shared memory that the other ranks of its groups have mapped.
struct WindowFlags;

/// Memory of the ranks of a node that all of them have mapped.
class NodeMemory {
 public:
  /// Collective over `node`, whose ranks share memory. `own`: the memory that this rank shares, the
  /// same number of parts on all ranks, of any size; it must outlive this object, and is closed
  /// here. `windows`: the number of windows that will use it. Throws CollectiveError with the
  /// reason if a rank can't map another's memory.
  NodeMemory(Communicator& node, const std::vector<SharedMemory*>& own, int windows);
  ~NodeMemory();
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;

  int rank() const { return rank_; }

  /// The position of data in the memory that a rank shares.
  struct Place {
    int part = -1;  ///< index in `own`; -1: not shared
    std::int64_t offset = 0;
  };
  Place place_of(const void* data, std::int64_t bytes) const;
  /// Returns where data at `place` of a rank is mapped in this process.
  const std::byte* at(int rank, const Place& place) const;

  WindowFlags& flags(int rank, int window) const;
  /// Throws Error if the process of a rank has ended.
  void require_process(int rank) const;

 private:
  struct Rank {
    int process = 0;
    SharedMemory flags;
    std::vector<SharedMemory> mapped;     // memory of other ranks
    std::vector<const std::byte*> parts;  // memory of all ranks
  };

  int rank_ = 0;
  std::vector<SharedMemory*> own_;
  std::vector<Rank> ranks_;
};

/// Returns why the ranks of a node can't map each other's memory; empty if they can. Collective
/// over `node`; the text may differ between its ranks.
std::string why_not_shared(Communicator& node);

/// A group of ranks that read each other's memory directly, instead of sending it: each publishes
/// its send buffer, reads those of the others, and continues when all have read. Waits yield the
/// core, and let MPI progress messages meanwhile. Nothing is allocated after the constructor.
class Window {
 public:
  /// Collective over `group`, whose ranks are all in the node of `memory`. `number`: index among
  /// the windows of the node, the same for all ranks of the group, and not used by another group
  /// with any of them.
  Window(std::shared_ptr<const NodeMemory> memory, Communicator& group, int number);

  /// Publishes `source` for reading until end(). Throws std::logic_error if it is not in memory
  /// that this rank shares.
  void begin(const void* source, std::int64_t bytes);
  /// Waits until the source of `rank` may be read, and returns it.
  const std::byte* source(int rank) const;
  /// Returns the sources of all ranks, in rank order, from byte `offset` on.
  const std::vector<const std::byte*>& sources(std::int64_t offset);
  /// Marks that this rank has read all it needs, and waits until all ranks have.
  void end();

 private:
  template <class Word>
  void wait_for(Word WindowFlags::*word, std::size_t rank) const;

  std::shared_ptr<const NodeMemory> memory_;
  int rank_;
  int number_;
  MPI_Comm group_;
  std::vector<int> on_node_;  // for each rank of the group, its rank in the node
  std::vector<const std::byte*> sources_;
  std::uint32_t collective_ = 0;  // number of the current collective
};

}  // namespace ostrakon::comm
