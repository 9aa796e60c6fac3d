// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <ostrakon/plan/builder.hpp>
#include <ostrakon/plan/tasks.hpp>

namespace ostrakon::plan {

/// Throws Error where a unit has no phase, an exchange follows its last one, or an exchange is over
/// ranks or parts that do not divide.
void check_phases(const ModelDescription& model, const Grid& grid);

/// The position of a phase among those of its unit.
struct PhasePosition {
  bool first = true;
  bool last = true;

  /// How a phase uses what all phases together write: the first begins it.
  Access filling() const { return first ? Access::write : Access::read_write; }
};

/// Appends the phases of a unit's forward, recompute or backward (`kind`), each an action on the
/// compute stream, and the exchanges between them. Each phase gets a workspace of its own, called
/// `workspace`, what the exchange before it received, and a buffer for what it passes to the next
/// one; `use` adds all else that it reads and writes.
void append_phases(Builder& builder, const Task& task, Kind kind, const Phases& phases,
                   const char* workspace,
                   const std::function<void(Action& action, int workspace, PhasePosition)>& use);

}  // namespace ostrakon::plan
