// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/audit/bit_flip.hpp>

#include <cstdint>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/math/transfer.hpp>
#include <utility>

namespace ostrakon::train {
namespace {

using plan::Kind;
using plan::Role;
using runtime::ActionBuffers;

/// A run of bytes of a buffer; no buffer: -1.
struct Bytes {
  int buffer = -1;
  std::int64_t begin = 0, end = 0;

  bool empty() const { return buffer < 0 || begin == end; }
};

Bytes all_of(const plan::StepPlan& plan, int buffer) {
  if (buffer < 0) return {};
  return {buffer, 0, plan.buffers[static_cast<std::size_t>(buffer)].bytes};
}

/// What an action writes in a role.
Bytes written(const plan::StepPlan& plan, const plan::Action& action, Role role) {
  for (const plan::Use& use : action.uses)
    if (use.role == role && use.access != plan::Access::read) return all_of(plan, use.buffer);
  return {};
}

/// What a gather has received from one of the other ranks, chosen by `random`.
Bytes received(const plan::StepPlan& plan, const plan::Action& action, int rank,
               std::uint64_t random) {
  if (action.kind == Kind::exchange) return all_of(plan, action.buffer(Role::recv_buffer));
  const int buffer = action.buffer(Role::parameters);
  if (buffer < 0 || action.span.ranks == 1) return {};
  const std::int64_t part = action.elements / action.span.ranks * action.element_bytes;
  const int own = plan.grid.coordinate(rank, action.span);
  const auto others = static_cast<std::uint64_t>(action.span.ranks - 1);
  const auto from = (own + 1 + static_cast<int>(random % others)) % action.span.ranks;
  const std::int64_t first =
      plan.offset_in(plan.buffers[static_cast<std::size_t>(buffer)], action.flats.first,
                     plan.gathered(action, Role::parameters), rank) *
      action.element_bytes;
  return {buffer, first + from * part, first + (from + 1) * part};
}

Bytes target_of(const watch::Fault& fault, const plan::StepPlan& plan, const plan::Action& action,
                int rank) {
  switch (fault.target) {
    case watch::FlipTarget::gradient:
      return written(plan, action, Role::parameter_gradients);
    case watch::FlipTarget::parameter:
      return all_of(plan, action.buffer(Role::parameters));
    case watch::FlipTarget::product:
      return written(plan, action, action.kind == Kind::forward ? Role::output : Role::gradient);
    case watch::FlipTarget::message:
      return received(plan, action, rank, math::mix_bits(fault.seed + 2));
  }
  return {};
}

/// Whether a later action reads what an action of the plan has written to a buffer.
bool is_read_later(const plan::StepPlan& plan, const plan::Action& action, int buffer) {
  const auto begin = plan.actions.begin() + (&action - plan.actions.data());
  for (auto later = begin + 1; later != plan.actions.end(); ++later)
    for (const plan::Use& use : later->uses)
      if (use.buffer == buffer && use.role != Role::released)
        return use.access != plan::Access::write;
  return false;
}

/// Whether an action of the plan, on a rank, has bytes that the fault may flip a bit of, and that
/// it or a later action reads.
bool has_target(const watch::Fault& fault, const plan::StepPlan& plan, const plan::Action& action,
                int rank) {
  const Bytes bytes = target_of(fault, plan, action, rank);
  return !bytes.empty() && (fault.target == watch::FlipTarget::parameter ||
                            is_read_later(plan, action, bytes.buffer));
}

void flip(const ActionBuffers& buffers, int buffer, std::int64_t byte, unsigned bit) {
  const auto one = buffers.view<unsigned char, OnDevice>(buffer).range(byte, byte + 1);
  const auto mask = static_cast<unsigned char>(1U << bit);
  if constexpr (has_device) {
    unsigned char value = 0;
    const HostView<unsigned char*> on_host(&value, 1);
    math::copy_to_host(buffers.exec, one, on_host);
    value ^= mask;
    math::copy_to_device(buffers.exec, on_host, one);
  } else {
    *one.data() ^= mask;
  }
}

}  // namespace

BitFlip::BitFlip(watch::Fault fault, const StepContext& context)
    : fault_(std::move(fault)), context_(context) {}

void BitFlip::require_target(const watch::Fault& fault,
                             const std::vector<const plan::StepPlan*>& plans, int rank) {
  bool is_there = false, has_array = false;
  for (const plan::StepPlan* plan : plans)
    for (const plan::Action& action : plan->actions) {
      if (!fault.names(plan->describe(action))) continue;
      is_there = true;
      has_array = has_array || has_target(fault, *plan, action, rank);
    }
  require(is_there, "runtime.inject: rank ", fault.rank, " has no action \"", fault.action,
          "\" in step ", fault.step, fault.recurs ? " or later" : "",
          ": ostrakon-plan shows those of a plan");
  require(has_array, "runtime.inject: \"", fault.action, "\" of rank ", fault.rank, " has no ",
          name_in(watch::flip_target_names, fault.target),
          " to flip a bit of; expected an action that has");
}

bool BitFlip::is_due(const plan::Action& action) const {
  if (!context_.trains()) return false;
  if (fault_.recurs ? context_.step < fault_.step : context_.step != fault_.step) return false;
  return (fault_.recurs || flipped_.empty()) && fault_.names(context_.plan().describe(action));
}

void BitFlip::strike(const ActionBuffers& buffers, bool begins) {
  const plan::Action& action = buffers.action;
  if (begins != (fault_.target == watch::FlipTarget::parameter) || !is_due(action)) return;
  const plan::StepPlan& plan = context_.plan();
  const Bytes bytes = target_of(fault_, plan, action, context_.rank);
  if (bytes.empty()) return;
  const std::uint64_t random = math::mix_bits(fault_.seed + 1);
  const auto count = static_cast<std::uint64_t>(bytes.end - bytes.begin);
  const std::int64_t byte = bytes.begin + static_cast<std::int64_t>((random >> 3) % count);
  const auto bit = static_cast<unsigned>(random & 7U);
  flip(buffers, bytes.buffer, byte, bit);
  flipped_ = text("bit ", bit, " of byte ", byte, " of '",
                  plan.buffers[static_cast<std::size_t>(bytes.buffer)].name, "'");
}

}  // namespace ostrakon::train
