// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostrakon/plan/ir/parameter_uses.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/plan/ir/tasks.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ostrakon::plan {

/// The host may be slower than the device for a while: compute waits for the host's work this many
/// units later, only to limit memory.
constexpr std::size_t units_behind = 4;

/// Appends actions and buffers to a plan, and records which action used a buffer last. A buffer
/// begins with the action that first uses it and ends with the last one, which must be on the
/// compute stream: `release` sees to that.
///
/// Functions that make a buffer of a unit take its name without the unit's. They return its number,
/// or -1 where the buffer would be empty (but a state buffer is made even then). Uses of buffer -1
/// are ignored.
class Builder {
 public:
  /// Begins a plan without actions: units, their flat parameters and layouts.
  Builder(const ModelDescription& model, const Grid& grid, const Layouts& layouts, Purpose purpose,
          int stage = 0);

  /// Reserves memory for the actions and buffers of these tasks, approximately.
  void reserve(const Tasks& tasks);

  const StepPlan& plan() const { return plan_; }
  const ModelDescription& model() const { return model_; }
  const UnitDescription& unit(int u) const { return model_.units[u]; }
  int units() const { return static_cast<int>(model_.units.size()); }
  /// The parameters that a unit computes with: its own, then those that it is tied to.
  const std::vector<ParameterUse>& parameter_uses(int u) const { return parameter_uses_[u]; }
  bool is_trained(int u) const { return !plan_.trained(u).empty(); }
  /// The planned unit, in which passes note the buffers of its state.
  PlannedUnit& state(int u) { return plan_.units[u]; }
  const PlannedUnit& state(int u) const { return plan_.units[u]; }
  void note_sums(int buffer) { plan_.sums = buffer; }
  void note_product_workspace(int buffer) { plan_.product_workspace = buffer; }
  void note_checkpoint(int buffer) { plan_.checkpoint = buffer; }
  void note_digest(const Digest& digest) { plan_.digests.push_back(digest); }

  // ---- buffers

  int make_named(std::string name, Category category, std::int64_t bytes, Space space);
  int make_buffer(std::string_view what, int u, Category category, std::int64_t bytes,
                  Space space = Space::device);
  /// An array of a unit's flat parameters, or of their gradients or moments.
  int make_array(std::string_view what, int u, Category category, FlatRange flats,
                 const Layout& layout);
  int make_gradients(std::string_view what, int u, const Layout& layout);
  /// An array that persists from step to step: `elements`, or else a rank's part.
  int make_state(std::string_view what, int u, Category category, FlatRange flats,
                 const Layout& layout, std::int64_t elements);
  int make_state(std::string_view what, int u, Category category, FlatRange flats,
                 const Layout& layout);
  void make_persistent(int buffer) { plan_.buffers[buffer].persistent = true; }
  /// Sets the size of a buffer that is known only once all of its uses but the last are there.
  void set_bytes(int buffer, std::int64_t bytes) { plan_.buffers[buffer].bytes = bytes; }

  const Buffer& buffer(int index) const { return plan_.buffers[index]; }
  bool is_on_host(int index) const { return buffer(index).space == Space::host; }
  bool is_used(int index) const { return last_use_[index] >= 0; }

  // Actions: references to them hold until the next one is appended.

  /// An action on the stream of its kind, or on another one.
  Action& emit(Kind kind, int u, int micro_batch = -1) {
    return emit(kind, traits(kind).stream, u, micro_batch);
  }
  Action& emit(Kind kind, Stream stream, int u, int micro_batch = -1);
  /// A collective over `elements` of `element_bytes` in all.
  Action& emit_collective(Kind kind, int u, const Span& span, std::int64_t elements,
                          std::int64_t element_bytes);
  void use(Action& action, Role role, int buffer, Access access);

  /// Copies a whole buffer to one of the same layout in the other memory.
  void copy(int u, int source, int target);
  /// Copies a whole buffer on `stream`, which is not one of the copy streams.
  Action& copy_on(Stream stream, int u, int source, int target);
  /// Copies the part of the trained parameters that `divided` says, which both buffers have.
  void copy_trained(int u, int source, int target, const Spans& divided,
                    std::int64_t element_bytes);
  /// Makes a copy of a buffer in the other memory.
  int copied(int u, int source, std::string_view what);

  /// Ends buffers: compute waits here for all of their uses on other streams.
  void release(int u, const std::vector<int>& buffers);
  /// Releases those buffers that do not end with the last action on compute anyway.
  void release_used(int u, const std::vector<int>& buffers);

  /// Finds lifetimes and waits. Throws std::logic_error where a buffer does not end on the compute
  /// stream.
  StepPlan finish();

 private:
  /// The name of a buffer of unit `u`.
  std::string name_of(int u, std::string_view what) const;
  /// Notes which flat parameters a buffer holds; returns it. Does nothing for -1.
  int as_array(int buffer, FlatRange flats, const Spans& divided);
  Action& copy(Stream stream, int u, int source, int target, std::int64_t elements,
               std::int64_t element_bytes, FlatRange flats, const Spans& divided);
  /// The kind of copies from this buffer to the other memory.
  Kind copy_from(int source) const {
    return is_on_host(source) ? Kind::copy_to_device : Kind::copy_to_host;
  }
  void find_lifetimes();

  const ModelDescription& model_;
  std::vector<std::vector<ParameterUse>> parameter_uses_;  // one per unit
  StepPlan plan_;
  std::vector<int> last_use_;  // per buffer: the last action that uses it, or -1
};

}  // namespace ostrakon::plan
