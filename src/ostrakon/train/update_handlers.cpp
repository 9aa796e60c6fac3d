// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/train/update_handlers.hpp>

#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/optim/muon.hpp>
#include <ostrakon/train/action_parts.hpp>
#include <ostrakon/train/dispatch_dtype.hpp>

namespace ostrakon::train {

using optim::OptimizerKind;
using plan::Kind;
using plan::Role;
using plan::Stream;
using runtime::ActionBuffers;

UpdateHandlers::UpdateHandlers(const StepContext& context, const ShardLayout& layout,
                               const TrainerSettings& settings)
    : context_(context), settings_(settings), compute_(layout.model().dtype()) {
  for (int u = 0; u < layout.model().units(); ++u)
    ranges_.push_back(layout.update_ranges(u, settings.policy.moments.dtype, settings.seed));
}

void UpdateHandlers::install(runtime::Executor& executor) {
  executor.on(Kind::direction, [this](const ActionBuffers& buffers) { direction(buffers); });
  executor.on(Kind::orthogonalize,
              [this](const ActionBuffers& buffers) { orthogonalize(buffers); });
  executor.on(Kind::optimize, [this](const ActionBuffers& buffers) { optimize(buffers); });
}

optim::UpdateStep UpdateHandlers::update_step(const UpdateRange& range) const {
  optim::UpdateStep update;
  update.step = context_.update;
  update.learning_rate = optim::learning_rate(settings_.schedule, range.treatment.learning_rate,
                                              context_.step, settings_.steps);
  update.weight_decay = range.treatment.weight_decay;
  update.gradient_scale = context_.verdict.gradient_scale;
  update.rounding_key = range.rounding_key;
  update.first_element = range.first;
  return update;
}

void UpdateHandlers::direction(const ActionBuffers& buffers) {
  if (context_.verdict.skip_update) return;
  const ActionParts parts(buffers, context_);
  const bool on_host = buffers.action.stream == Stream::host;
  const optim::OptimizerSettings& optimizer = settings_.optimizer;
  const plan::Spans& ours = context_.plan().layouts.update.divided;
  auto* gradients = parts.find<float>(Role::gradient_shard, ours);
  dispatch_moment_dtype(settings_.policy.moments.dtype, [&](auto one) {
    using Moment = decltype(one);
    auto* momentum = parts.find<Moment>(Role::first_moment, ours);
    for (const UpdateRange& range : ranges_[buffers.action.unit]) {
      if (range.rule != OptimizerKind::muon) continue;
      const optim::UpdateStep update = update_step(range);
      float* const at = gradients + range.offset;
      if (on_host)
        optim::host::muon_direction(optimizer, update, at, momentum + range.offset, range.count);
      else
        optim::muon_direction(exec_, optimizer, update, at, momentum + range.offset, range.count);
    }
  });
}

void UpdateHandlers::orthogonalize(const ActionBuffers& buffers) {
  if (context_.verdict.skip_update) return;
  const ActionParts parts(buffers, context_);
  const auto whole = parts.device_view<float>(Role::parameter_gradients, {});
  const auto mine =
      parts.device_view<float>(Role::gradient_shard, context_.plan().layouts.update.divided);
  for (const UpdateRange& range : ranges_[buffers.action.unit]) {
    if (range.rule != OptimizerKind::muon) continue;
    const model::Parameter& parameter = *range.parameter;
    const auto matrix = whole.range(parameter.offset, parameter.offset + parameter.elements());
    optim::orthogonalize(exec_, matrix.matrix(parameter.shape[0], parameter.shape[1]),
                         settings_.optimizer.muon_iterations,
                         buffers.device_view<std::byte>(Role::workspace));
    if (mine)
      math::copy<float>(exec_, matrix.range(range.first, range.first + range.count),
                        mine.range(range.offset, range.offset + range.count));
  }
}

void UpdateHandlers::optimize(const ActionBuffers& buffers) {
  auto* masters = ActionParts(buffers, context_)
                      .find<float>(Role::shard, context_.plan().layouts.update.divided);
  if (!context_.verdict.skip_update)
    dispatch_moment_dtype(settings_.policy.moments.dtype,
                          [&](auto one) { update<decltype(one)>(buffers, masters); });
  // Also where the update is skipped: what is copied from there must hold something.
  if (buffers.action.buffer(Role::parameters) >= 0) convert_updated(buffers);
}

template <class Moment>
void UpdateHandlers::update(const ActionBuffers& buffers, float* masters) {
  const ActionParts parts(buffers, context_);
  const bool on_host = buffers.action.stream == Stream::host;
  const optim::OptimizerSettings& optimizer = settings_.optimizer;
  const plan::Spans& ours = context_.plan().layouts.update.divided;
  const auto* gradients = parts.find<float>(Role::gradient_shard, ours);
  auto* first = parts.find<Moment>(Role::first_moment, ours);
  auto* second = buffers.get<Moment>(Role::second_moment);
  for (const UpdateRange& range : ranges_[buffers.action.unit]) {
    const optim::UpdateStep step = update_step(range);
    float* const x = masters + range.offset;
    const float* const gradient = gradients + range.offset;
    if (range.rule == OptimizerKind::muon) {
      const std::vector<std::int64_t>& shape = range.parameter->shape;
      if (on_host)
        optim::host::muon_apply(optimizer, step, shape[0], shape[1], x, gradient, range.count);
      else
        optim::muon_apply(exec_, optimizer, step, shape[0], shape[1], x, gradient, range.count);
      continue;
    }
    Moment* const first_at = first ? first + range.offset : nullptr;
    Moment* const second_at = second ? second + range.second_offset : nullptr;
    if (on_host)
      optim::host::update(range.rule, optimizer, step, x, gradient, first_at, second_at,
                          range.count);
    else
      optim::update(exec_, range.rule, optimizer, step, x, gradient, first_at, second_at,
                    range.count);
  }
}

/// Updated masters as copies to compute with.
void UpdateHandlers::convert_updated(const ActionBuffers& buffers) {
  const plan::Spans& ours = context_.plan().layouts.update.divided;
  const ActionParts parts(buffers, context_);
  dispatch_dtype(compute_, [&](auto one) {
    using T = decltype(one);
    if (buffers.action.stream == Stream::host)
      math::host::convert<float, T>(parts.host_view<float>(Role::shard, ours),
                                    parts.host_view<T>(Role::parameters, ours));
    else
      math::convert<float, T>(exec_, parts.device_view<float>(Role::shard, ours),
                              parts.device_view<T>(Role::parameters, ours));
  });
}

}  // namespace ostrakon::train
