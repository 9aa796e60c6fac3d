// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/passes/builder.hpp>

#include <algorithm>
#include <ostrakon/plan/passes/waits.hpp>
#include <ostrakon/plan/timing/traffic.hpp>
#include <stdexcept>

namespace ostrakon::plan {

static_assert(shard_alignment % QuantizedFlat::granule == 0, "shards have whole granules");

Builder::Builder(const ModelDescription& model, const Grid& grid, const Layouts& layouts,
                 Purpose purpose, int stage)
    : model_(model) {
  plan_.purpose = purpose;
  plan_.grid = grid;
  plan_.stage = stage;
  plan_.layouts = layouts;
  for (int u = 0; u < units(); ++u) {
    PlannedUnit planned;
    planned.layouts = layouts_of_unit(layouts, grid, unit(u));
    // Padding comes after each part that the unit computes with.
    const std::int64_t parts = unit_spans(grid, unit(u).expert_ranks).parts();
    const std::int64_t block = grid.ranks_of_stage() / parts * shard_alignment;
    planned.number = unit(u).number >= 0 ? unit(u).number : u;
    planned.tied_to = unit(u).tied_to;
    planned.tied_stages = unit(u).tied_stages;
    planned.name = unit(u).name;
    planned.capacity = unit(u).capacity;
    planned.parameter_elements = unit(u).parameter_elements - unit(u).alignment_elements;
    planned.whole_matrices = unit(u).whole_matrices;
    planned.forward = unit(u).forward;
    planned.backward = unit(u).backward;
    planned.recompute_phases = recomputed_phases(unit(u).forward);
    planned.first_gradient_phase = unit(u).first_gradient_phase();
    planned.can_add_gradients = unit(u).can_add_gradients;
    planned.flats.first = static_cast<int>(plan_.flats.size());
    const auto padded_offset = [&](std::int64_t offset, std::int64_t elements,
                                   std::int64_t padded) {
      return offset + offset / (elements / parts) * ((padded - elements) / parts);
    };
    const auto quantized = [&](bool trained, std::int64_t elements, std::int64_t padded) {
      std::vector<FlatElements> coded;
      for (const QuantizedWeights& weights : unit(u).quantized) {
        if (weights.trained != trained) continue;
        const std::int64_t first = padded_offset(weights.offset, elements, padded);
        if (first % QuantizedFlat::granule != 0)
          throw std::logic_error(planned.name + ": weights that are gathered in 8 bits begin at " +
                                 std::to_string(first) + ", which no granule does");
        coded.push_back({first, first + weights.elements});
      }
      return QuantizedFlat(coded, padded, planned.layouts.compute.divided.parts());
    };
    const bool quantizes = planned.layouts.gathers() && !unit(u).quantized.empty();
    if (quantizes && planned.layouts.has_copies())
      throw std::logic_error(planned.name + ": copies of parameters are not gathered in 8 bits");
    const auto add = [&](bool trained, std::int64_t elements) {
      if (elements % parts != 0)
        throw std::logic_error(
            planned.name + ": its parameters don't divide over the ranks that compute together");
      const std::int64_t padded = (elements / parts + block - 1) / block * block * parts;
      if (padded == 0) return;
      plan_.flats.push_back({u, trained, elements, padded, {}});
      if (quantizes) plan_.flats.back().quantized = quantized(trained, elements, padded);
      if (!trained) return;
      for (WholeMatrix& matrix : planned.whole_matrices)
        matrix.offset = padded_offset(matrix.offset, elements, padded);
    };
    add(false, unit(u).frozen_elements);
    add(true, unit(u).trained_elements());
    planned.flats.end = static_cast<int>(plan_.flats.size());
    if (unit(u).tied_stages.source < 0) plan_.frozen_count += unit(u).frozen_count;
    plan_.units.push_back(std::move(planned));
    parameter_uses_.push_back(plan::parameter_uses(model, u));
  }
}

void Builder::reserve(const Tasks& tasks) {
  std::size_t count = 0;
  for (const Task& task : tasks) {
    count += 5;
    if (!task.computes()) continue;
    // Each phase may have an exchange, and a backward may recompute forward.
    const UnitDescription& of = unit(task.unit);
    count += 2 * of.forward.size();
    if (task.work == Work::backward) count += 2 * of.backward.size();
  }
  plan_.actions.reserve(count);
  plan_.buffers.reserve(count);
  last_use_.reserve(count);
}

std::string Builder::name_of(int u, std::string_view what) const {
  const std::string& unit = state(u).name;
  std::string name;
  name.reserve(unit.size() + 1 + what.size());
  name.append(unit).append(" ").append(what);
  return name;
}

int Builder::make_named(std::string name, Category category, std::int64_t bytes, Space space) {
  Buffer buffer;
  buffer.name = std::move(name);
  buffer.category = category;
  buffer.space = space;
  buffer.bytes = bytes;
  plan_.buffers.push_back(std::move(buffer));
  last_use_.push_back(-1);
  return static_cast<int>(plan_.buffers.size()) - 1;
}

int Builder::make_buffer(std::string_view what, int u, Category category, std::int64_t bytes,
                         Space space) {
  return bytes > 0 ? make_named(name_of(u, what), category, bytes, space) : -1;
}

int Builder::make_array(std::string_view what, int u, Category category, FlatRange flats,
                        const Layout& layout) {
  const std::int64_t bytes = layout.quantized
                                 ? plan_.quantized_bytes(flats, layout.divided)
                                 : plan_.elements(flats, layout.divided) * layout.element_bytes;
  const int made =
      as_array(make_buffer(what, u, category, bytes, layout.space), flats, layout.divided);
  if (made >= 0) plan_.buffers[made].quantized = layout.quantized;
  return made;
}

int Builder::as_array(int buffer, FlatRange flats, const Spans& divided) {
  if (buffer >= 0) {
    plan_.buffers[buffer].flats = flats;
    plan_.buffers[buffer].divided = divided;
  }
  return buffer;
}

int Builder::make_gradients(std::string_view what, int u, const Layout& layout) {
  return make_array(what, u, Category::gradients, plan_.trained(u), layout);
}

int Builder::make_state(std::string_view what, int u, Category category, FlatRange flats,
                        const Layout& layout, std::int64_t elements) {
  const int made =
      make_named(name_of(u, what), category, elements * layout.element_bytes, layout.space);
  make_persistent(made);
  return as_array(made, flats, layout.divided);
}

int Builder::make_state(std::string_view what, int u, Category category, FlatRange flats,
                        const Layout& layout) {
  return make_state(what, u, category, flats, layout, plan_.elements(flats, layout.divided));
}

Action& Builder::emit(Kind kind, Stream stream, int u, int micro_batch) {
  Action& action = plan_.actions.emplace_back();
  action.kind = kind;
  action.stream = stream;
  action.unit = u;
  action.micro_batch = micro_batch;
  return action;
}

Action& Builder::emit_collective(Kind kind, int u, const Span& span, std::int64_t elements,
                                 std::int64_t element_bytes) {
  Action& action = emit(kind, u);
  action.span = span;
  action.elements = elements;
  action.element_bytes = element_bytes;
  return action;
}

void Builder::use(Action& action, Role role, int buffer, Access access) {
  if (buffer < 0) return;
  action.uses.push_back({role, buffer, access});
  last_use_[buffer] = static_cast<int>(plan_.actions.size()) - 1;
}

Action& Builder::copy(Stream stream, int u, int source, int target, std::int64_t elements,
                      std::int64_t element_bytes, FlatRange flats, const Spans& divided) {
  Action& action = emit(copy_from(source), stream, u);
  action.elements = elements;
  action.element_bytes = element_bytes;
  action.flats = flats;
  action.divided = divided;
  // The copy fills the target only in part if other parts stay there, or are gathered around this
  // one.
  const bool fills = buffer(target).bytes == elements * element_bytes;
  const bool begins = !buffer(target).persistent && !is_used(target);
  use(action, Role::source, source, Access::read);
  use(action, Role::target, target, fills || begins ? Access::write : Access::read_write);
  return action;
}

void Builder::copy(int u, int source, int target) {
  copy_on(traits(copy_from(source)).stream, u, source, target);
}

Action& Builder::copy_on(Stream stream, int u, int source, int target) {
  return copy(stream, u, source, target, buffer(source).bytes, 1, {}, {});
}

void Builder::copy_trained(int u, int source, int target, const Spans& divided,
                           std::int64_t element_bytes) {
  const FlatRange trained = plan_.trained(u);
  copy(traits(copy_from(source)).stream, u, source, target, plan_.elements(trained, divided),
       element_bytes, trained, divided);
}

int Builder::copied(int u, int source, std::string_view what) {
  const Space space = is_on_host(source) ? Space::device : Space::host;
  const int target = make_buffer(what, u, buffer(source).category, buffer(source).bytes, space);
  if (target < 0) return target;
  as_array(target, buffer(source).flats, buffer(source).divided);
  copy(u, source, target);
  return target;
}

void Builder::release(int u, const std::vector<int>& buffers) {
  if (buffers.empty()) return;
  Action& action = emit(Kind::release, u);
  // The end counts as a write, so that it comes after actions that only read.
  for (int ended : buffers) use(action, Role::released, ended, Access::read_write);
}

void Builder::release_used(int u, const std::vector<int>& buffers) {
  std::vector<int> used;
  for (int buffer : buffers)
    if (plan_.actions[last_use_[buffer]].stream != Stream::compute) used.push_back(buffer);
  release(u, used);
}

StepPlan Builder::finish() {
  find_lifetimes();
  // If no collective stays in a node, ranks map no windows.
  const Grid& grid = plan_.grid;
  if (std::none_of(plan_.actions.begin(), plan_.actions.end(), [&](const Action& action) {
        return array_bytes(action) > 0 && action.span.ranks > 1 && grid.has_window(action.span);
      }))
    plan_.grid.window = 0;
  find_waits(plan_);
  return std::move(plan_);
}

void Builder::find_lifetimes() {
  for (int a = 0; a < static_cast<int>(plan_.actions.size()); ++a)
    for (const Use& used : plan_.actions[a].uses) {
      Buffer& buffer = plan_.buffers[used.buffer];
      if (buffer.first < 0) buffer.first = a;
      buffer.last = a;
    }
  for (const Buffer& buffer : plan_.buffers)
    if (!buffer.persistent && plan_.actions[buffer.last].stream != Stream::compute)
      throw std::logic_error("'" + buffer.name + "' does not end on the compute stream");
}

}  // namespace ostrakon::plan
