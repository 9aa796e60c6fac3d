// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <string>
#include <vector>

namespace ostrakon::plan {

/// Tracks how the arrays in a plan's buffers are divided, action after action: which part of each
/// flat parameter a rank has in them. That may be less than the buffer can hold: between the levels
/// of a gather, and between an update and the gather of other ranks' updates. Streams and waits
/// keep the order of the plan where it matters, see prove_memory.
class ContentsCheck {
 public:
  explicit ContentsCheck(const StepPlan& plan);

  /// Returns "" if the persistent buffers are laid out as the plan's layouts say; else what is
  /// wrong.
  std::string wrong_begin() const;

  /// Takes the next action, which wrong_communication accepts. Returns "" if all that it reads is
  /// there, divided as the action assumes; else what is wrong.
  std::string wrong(const Action& action);

  /// To be called after all actions. Returns "" if persistent buffers are laid out as at the begin;
  /// else what is wrong.
  std::string wrong_end() const;

 private:
  using Content = std::optional<Spans>;  // nullopt: not written yet
  /// The index in contents_ of a flat parameter in a buffer.
  std::size_t at(int buffer, int flat) const;
  void set(int buffer, FlatRange flats, const Spans& divided);

  std::string need(int buffer, FlatRange flats, const Spans& divided) const;
  std::string need_part(int buffer, FlatRange flats, const Spans& divided) const;
  std::string need_room(int buffer, FlatRange flats, const Spans& divided,
                        std::int64_t element_bytes) const;

  std::string wrong_gather(const Action& action);
  std::string wrong_quantization(const Action& action, int whole, int part,
                                 const Spans& parts) const;
  std::string wrong_gather_of_updates(const Action& action);
  std::string wrong_dequantize(const Action& action);
  std::string wrong_keep(const Action& action);
  std::string wrong_copy(const Action& action);
  std::string wrong_copy_of_part(const Action& action, int source, int target);
  std::string wrong_update(const Action& action);
  std::string wrong_optimistic(const Action& action);
  /// Marks the buffers that an update writes as belonging to an unverified unit; -1: to none.
  void mark(const Action& action, int unit);
  std::string wrong_use(const Action& action, const Use& use);
  std::string wrong_parameters(const Action& action);
  std::string wrong_share(const Action& action);
  Spans expected(const Action& action, const Use& use) const;

  const StepPlan& plan_;
  std::vector<int> first_;  // per buffer: its first index in contents_
  std::vector<Content> contents_;
  /// For each unit, the parameters that its forward reads, its own and those that it is tied to.
  std::vector<std::array<FlatRange, 2>> read_by_forward_;
  bool is_clipped_ = false;
  std::vector<bool> updated_, shared_;     // per unit: whether its parameters are updated, and
                                           // shared with the other stage
  std::vector<const Action*> unverified_;  // per unit: an update that may have to be undone
  std::vector<int> unverified_unit_;       // per buffer: the unit whose unverified update it has
};

}  // namespace ostrakon::plan
