// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <ostrakon/plan/step_plan.hpp>
#include <string>
#include <vector>

namespace ostrakon::plan {

/// Follows what the arrays in a plan's buffers are divided over, action after action: which part of
/// each flat parameter a rank has there. That may be less than the buffer can hold: between the
/// levels of a gather, and between an update and the gather of what other ranks updated. Streams
/// and waits keep the order of the plan where it matters, see prove_memory.
class ContentsCheck {
 public:
  explicit ContentsCheck(const StepPlan& plan);

  /// What is wrong with the persistent buffers, or "": they are laid out as the plan's layouts say.
  std::string wrong_begin() const;

  /// The next action, which wrong_communication accepts. What is wrong with it, or "": what it
  /// reads must be there, divided as it takes it to be.
  std::string wrong(const Action& action);

  /// After all actions, the same: persistent buffers must be as they were.
  std::string wrong_end() const;

 private:
  using Content = std::optional<Spans>;  // nothing: not written yet
  /// Where contents_ has that of a flat parameter in a buffer.
  std::size_t at(int buffer, int flat) const;
  void set(int buffer, FlatRange flats, const Spans& divided);

  std::string need(int buffer, FlatRange flats, const Spans& divided) const;
  std::string need_part(int buffer, FlatRange flats, const Spans& divided) const;
  std::string need_room(int buffer, FlatRange flats, const Spans& divided,
                        std::int64_t element_bytes) const;

  std::string wrong_gather(const Action& action);
  std::string wrong_gather_of_updates(const Action& action);
  std::string wrong_keep(const Action& action);
  std::string wrong_copy(const Action& action);
  std::string wrong_copy_of_part(const Action& action, int source, int target);
  std::string wrong_update(const Action& action);
  std::string wrong_optimistic(const Action& action);
  /// What an update writes, as of a unit that is not verified; -1: as of none.
  void mark(const Action& action, int unit);
  std::string wrong_use(const Action& action, const Use& use);
  std::string wrong_parameters(const Action& action);
  std::string wrong_share(const Action& action);
  Spans expected(const Action& action, const Use& use) const;

  const StepPlan& plan_;
  std::vector<int> first_;  // of each buffer, in contents_
  std::vector<Content> contents_;
  /// For each unit, the parameters that its forward reads, its own and those that it is tied to.
  std::vector<std::array<FlatRange, 2>> read_by_forward_;
  bool is_clipped_ = false;
  std::vector<bool> updated_, shared_;     // of each unit: its parameters, with the other stage
  std::vector<const Action*> unverified_;  // of each unit: an update that may have to be undone
  std::vector<int> unverified_unit_;       // of each buffer: whose update it has
};

}  // namespace ostrakon::plan
