// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/proof/exchange_check.hpp>

#include <algorithm>

#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/proof/communication_check.hpp>

namespace ostrakon::plan {
namespace {

/// Returns a phase of a unit; null where there is none.
const Phase* phase_of(const PlannedUnit& unit, Kind by, int phase) {
  const Phases& all = by == Kind::backward ? unit.backward : unit.forward;
  if (phase < 0 || phase >= static_cast<int>(all.size())) return nullptr;
  return &all[static_cast<std::size_t>(phase)];
}

/// Returns the exchange that a unit asks for after a phase; null: none, or no such phase.
const Exchange* asked(const PlannedUnit& unit, Kind by, int phase) {
  const Phase* const before = phase_of(unit, by, phase);
  return before != nullptr && before->then && before->then->elements > 0 ? &*before->then : nullptr;
}

}  // namespace

ExchangeCheck::ExchangeCheck(const StepPlan& plan)
    : plan_(plan),
      computing_(plan.units.size()),
      workspaces_(plan.units.size(), -1),
      handed_(plan.buffers.size()) {}

std::string ExchangeCheck::wrong(const Action& action) {
  if (action.kind == Kind::exchange) return wrong_exchange(action);
  if (!is_phase(action.kind)) return "";
  const std::string wrong = wrong_order(action);
  return wrong.empty() ? wrong_phase(action) : wrong;
}

int ExchangeCheck::phases_of(int unit, Kind kind) const {
  const PlannedUnit& planned = plan_.units[static_cast<std::size_t>(unit)];
  return static_cast<int>(kind == Kind::backward    ? planned.backward.size()
                          : kind == Kind::recompute ? planned.recompute_phases.size()
                                                    : planned.forward.size());
}

int ExchangeCheck::phase_at(int unit, Kind kind, int position) const {
  if (kind != Kind::recompute) return position;
  return plan_.units[static_cast<std::size_t>(unit)]
      .recompute_phases[static_cast<std::size_t>(position)];
}

std::string ExchangeCheck::wrong_order(const Action& action) {
  Computing& now = computing_[static_cast<std::size_t>(action.unit)];
  const int phase = std::max(action.phase, 0);
  const bool goes_on = now.kind == action.kind && now.micro_batch == action.micro_batch;
  if (now.kind != Kind::begin &&
      !(goes_on && phase == phase_at(action.unit, action.kind, now.computed)))
    return text("its unit has computed ", now.computed, " of the ",
                phases_of(action.unit, now.kind), " phases of ", name(now.kind),
                " that it has begun");
  const int border = action.kind == Kind::backward
                         ? plan_.units[static_cast<std::size_t>(action.unit)].first_gradient_phase
                         : 0;
  const Left left = {action.buffer(Role::input), action.buffer(Role::saved),
                     action.buffer(Role::deferred)};
  if (now.kind == Kind::begin) {
    const auto before = border > 0 && phase == border
                            ? deferred_.find({action.unit, action.micro_batch})
                            : deferred_.end();
    const bool continues = before != deferred_.end();
    now.left = continues ? before->second : left;
    if (continues) deferred_.erase(before);
    if (!continues && phase != phase_at(action.unit, action.kind, 0))
      return "its unit has not computed the phase before it";
    now.computed = continues ? border : 0;
  }
  if (border > 0 && now.left != left) return "it does not read what the phases before it have left";
  now = {action.kind, action.micro_batch, now.computed + 1, now.left};
  const bool defers = border > 0 && now.computed == border;
  if (defers && !deferred_.insert({{action.unit, action.micro_batch}, left}).second)
    return "its unit has deferred the phases after it already";
  if (defers || now.computed == phases_of(action.unit, action.kind)) now = {};
  return "";
}

std::string ExchangeCheck::wrong_end() const {
  for (std::size_t u = 0; u < computing_.size(); ++u)
    if (computing_[u].kind != Kind::begin)
      return text(plan_.units[u].name, " computes ", computing_[u].computed, " of ",
                  phases_of(static_cast<int>(u), computing_[u].kind), " phases of ",
                  name(computing_[u].kind));
  if (!deferred_.empty())
    return text(plan_.units[static_cast<std::size_t>(deferred_.begin()->first.first)].name,
                " never computes the phases of backward that it has deferred for micro-batch ",
                deferred_.begin()->first.second);
  return "";
}

std::string ExchangeCheck::wrong_exchange(const Action& action) {
  const Handed& handed = handed_[static_cast<std::size_t>(action.buffer(Role::send_buffer))];
  if (handed.by == Kind::begin || handed.exchanged || handed.unit != action.unit ||
      handed.micro_batch != action.micro_batch || handed.phase != action.phase)
    return of_collective(action, "its phase has not left this");
  const Exchange* const wanted =
      asked(plan_.units[static_cast<std::size_t>(action.unit)], handed.by, action.phase);
  if (wanted == nullptr) return of_collective(action, "its unit exchanges nothing there");
  if (wanted->kind != action.exchange || wanted->span != action.span ||
      wanted->elements != action.elements || wanted->element_bytes != action.element_bytes)
    return of_collective(
        action, text("its unit asks for ", name(wanted->kind), " over ", wanted->span.ranks,
                     " ranks along ", name(wanted->span.axis), ", of ", wanted->elements,
                     " elements of ", wanted->element_bytes, " bytes"));
  if (wanted->may_be_empty != action.may_be_empty)
    return of_collective(action, wanted->may_be_empty ? "its unit says that it may be empty"
                                                      : "its unit says that it is never empty");
  if (wanted->empty_if_even != action.empty_if_even)
    return of_collective(action, "its unit says otherwise of even routing");
  Handed came = handed;
  came.exchanged = true;
  handed_[static_cast<std::size_t>(action.buffer(Role::recv_buffer))] = came;
  return "";
}

std::string ExchangeCheck::wrong_workspace(const Action& action) {
  const Phase* const before_it = phase_of(plan_.units[static_cast<std::size_t>(action.unit)],
                                          action.kind, std::max(action.phase, 0) - 1);
  int& last = workspaces_[static_cast<std::size_t>(action.unit)];
  const int before = last;
  last = action.buffer(Role::workspace);
  if (before_it == nullptr || !before_it->keeps_workspace) return "";
  const bool reads = std::any_of(action.uses.begin(), action.uses.end(), [&](const Use& use) {
    return use.role == Role::workspace && use.access == Access::read_write;
  });
  return last == before && (last < 0 || reads)
             ? ""
             : "does not work in the workspace that the phase before it has kept";
}

std::string ExchangeCheck::wrong_phase(const Action& action) {
  const PlannedUnit& unit = plan_.units[static_cast<std::size_t>(action.unit)];
  const Phase* const phase = phase_of(unit, action.kind, std::max(action.phase, 0));
  for (std::size_t r = 0; r < most_reads; ++r) {
    const int wanted = phase != nullptr && r < phase->reads.size() ? phase->reads[r] : -1;
    const int read = action.buffer(recv_roles[r]);
    if ((wanted >= 0) != (read >= 0))
      return read >= 0 ? "reads an exchange that its unit does not ask for"
                       : text("does not read the exchange of phase ", wanted);
    if (wanted < 0) continue;
    const Exchange* const earlier = asked(unit, action.kind, wanted);
    const Handed& came = handed_[static_cast<std::size_t>(read)];
    if (earlier == nullptr || came.by != action.kind || came.unit != action.unit ||
        came.micro_batch != action.micro_batch || came.phase != wanted ||
        came.exchanged != (earlier->span.ranks > 1))
      return text("what it reads did not come of the exchange of phase ", wanted);
  }
  const std::string other = wrong_workspace(action);
  if (!other.empty()) return other;
  const int left = action.buffer(Role::send_buffer);
  if (left >= 0)
    handed_[static_cast<std::size_t>(left)] = {action.kind, action.unit, action.micro_batch,
                                               action.phase, false};
  return "";
}

}  // namespace ostrakon::plan
