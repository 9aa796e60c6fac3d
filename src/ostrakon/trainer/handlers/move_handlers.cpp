// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/handlers/move_handlers.hpp>

#include <cstring>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/fp8/quantized_parts.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/trainer/dispatch_dtype.hpp>
#include <ostrakon/trainer/handlers/action_parts.hpp>
#include <stdexcept>

namespace ostrakon::train {

using plan::Kind;
using plan::Role;
using runtime::ActionBuffers;

MoveHandlers::MoveHandlers(const StepContext& context, const Channels& channels,
                           const EmptyExchanges& empty_exchanges, DType compute, DType reduce)
    : context_(context),
      channels_(channels),
      empty_exchanges_(empty_exchanges),
      compute_(compute),
      reduce_(reduce) {}

void MoveHandlers::install(runtime::Executor& executor) {
  executor.on(Kind::gather, this, &MoveHandlers::gather);
  executor.on(Kind::dequantize, this, &MoveHandlers::dequantize);
  executor.on(Kind::keep, this, &MoveHandlers::keep);
  for (Kind kind : {Kind::copy_to_device, Kind::copy_to_host})
    executor.on(kind, this, &MoveHandlers::copy);
  executor.on(Kind::reduce_scatter, this, &MoveHandlers::reduce_scatter);
  executor.on(Kind::gather_gradients, this, &MoveHandlers::gather_gradients);
  executor.on(Kind::gather_updates, this, &MoveHandlers::gather_updates);
  executor.on(Kind::exchange, this, &MoveHandlers::exchange);
  executor.on(Kind::send, this, &MoveHandlers::send);
  executor.on(Kind::receive, this, &MoveHandlers::receive);
  if (!channels_.messages().has_to_be_finished()) return;
  executor.finish_with(plan::Stream::send, [this](int may_go_on, const auto& gives_up) {
    return channels_.messages().finish_sends(may_go_on, gives_up);
  });
  executor.finish_with(plan::Stream::receive, [this](int may_go_on, const auto& gives_up) {
    return channels_.messages().finish_receives(may_go_on, gives_up);
  });
}

void MoveHandlers::gather(const ActionBuffers& buffers) {
  const plan::Action& action = buffers.action;
  if (context_.plan().buffers[action.buffer(Role::parameters)].quantized)
    return gather_quantized(buffers);
  const ActionParts parts(buffers, context_);
  comm::Communicator& group = channels_.of(action);
  const int flat = action.flats.first;
  const plan::Spans whole = parts.gathered(Role::parameters);
  const plan::Spans part = parts.gathered_parts(Role::parameters);
  const Role source = action.buffer(Role::shard) >= 0 ? Role::shard : Role::parameters;
  dispatch_dtype(dtype_of(action, context_.plan(), compute_), [&](auto one) {
    parts.in_space_of(Role::parameters, [&](const auto& where, auto space) {
      using T = decltype(one);
      using Space = decltype(space);
      const auto converted = parts.view<T, Space>(Role::parameters, flat, part);
      if (action.converts)
        math::convert<float, T, Space>(where, parts.view<float, Space>(Role::shard, flat, part),
                                       converted);
      group.all_gather<T, Space>(
          buffers.exec, action.converts ? converted : parts.view<T, Space>(source, flat, part),
          parts.view<T, Space>(Role::parameters, flat, whole));
    });
  });
}

/// Gathers what owners have quantized: bytes, in place, which are sent as words of 16 bits, as
/// collectives only move their bits.
void MoveHandlers::gather_quantized(const ActionBuffers& buffers) {
  const plan::Action& action = buffers.action;
  const plan::StepPlan& plan = context_.plan();
  const ActionParts parts(buffers, context_);
  if (!action.converts && action.buffer(Role::shard) >= 0)
    throw std::logic_error("a gather of codes from another buffer, which nobody makes");
  const int flat = action.flats.first;
  const plan::Spans whole = parts.gathered(Role::parameters);
  const plan::Spans part = parts.gathered_parts(Role::parameters);
  parts.in_space_of(Role::parameters, [&](const auto& where, auto space) {
    using Space = decltype(space);
    const auto bytes_of = [&](const plan::Spans& divided) {
      return parts.view<std::uint8_t, Space>(Role::parameters, flat, divided);
    };
    if (action.converts) {
      const plan::QuantizedFlat& quantized = plan.flats[flat].quantized;
      const std::int64_t number =
          plan.first_element(flat, part, context_.rank) / quantized.part_elements;
      math::quantize_part<Space>(where, quantized, number,
                                 parts.view<float, Space>(Role::shard, flat, part), bytes_of(part));
    }
    const auto words_of = [&](const plan::Spans& divided) {
      return view_as<bf16>(bytes_of(divided));
    };
    channels_.of(action).all_gather<bf16, Space>(buffers.exec, words_of(part), words_of(whole));
  });
}

void MoveHandlers::dequantize(const ActionBuffers& buffers) {
  const plan::StepPlan& plan = context_.plan();
  const ActionParts parts(buffers, context_);
  const plan::Buffer& whole = plan.buffers[buffers.action.buffer(Role::parameters)];
  parts.in_space_of(Role::parameters, [&](const auto& where, auto space) {
    using Space = decltype(space);
    for (int flat = whole.flats.first; flat < whole.flats.end; ++flat) {
      const plan::QuantizedFlat& quantized = plan.flats[flat].quantized;
      const std::int64_t first =
          plan.first_element(flat, whole.divided, context_.rank) / quantized.part_elements;
      math::dequantize_parts<Space>(
          where, quantized, first,
          parts.view<std::uint8_t, Space>(Role::source, flat, whole.divided),
          parts.view<bf16, Space>(Role::parameters, flat, whole.divided));
    }
  });
}

void MoveHandlers::keep(const ActionBuffers& buffers) {
  const ActionParts parts(buffers, context_);
  const plan::StepPlan& plan = context_.plan();
  const plan::Buffer& kept = plan.buffers[buffers.action.buffer(Role::shard)];
  dispatch_dtype(compute_, [&](auto one) {
    using T = decltype(one);
    for (int flat = kept.flats.first; flat < kept.flats.end; ++flat)
      math::copy<T>(buffers.exec, parts.view<T, OnDevice>(Role::parameters, flat, kept.divided),
                    parts.view<T, OnDevice>(Role::shard, flat, kept.divided));
  });
}

/// Copies between host and device memory.
void MoveHandlers::copy(const ActionBuffers& buffers) {
  const plan::Action& action = buffers.action;
  const plan::StepPlan& plan = context_.plan();
  const auto bytes = action.elements * action.element_bytes;
  const auto find = [&](Role role, auto space) {
    const int buffer = action.buffer(role);
    const std::int64_t first = action.flats.empty()
                                   ? 0
                                   : plan.offset_in(plan.buffers[buffer], action.flats.first,
                                                    action.divided, context_.rank);
    const std::int64_t begin = first * action.element_bytes;
    return buffers.view<char, decltype(space)>(buffer).range(begin, begin + bytes);
  };
  if constexpr (!has_device)
    std::memcpy(find(Role::target, OnHost()).data(), find(Role::source, OnHost()).data(),
                static_cast<std::size_t>(bytes));
  else if (action.kind == Kind::copy_to_device)
    math::begin_copy_to_device(buffers.exec, find(Role::source, OnHost()),
                               find(Role::target, OnDevice()));
  else
    math::begin_copy_to_host(buffers.exec, find(Role::source, OnDevice()),
                             find(Role::target, OnHost()));
}

void MoveHandlers::reduce_scatter(const ActionBuffers& buffers) {
  const plan::Action& action = buffers.action;
  comm::Communicator& group = channels_.of(action);
  const comm::ReductionOrder local = {action.tree, action.continues_sum()};
  const bool by_library = context_.plan().layouts.summation == plan::Summation::library;
  const ActionParts parts(buffers, context_);
  parts.in_space_of(Role::parameter_gradients, [&](const auto& where, auto space) {
    using Space = decltype(space);
    const auto all = [&](auto one_of, Role role) {
      return buffers.view<decltype(one_of), Space>(role).range(0, action.elements);
    };
    const auto gradients = all(float(), Role::parameter_gradients);
    const auto shard =
        buffers.view<float, Space>(Role::gradient_shard).range(0, action.elements / group.size());
    const auto sum = [&](auto one, const auto sent) {
      using T = decltype(one);
      if (by_library)
        group.library_reduce_scatter<T, Space>(buffers.exec, sent, shard);
      else
        group.reduce_scatter<T, Space>(buffers.exec, sent, all(T(), Role::staging), shard, local);
    };
    if (action.buffer(Role::packed) < 0) return sum(float(), gradients);
    dispatch_dtype(reduce_, [&](auto one) {
      using T = decltype(one);
      const auto packed = all(T(), Role::packed);
      math::convert<float, T, Space>(where, gradients, packed);
      sum(one, packed);
    });
  });
}

void MoveHandlers::gather_gradients(const ActionBuffers& buffers) {
  const plan::Action& action = buffers.action;
  const ActionParts parts(buffers, context_);
  comm::Communicator& group = channels_.of(action);
  const Role whole = Role::parameter_gradients;
  const Role source = action.buffer(Role::gradient_shard) >= 0 ? Role::gradient_shard : whole;
  parts.in_space_of(whole, [&](const auto&, auto space) {
    using Space = decltype(space);
    group.all_gather<float, Space>(buffers.exec,
                                   parts.view<float, Space>(source, parts.gathered_parts(whole)),
                                   parts.view<float, Space>(whole, parts.gathered(whole)));
  });
}

/// Exchanges activations. Sums are of floats, in the order of ranks.
void MoveHandlers::exchange(const ActionBuffers& buffers) {
  const plan::Action& action = buffers.action;
  if (action.may_be_empty && *empty_exchanges_.empty(action))
    return channels_.leave_out(action, context_.plan().bytes_sent(action));
  comm::Communicator& group = channels_.of(action);
  const auto view = [&](auto one_of, Role role) {
    return buffers.device_view<decltype(one_of)>(role);
  };
  if (action.exchange == plan::ExchangeKind::all_to_all)
    group.all_to_all<float, OnDevice>(buffers.exec, view(float(), Role::send_buffer),
                                      view(float(), Role::recv_buffer));
  else if (action.exchange == plan::ExchangeKind::reduce_scatter)
    group.reduce_scatter<float, OnDevice>(buffers.exec, view(float(), Role::send_buffer),
                                          view(float(), Role::staging),
                                          view(float(), Role::recv_buffer));
  else if (action.element_bytes == sizeof(float))
    group.all_gather<float, OnDevice>(buffers.exec, view(float(), Role::send_buffer),
                                      view(float(), Role::recv_buffer));
  else
    group.all_gather<bf16, OnDevice>(buffers.exec, view(bf16(), Role::send_buffer),
                                     view(bf16(), Role::recv_buffer));
}

void MoveHandlers::send(const ActionBuffers& buffers) {
  const Role role = buffers.action.uses.front().role;
  ActionParts(buffers, context_).in_space_of(role, [&](const auto&, auto space) {
    using Space = decltype(space);
    channels_.messages().begin_send<Space>(buffers.exec, buffers.view<char, Space>(role),
                                           buffers.action.peer);
  });
}

void MoveHandlers::receive(const ActionBuffers& buffers) {
  const Role role = buffers.action.uses.front().role;
  ActionParts(buffers, context_).in_space_of(role, [&](const auto&, auto space) {
    using Space = decltype(space);
    channels_.messages().begin_receive<Space>(buffers.exec, buffers.view<char, Space>(role),
                                              buffers.action.peer);
  });
}

/// Gathers updates in place: of the masters, or of the copies to compute with.
void MoveHandlers::gather_updates(const ActionBuffers& buffers) {
  const plan::Action& action = buffers.action;
  const ActionParts parts(buffers, context_);
  comm::Communicator& group = channels_.of(action);
  // The buffer may have more elements than the parts of this span.
  plan::Spans part = context_.plan().units[action.unit].layouts.update.divided;
  while (part.innermost() != action.span) part = part.outer();
  dispatch_dtype(dtype_of(action, context_.plan(), compute_), [&](auto one) {
    parts.in_space_of(Role::shard, [&](const auto&, auto space) {
      using T = decltype(one);
      using Space = decltype(space);
      group.all_gather<T, Space>(buffers.exec, parts.view<T, Space>(Role::shard, part),
                                 parts.view<T, Space>(Role::shard, part.outer()));
    });
  });
}

}  // namespace ostrakon::train
