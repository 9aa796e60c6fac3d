// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/proof/communication_check.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>

namespace ostrakon::plan {
namespace {

const Buffer* buffer(const StepPlan& plan, const Action& action, Role role) {
  const int found = action.buffer(role);
  return found < 0 ? nullptr : &plan.buffers[found];
}

std::string wrong_message(const StepPlan& plan, const Action& action) {
  if (action.peer < 0 || action.peer >= plan.grid.stages() || action.peer == plan.stage)
    return "there is no such other stage";
  // A collective of parameters has one or two buffers; one of the step's sums is another case.
  const bool is_one = action.uses.size() == 1 ||
                      (action.uses.size() == 2 && action.uses.front().role == Role::shard &&
                       action.buffer(Role::host_sums) >= 0);
  if (!is_one ||
      plan.buffers[action.uses.front().buffer].bytes != action.elements * action.element_bytes)
    return text("of ", action.elements, " elements of ", action.element_bytes,
                " bytes: its buffer has other bytes");
  return "";
}

std::string wrong_exchange(const StepPlan& plan, const Action& action) {
  Exchange exchange;
  exchange.kind = action.exchange;
  exchange.span = action.span;
  exchange.elements = action.elements;
  exchange.element_bytes = action.element_bytes;
  const Buffer* handed = buffer(plan, action, Role::send_buffer);
  const Buffer* exchanged = buffer(plan, action, Role::recv_buffer);
  if (handed == nullptr || exchanged == nullptr || handed->bytes != exchange.bytes_in() ||
      exchanged->bytes != exchange.bytes_out())
    return of_collective(action, "not as many as its buffers have");
  return "";
}

std::string wrong_parts(const StepPlan& plan, const Action& action) {
  const bool reduces = action.kind == Kind::reduce_scatter;
  const bool of_gradients = reduces || action.kind == Kind::gather_gradients;
  const Role role = of_gradients ? Role::parameter_gradients : Role::parameters;
  const Buffer* whole = buffer(plan, action, role);
  const Buffer* part = buffer(plan, action, of_gradients ? Role::gradient_shard : Role::shard);
  const bool in_place = part == nullptr && !reduces &&
                        std::any_of(action.uses.begin(), action.uses.end(), [](const Use& use) {
                          return use.access == Access::read_write;
                        });
  if (whole == nullptr || (part == nullptr && !in_place))
    return of_collective(action, "without buffers");
  // The levels of a gather share a buffer: it is larger than the result of the first level, and has
  // the parts of the second.
  const Spans& gathered = reduces ? whole->divided : plan.gathered(action, role);
  Spans parts = gathered;
  parts.push(action.span);
  if ((part != nullptr && part->divided != parts) || !gathered.starts_with(whole->divided))
    return of_collective(action, "its buffers are not parts over these ranks");
  const FlatRange flats = reduces ? plan.trained(action.unit) : action.flats;
  if (action.elements != plan.size_in(*whole, flats, gathered))
    return of_collective(action, "not as many as its buffers have");
  return "";
}

}  // namespace

std::string of_collective(const Action& action, const std::string& reason) {
  return text("over ", action.span.ranks, " ranks along ", name(action.span.axis), ", of ",
              action.elements, " elements: ", reason);
}

std::string wrong_communication(const StepPlan& plan, const Action& action) {
  if (is_message(action.kind)) return wrong_message(plan, action);
  if (!communicates(action.kind)) return "";
  if (action.elements % action.span.ranks != 0)
    return of_collective(action, "they are no equal parts");
  if (action.kind == Kind::exchange) return wrong_exchange(plan, action);
  // In place, a single action does not show which parts its buffer has.
  if (action.kind == Kind::gather_updates)
    return buffer(plan, action, Role::shard) == nullptr ? of_collective(action, "without buffers")
                                                        : "";
  return wrong_parts(plan, action);
}

}  // namespace ostrakon::plan
