// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostrakon/base/shared_memory.hpp>
#include <string>
#include <vector>

namespace ostrakon::comm {

class Communicator;

/// What a rank tells the others of a group about their collectives, in memory that all of them
/// have mapped.
struct WindowFlags;

/// Memory that the ranks of a node have mapped of each other.
class NodeMemory {
 public:
  /// Collective over `node`, whose ranks share memory. `own`: what this rank shares, equally many
  /// on all ranks, of any size; it must outlive this, and is closed. `windows`: how many windows
  /// will be made of it. Throws AgreedError with the reason where any rank can't map another's.
  NodeMemory(Communicator& node, const std::vector<SharedMemory*>& own, int windows);
  ~NodeMemory();
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;

  int rank() const { return rank_; }

  /// Where something is in the memory that a rank shares.
  struct Place {
    int part = -1;  ///< of what it shares; -1: not in it
    std::int64_t offset = 0;
  };
  Place place_of(const void* data, std::int64_t bytes) const;
  /// Returns where it is on a rank of the node: in this rank's mapping of its memory.
  const std::byte* at(int rank, const Place& place) const;

  WindowFlags& flags(int rank, int window) const;
  /// Throws Error where the process of a rank is no longer there.
  void require_process(int rank) const;

 private:
  struct Rank {
    int process = 0;
    SharedMemory flags;
    std::vector<SharedMemory> mapped;     // of other ranks
    std::vector<const std::byte*> parts;  // of any
  };

  int rank_ = 0;
  std::vector<SharedMemory*> own_;
  std::vector<Rank> ranks_;
};

/// Why the ranks of a node can't map each other's memory; empty: they can. Collective over `node`;
/// the text may differ between its ranks.
std::string why_not_shared(Communicator& node);

/// A group of ranks that read each other's memory where it is, instead of sending it: each says
/// where its part of a collective lies, reads those of the others, and goes on when all have read.
/// Waits give the core away, and let MPI go on with messages meanwhile. Nothing is allocated after
/// the constructor.
class Window {
 public:
  /// Collective over `group`, whose ranks are all in the node of `memory`. `number`: of the windows
  /// of the node, the same for all ranks of the group, and in no other group with any of them.
  Window(std::shared_ptr<const NodeMemory> memory, Communicator& group, int number);

  /// Says that `source` is there to be read, until end(). Throws std::logic_error where it is not
  /// in the memory that this rank shares.
  void begin(const void* source, std::int64_t bytes);
  /// Returns the source of a rank, once it is there to be read.
  const std::byte* source(int rank) const;
  /// Those of all ranks, in rank order, from byte `offset` on.
  const std::vector<const std::byte*>& sources(std::int64_t offset);
  /// Says that this rank has read what it needs, and waits until all ranks have.
  void end();

 private:
  template <class Word>
  void wait_for(Word WindowFlags::*word, std::size_t rank) const;

  std::shared_ptr<const NodeMemory> memory_;
  int rank_;
  int number_;
  MPI_Comm group_;
  std::vector<int> on_node_;  // of each rank of the group: its rank in the node
  std::vector<const std::byte*> sources_;
  std::uint32_t collective_ = 0;  // the number of the one that goes on
};

}  // namespace ostrakon::comm
