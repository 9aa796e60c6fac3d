// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/proof/contents_check.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/proof/communication_check.hpp>

namespace ostrakon::plan {
namespace {

std::string described(const Spans& divided) {
  if (divided.empty()) return "the whole";
  std::string parts = "parts over";
  const char* then = " ";
  for (const Span& span : divided) {
    parts += text(then, span.ranks, " ranks along ", name(span.axis));
    if (span.stride > 1) parts += text(", ", span.stride, " apart");
    then = ", then ";
  }
  return parts;
}

std::string quoted(const Buffer& buffer) { return "'" + buffer.name + "'"; }

}  // namespace

ContentsCheck::ContentsCheck(const StepPlan& plan)
    : plan_(plan),
      read_by_forward_(plan.units.size()),
      updated_(plan.units.size(), false),
      shared_(plan.units.size(), false),
      unverified_(plan.units.size(), nullptr),
      unverified_unit_(plan.buffers.size(), -1) {
  first_.reserve(plan.buffers.size());
  contents_.reserve(plan.buffers.size());
  for (const Buffer& buffer : plan.buffers) {
    first_.push_back(static_cast<int>(contents_.size()));
    contents_.insert(contents_.end(), static_cast<std::size_t>(buffer.flats.size()),
                     buffer.persistent ? Content(buffer.divided) : Content());
  }
}

std::size_t ContentsCheck::at(int buffer, int flat) const {
  return static_cast<std::size_t>(first_[buffer] + flat - plan_.buffers[buffer].flats.first);
}

void ContentsCheck::set(int buffer, FlatRange flats, const Spans& divided) {
  for (int flat = flats.first; flat < flats.end; ++flat) contents_[at(buffer, flat)] = divided;
}

/// Returns "" if the rank has exactly the parts that `divided` says in the buffer.
std::string ContentsCheck::need(int buffer, FlatRange flats, const Spans& divided) const {
  const Buffer& array = plan_.buffers[buffer];
  if (flats.first < array.flats.first || flats.end > array.flats.end)
    return text("needs parameters that ", quoted(array), " has not");
  for (int flat = flats.first; flat < flats.end; ++flat) {
    const Content& has = contents_[at(buffer, flat)];
    if (has != divided)
      return text("needs ", described(divided), " in ", quoted(array), ", which has ",
                  has ? described(*has) : "nothing yet");
  }
  return "";
}

/// Returns "" if the rank has at least the parts that `divided` says in the buffer.
std::string ContentsCheck::need_part(int buffer, FlatRange flats, const Spans& divided) const {
  const FlatRange has = plan_.buffers[buffer].flats;
  for (int flat = flats.first; flat < flats.end; ++flat)
    if (flat < has.first || flat >= has.end || !contents_[at(buffer, flat)] ||
        !divided.starts_with(*contents_[at(buffer, flat)]))
      return need(buffer, flats, divided);
  return "";
}

std::string ContentsCheck::need_room(int buffer, FlatRange flats, const Spans& divided,
                                     std::int64_t element_bytes) const {
  const Buffer& array = plan_.buffers[buffer];
  if (flats.first < array.flats.first || flats.end > array.flats.end ||
      !divided.starts_with(array.divided))
    return text("needs space for ", described(divided), " in ", quoted(array), ", which is for ",
                described(array.divided));
  if (array.bytes != plan_.size_in(array, array.flats, array.divided) * element_bytes)
    return text("needs elements of ", element_bytes, " bytes in ", quoted(array), ", whose ",
                array.bytes, " bytes are not ", described(array.divided), " of these");
  return "";
}

std::string ContentsCheck::wrong_begin() const {
  const auto differs = [&](int buffer, const Layout& layout) {
    return buffer >= 0 && plan_.buffers[buffer].divided != layout.divided;
  };
  const auto reason = [&](int buffer, const Layout& layout) {
    return text(quoted(plan_.buffers[buffer]), " is for ", described(plan_.buffers[buffer].divided),
                ", its layout for ", described(layout.divided));
  };
  for (const PlannedUnit& unit : plan_.units) {
    const Layouts& layouts = unit.layouts;
    if (differs(unit.masters, layouts.masters)) return reason(unit.masters, layouts.masters);
    if (differs(unit.compute_copy, layouts.compute))
      return reason(unit.compute_copy, layouts.compute);
    for (int state : {unit.first_moments, unit.second_moments, unit.averages})
      if (differs(state, layouts.update)) return reason(state, layouts.update);
  }
  return "";
}

/// Checks messages of updated parameters to a stage with a copy, which come once a step.
std::string ContentsCheck::wrong_share(const Action& action) {
  if (action.buffer(Role::shard) < 0) return "";
  const PlannedUnit& unit = plan_.units[action.unit];
  const bool sends = action.kind == Kind::send;
  if ((sends ? unit.tied_stages.replica : unit.tied_stages.source) != action.peer)
    return "of parameters that the other stage does not share";
  if (action.buffer(Role::shard) != unit.compute())
    return "of another buffer than is computed with";
  if (sends && unverified_[action.unit] != nullptr) return "before the update is verified";
  if (sends ? !updated_[action.unit] : !is_clipped_)
    return sends ? "before they are updated" : "before the step's sums are known";
  if (shared_[action.unit]) return "once more";
  shared_[action.unit] = true;
  return "";
}

std::string ContentsCheck::wrong_end() const {
  for (std::size_t u = 0; u < plan_.units.size(); ++u) {
    const PlannedUnit& unit = plan_.units[u];
    const bool is_shared = unit.tied_stages.replica >= 0 || unit.tied_stages.source >= 0;
    if (trains(plan_.purpose) && is_shared && !plan_.trained(static_cast<int>(u)).empty() &&
        !shared_[u])
      return text("updated parameters of ", unit.name, " are not shared with the other stage");
    if (unverified_[u] != nullptr) return text("the update of ", unit.name, " is not verified");
  }
  for (int b = 0; b < static_cast<int>(plan_.buffers.size()); ++b) {
    const Buffer& buffer = plan_.buffers[b];
    if (!buffer.persistent) continue;
    for (int flat = buffer.flats.first; flat < buffer.flats.end; ++flat)
      if (contents_[at(b, flat)] != buffer.divided)
        return text(quoted(buffer), " is left with ", described(*contents_[at(b, flat)]), ", of ",
                    described(buffer.divided));
  }
  return "";
}

std::string ContentsCheck::wrong(const Action& action) {
  // Nothing may read an update that may still be undone.
  for (const Use& use : action.uses) {
    const int unit = unverified_unit_[static_cast<std::size_t>(use.buffer)];
    if (unit >= 0 && (action.kind != Kind::verify || action.unit != unit))
      return text("uses ", quoted(plan_.buffers[use.buffer]), " before the update is verified");
  }
  if (is_copy(action.kind)) return wrong_copy(action);
  switch (action.kind) {
    case Kind::gather:
    case Kind::gather_gradients:
      return wrong_gather(action);
    case Kind::gather_updates:
      return wrong_gather_of_updates(action);
    case Kind::dequantize:
      return wrong_dequantize(action);
    case Kind::keep:
      return wrong_keep(action);
    case Kind::optimize:
    case Kind::verify:
      return wrong_update(action);
    case Kind::release:
      return "";
    default:
      break;
  }
  is_clipped_ = is_clipped_ || action.kind == Kind::clip;
  std::string reason = is_message(action.kind) ? wrong_share(action)
                       : is_phase(action.kind) ? wrong_parameters(action)
                                               : "";
  for (const Use& use : action.uses)
    if (reason.empty()) reason = wrong_use(action, use);
  return reason;
}

/// Returns "" if a gather brings codes to a quantized buffer, and parameters to any other one:
/// codes come from a quantized part, which `whole` is where the gather is in place, or are made of
/// masters on the way.
std::string ContentsCheck::wrong_quantization(const Action& action, int whole, int part,
                                              const Spans& parts) const {
  const Buffer& to = plan_.buffers[whole];
  const Buffer& from = part >= 0 ? plan_.buffers[part] : to;
  const bool quantizes = to.quantized && !from.quantized;
  if (quantizes && action.converts)
    return need_room(part, action.flats, parts,
                     plan_.units[action.unit].layouts.masters.element_bytes);
  if (from.quantized == to.quantized && !(to.quantized && action.converts)) return "";
  return text(
      "brings ", quoted(from), " to ", quoted(to), ", which ",
      to.quantized ? "is quantized, otherwise than by rounding masters" : "is not quantized");
}

/// Checks a gather from a part, or in place.
std::string ContentsCheck::wrong_gather(const Action& action) {
  const bool of_gradients = action.kind == Kind::gather_gradients;
  const Role role = of_gradients ? Role::parameter_gradients : Role::parameters;
  const int whole = action.buffer(role);
  const int part = action.buffer(of_gradients ? Role::gradient_shard : Role::shard);
  const Spans& gathered = plan_.gathered(action, role);
  Spans parts = gathered;
  parts.push(action.span);
  std::string reason = need_room(whole, action.flats, gathered, action.element_bytes);
  if (reason.empty()) reason = need(part >= 0 ? part : whole, action.flats, parts);
  if (reason.empty()) reason = wrong_quantization(action, whole, part, parts);
  if (!reason.empty()) return of_collective(action, reason);
  set(whole, action.flats, gathered);
  return "";
}

std::string ContentsCheck::wrong_gather_of_updates(const Action& action) {
  const int whole = action.buffer(Role::shard);
  const FlatRange trained = plan_.trained(action.unit);
  if (unverified_[action.unit] != nullptr)
    return of_collective(action, "before the update is verified");
  std::string reason =
      need_room(whole, trained, plan_.buffers[whole].divided, action.element_bytes);
  if (!reason.empty()) return of_collective(action, reason);
  if (trained.empty()) return of_collective(action, "of what is not trained");
  const Content has = contents_[at(whole, trained.first)];
  if (!has || has->empty() || has->innermost() != action.span ||
      !has->outer().starts_with(plan_.buffers[whole].divided))
    return of_collective(action, text("gathers to ", described(plan_.buffers[whole].divided),
                                      " in ", quoted(plan_.buffers[whole]), ", which has ",
                                      has ? described(*has) : "nothing yet"));
  if (action.elements != plan_.elements(trained, has->outer()))
    return of_collective(action, "not as many as its buffers have");
  set(whole, trained, has->outer());
  return "";
}

std::string ContentsCheck::wrong_dequantize(const Action& action) {
  const int source = action.buffer(Role::source), whole = action.buffer(Role::parameters);
  if (source < 0 || whole < 0) return "without buffers";
  const FlatRange flats = plan_.units[action.unit].flats;
  const Layout& gathered = plan_.units[action.unit].layouts.gathered;
  if (!plan_.buffers[source].quantized || plan_.buffers[whole].quantized)
    return text("of ", quoted(plan_.buffers[source]), " to ", quoted(plan_.buffers[whole]),
                ", which are not quantized and as computed with");
  std::string reason = need_room(source, flats, gathered.divided, 1);
  if (reason.empty()) reason = need(source, flats, gathered.divided);
  if (reason.empty()) reason = need_room(whole, flats, gathered.divided, gathered.element_bytes);
  if (!reason.empty()) return reason;
  if (action.elements != plan_.elements(flats, gathered.divided))
    return text("of ", action.elements, " elements, not as many as its buffers have");
  set(whole, flats, gathered.divided);
  return "";
}

std::string ContentsCheck::wrong_keep(const Action& action) {
  const int whole = action.buffer(Role::parameters), part = action.buffer(Role::shard);
  if (whole < 0 || part < 0) return "without buffers";
  const FlatRange flats = plan_.units[action.unit].flats;
  Spans parts = plan_.units[action.unit].layouts.gathered.divided;
  const std::string reason = need(whole, flats, parts);
  if (!reason.empty()) return reason;
  for (int buffer : {whole, part})
    if (plan_.buffers[buffer].quantized)
      return text("keeps a part of ", quoted(plan_.buffers[whole]), " in ",
                  quoted(plan_.buffers[part]), ", of which one is quantized");
  parts.push(plan_.grid.levels(action.span));
  if (!(plan_.buffers[part].flats == flats) || plan_.buffers[part].divided != parts)
    return text("keeps ", described(parts), " in ", quoted(plan_.buffers[part]), ", which is for ",
                described(plan_.buffers[part].divided));
  if (action.elements != plan_.elements(flats, parts))
    return text("keeps ", action.elements, " elements, not as many as its buffers have");
  set(part, flats, parts);
  return "";
}

std::string ContentsCheck::wrong_copy(const Action& action) {
  const int source = action.buffer(Role::source), target = action.buffer(Role::target);
  if (source < 0 || target < 0) return "without buffers";
  const Buffer &from = plan_.buffers[source], &to = plan_.buffers[target];
  if (from.quantized != to.quantized)
    return text("copies ", quoted(from), " to ", quoted(to), ", of which one is quantized");
  if (!action.flats.empty()) return wrong_copy_of_part(action, source, target);
  if (!(from.flats == to.flats) || from.divided != to.divided || from.bytes != to.bytes)
    return text("copies all of ", quoted(from), " to ", quoted(to), ", which is of another form");
  for (int flat = from.flats.first; flat < from.flats.end; ++flat) {
    if (!contents_[at(source, flat)]) return need(source, from.flats, from.divided);
    contents_[at(target, flat)] = contents_[at(source, flat)];
  }
  return "";
}

std::string ContentsCheck::wrong_copy_of_part(const Action& action, int source, int target) {
  for (int buffer : {source, target}) {
    const std::string reason =
        need_room(buffer, action.flats, action.divided, action.element_bytes);
    if (!reason.empty()) return reason;
  }
  const std::string reason = need_part(source, action.flats, action.divided);
  if (!reason.empty()) return reason;
  if (action.elements != plan_.elements(action.flats, action.divided))
    return text("copies ", action.elements, " elements, not as many as its buffers have");
  set(target, action.flats, action.divided);
  return "";
}

/// Checks that an update before the sums are known keeps the values that it replaces, and is
/// verified afterwards with the same buffers.
std::string ContentsCheck::wrong_optimistic(const Action& action) {
  const Action*& update = unverified_[action.unit];
  const int replaced = action.buffer(Role::replaced);
  if (action.kind == Kind::optimize) {
    if (is_clipped_ || plan_.layouts.updates_early) return "";
    if (replaced < 0) return "before the step's sums are known, and keeps nothing to undo it with";
    if (plan_.buffers[replaced].bytes != plan_.replaced_bytes(action.unit))
      return text("keeps what it replaces in ", quoted(plan_.buffers[replaced]),
                  ", which has not as many bytes");
    update = &action;
    mark(action, action.unit);
    return "";
  }
  if (!is_clipped_) return "before the step's sums are known";
  if (update == nullptr) return "of what was not updated before the sums were known";
  for (const Role role : {Role::gradient_shard, Role::shard, Role::parameters, Role::first_moment,
                          Role::second_moment, Role::average, Role::replaced})
    if (action.buffer(role) != update->buffer(role))
      return text("has other ", name(role), " than the update");
  update = nullptr;
  mark(action, -1);
  return "";
}

void ContentsCheck::mark(const Action& action, int unit) {
  for (const Role role :
       {Role::shard, Role::parameters, Role::first_moment, Role::second_moment, Role::average})
    if (const int buffer = action.buffer(role); buffer >= 0)
      unverified_unit_[static_cast<std::size_t>(buffer)] = unit;
}

/// Checks an update. Afterwards a rank has only the part that it has updated: other parts are as
/// before the step.
std::string ContentsCheck::wrong_update(const Action& action) {
  std::string reason = wrong_optimistic(action);
  if (!reason.empty()) return reason;
  updated_[action.unit] = true;
  const Layouts& layouts = plan_.units[action.unit].layouts;
  const Spans& updated = layouts.update.divided;
  const int masters = action.buffer(Role::shard), gradients = action.buffer(Role::gradient_shard);
  const int computed = action.buffer(Role::parameters);
  if (masters < 0 || gradients < 0) return "without buffers";
  if (action.divided != updated || !(action.flats == plan_.trained(action.unit)))
    return text("updates ", described(action.divided), ", its layout is ", described(updated));
  reason = need(gradients, action.flats, updated);
  if (reason.empty())
    reason = need_room(masters, action.flats, updated, layouts.masters.element_bytes);
  if (reason.empty()) reason = need_part(masters, action.flats, updated);
  if (reason.empty() && computed >= 0)
    reason = need_room(computed, action.flats, updated, layouts.compute.element_bytes);
  if (!reason.empty()) return reason;
  set(masters, action.flats, updated);
  if (computed >= 0) set(computed, action.flats, updated);
  return "";
}

/// Returns the spans that an action's array must be divided over, by its buffer and the step's
/// layouts.
Spans ContentsCheck::expected(const Action& action, const Use& use) const {
  const Layouts& layouts = plan_.layouts_of(plan_.buffers[use.buffer]);
  switch (use.role) {
    case Role::parameters:
    case Role::tied_parameters:
      if (action.kind == Kind::export_parameters) return {};
      return layouts.gathered.divided;
    case Role::parameter_gradients:
    case Role::tied_gradients:
      if (action.kind == Kind::backward) return layouts.gathered.divided;
      if (action.kind == Kind::orthogonalize) return matrix_spans(plan_.grid, layouts);
      break;
    case Role::gradient_shard:
      if (action.kind == Kind::norm || action.kind == Kind::clip) return layouts.gradient.divided;
      if (action.kind == Kind::direction || action.kind == Kind::orthogonalize)
        return layouts.update.divided;
      break;
    case Role::source: {  // an accumulation
      const int sum = action.buffer(Role::parameter_gradients);
      if (sum >= 0) return plan_.buffers[sum].divided;
      break;
    }
    default:
      break;
  }
  return plan_.buffers[use.buffer].divided;
}

/// Checks that parameters are laid out as gathered ones, and that a recompute reads the same ones
/// as its forward.
std::string ContentsCheck::wrong_parameters(const Action& action) {
  std::array<FlatRange, 2> read;
  for (const Use& use : action.uses) {
    if (use.role != Role::parameters && use.role != Role::tied_parameters) continue;
    const Buffer& buffer = plan_.buffers[use.buffer];
    read[use.role == Role::parameters ? 0 : 1] = buffer.flats;
    if (buffer.flats.empty()) continue;
    const Layout& gathered = plan_.layouts_of(buffer).gathered;
    if (use.role == Role::parameters && !(buffer.flats == plan_.units[action.unit].flats))
      return text("reads ", quoted(buffer), ", which has not the parameters of this unit");
    if (buffer.space != gathered.space)
      return text("reads ", quoted(buffer), " in ", name(buffer.space), " memory");
    const std::string reason =
        need_room(use.buffer, buffer.flats, gathered.divided, gathered.element_bytes);
    if (!reason.empty()) return reason;
  }
  if (action.kind == Kind::forward) read_by_forward_[action.unit] = read;
  if (action.kind == Kind::recompute && read != read_by_forward_[action.unit])
    return "reads other parameters than forward";
  return "";
}

std::string ContentsCheck::wrong_use(const Action& action, const Use& use) {
  const Buffer& buffer = plan_.buffers[use.buffer];
  if (buffer.flats.empty()) return "";
  if (buffer.quantized) return text("uses ", quoted(buffer), ", which is quantized");
  const Spans divided = expected(action, use);
  if (buffer.divided != divided)
    return text("needs space for ", described(divided), " in ", quoted(buffer), ", which is for ",
                described(buffer.divided));
  if (use.access != Access::write) return need(use.buffer, buffer.flats, divided);
  set(use.buffer, buffer.flats, divided);
  return "";
}

}  // namespace ostrakon::plan
