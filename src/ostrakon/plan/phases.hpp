// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <ostrakon/plan/builder.hpp>
#include <ostrakon/plan/tasks.hpp>

namespace ostrakon::plan {

/// Throws Error as check_reads does, and where an exchange is over ranks or parts that do not
/// divide.
void check_phases(const ModelDescription& model, const Grid& grid);

/// The position of a phase among those of its unit.
struct PhasePosition {
  bool first = true;
  bool last = true;
  bool writes_output = true;
  bool output_begun = false;  ///< an earlier one has written a part of the output

  /// How a phase uses what all phases together write: the first begins it.
  Access filling() const { return first ? Access::write : Access::read_write; }
};

/// Where a phase works, and whether it finds what the one before it has left there.
struct Workspace {
  int buffer = -1;
  Access access = Access::write;
};

/// Appends the phases `computed` of a unit's forward, recompute or backward (`kind`), each an
/// action on the compute stream, and the exchanges between them, which compute waits for where they
/// are read first. Each phase gets a workspace, called `workspace`, what came of the exchanges that
/// it reads, and a buffer for what it hands over; `use` adds all else that it reads and writes.
void append_phases(Builder& builder, const Task& task, Kind kind, const Phases& phases,
                   const std::vector<int>& computed, const char* workspace,
                   const std::function<void(Action& action, Workspace, PhasePosition)>& use);

}  // namespace ostrakon::plan
