// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/passes/redistribute.hpp>

#include <stdexcept>
#include <utility>

namespace ostrakon::plan {
namespace {

/// Gathers over `span`, the innermost span of `source`'s layout, to an array that is divided over
/// `divided`: into `target`, or into a part of it if it will hold more. In place if source and
/// target are the same.
void gather(Builder& builder, int u, int source, int target, const Span& span, const Spans& divided,
            std::int64_t element_bytes, bool converts, const Redistribution& moving) {
  const FlatRange flats = builder.buffer(target).flats;
  const bool is_whole = builder.buffer(target).divided == divided;
  Access access = source == target ? Access::read_write : Access::write;
  for (int flat = flats.first; flat < flats.end; ++flat) {
    const FlatRange one{flat, flat + 1};
    Action& action = builder.emit_collective(
        moving.gather, u, span, builder.plan().size_in(builder.buffer(target), one, divided),
        element_bytes);
    action.flats = one;
    action.converts = converts;
    if (!is_whole) action.divided = divided;
    if (source != target) builder.use(action, moving.part, source, Access::read);
    builder.use(action, moving.whole, target, access);
    access = Access::read_write;
  }
}

}  // namespace

int redistribute(Builder& builder, int u, int source, const Layout& to,
                 const Redistribution& moving, std::vector<int>& made, int target) {
  const FlatRange flats = builder.buffer(source).flats;
  if (flats.empty()) return source;
  Spans divided = builder.buffer(source).divided;
  if (!divided.starts_with(to.divided))
    throw std::logic_error("'" + builder.buffer(source).name +
                           "' is not divided over what it is to be divided over");
  int at = source;
  bool converts = moving.converts;  // still to be done
  const auto keep = [&](int buffer) {
    made.push_back(buffer);
    return buffer;
  };
  const auto copy_to = [&](const char* what) {
    if (target >= 0)
      builder.copy(u, at, target);
    else
      keep(target = builder.copied(u, at, what));
    at = target;
  };
  /// Makes the buffer for an array that is gathered so as to be divided over `spans`.
  const auto make_whole = [&](const Spans& spans) {
    const bool is_last = spans == to.divided && to.space == Space::device && target >= 0;
    const Layout layout = to.over(spans).in(Space::device);
    return is_last ? target
                   : keep(builder.make_array(moving.gathered, u, moving.category, flats, layout));
  };
  const auto gather_over = [&](const Span& span, int whole) {
    gather(builder, u, at, whole, span, divided, to.element_bytes, std::exchange(converts, false),
           moving);
    at = whole;
  };

  const bool gathers = divided.size() > to.divided.size() || converts;
  if (gathers && builder.is_on_host(at)) at = keep(builder.copied(u, at, moving.on_device));
  while (divided.size() > to.divided.size()) {
    const Span span = divided.innermost();
    divided = divided.outer();
    // The first of two levels gathers into the buffer where the second one continues in place.
    const bool goes_on =
        divided.size() > to.divided.size() && divided.innermost().axis == span.axis;
    const int whole = make_whole(goes_on ? divided.outer() : divided);
    gather_over(span, whole);
    if (!goes_on) continue;
    const Span inside = divided.innermost();
    divided = divided.outer();
    gather_over(inside, whole);
  }
  if (converts) gather_over({Axis::shard, 1}, make_whole(divided));
  if (builder.buffer(at).space != to.space)
    copy_to(to.space == Space::host ? moving.on_host : moving.on_device);
  return at;
}

void gather_in_place(Builder& builder, int u, int buffer, const Spans& from, const Layout& to) {
  for (Spans divided = from; divided.size() > to.divided.size(); divided = divided.outer()) {
    const FlatRange trained = builder.plan().trained(u);
    Action& action = builder.emit_collective(Kind::gather_updates, u, divided.innermost(),
                                             builder.plan().elements(trained, divided.outer()),
                                             to.element_bytes);
    builder.use(action, Role::shard, buffer, Access::read_write);
  }
}

void export_parameters(Builder& builder, int u) {
  if (builder.state(u).masters < 0) return;
  const Layout whole{{}, Space::device, builder.plan().layouts.masters.element_bytes};
  Redistribution moving;
  moving.on_device = "masters";
  moving.gathered = "gathered masters";
  std::vector<int> made;
  const int masters = redistribute(builder, u, builder.state(u).masters, whole, moving, made);
  int copies = -1, converted = -1;
  const FlatRange frozen = builder.plan().frozen(u);
  if (builder.state(u).layouts.frozen_without_masters && !frozen.empty()) {
    moving.on_device = "uploaded";
    moving.gathered = "gathered copies";
    copies = redistribute(builder, u, builder.state(u).compute_copy,
                          {{}, Space::device, builder.model().element_bytes}, moving, made);
    converted = builder.make_buffer("converted", u, Category::workspace,
                                    builder.plan().padded(frozen) * whole.element_bytes);
    made.push_back(converted);
  }
  Action& action = builder.emit(Kind::export_parameters, u);
  builder.use(action, Role::parameters, masters, Access::read);
  builder.use(action, Role::source, copies, Access::read);
  builder.use(action, Role::workspace, converted, Access::write);
  builder.release(u, made);
}

}  // namespace ostrakon::plan
