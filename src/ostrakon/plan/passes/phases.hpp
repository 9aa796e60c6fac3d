// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <ostrakon/plan/ir/tasks.hpp>
#include <ostrakon/plan/passes/builder.hpp>

namespace ostrakon::plan {

/// Throws Error as check_reads does, and where an exchange is over ranks or parts that do not
/// divide.
void check_phases(const ModelDescription& model, const Grid& grid);

/// The position of a phase among those of its unit.
struct PhasePosition {
  bool first = true;
  bool last = true;
  bool writes_output = true;
  bool output_begun = false;  ///< whether an earlier phase has written a part of the output

  /// How a phase uses a buffer that all phases together write: the first one begins it.
  Access filling() const { return first ? Access::write : Access::read_write; }
};

/// The workspace of a phase, and whether the phase before it has left data there.
struct Workspace {
  int buffer = -1;
  Access access = Access::write;
};

/// Appends the phases `computed` of a unit's forward, recompute or backward (`kind`), each an
/// action on the compute stream, and the exchanges between them; compute waits for an exchange
/// before the first phase that reads its result. Each phase gets a workspace, called `workspace`,
/// the results of the exchanges that it reads, and a send buffer for its own exchange; `use` adds
/// all other buffers.
void append_phases(Builder& builder, const Task& task, Kind kind, const Phases& phases,
                   const std::vector<int>& computed, const char* workspace,
                   const std::function<void(Action& action, Workspace, PhasePosition)>& use);

}  // namespace ostrakon::plan
