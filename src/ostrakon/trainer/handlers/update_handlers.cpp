// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/handlers/update_handlers.hpp>

#include <algorithm>
#include <ostrakon/math/attention/sequence_parts.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/products/product_workspace.hpp>
#include <ostrakon/optim/average.hpp>
#include <ostrakon/optim/muon.hpp>
#include <ostrakon/trainer/dispatch_dtype.hpp>
#include <ostrakon/trainer/handlers/action_parts.hpp>
#include <ostrakon/trainer/model_description.hpp>

namespace ostrakon::train {

using optim::OptimizerKind;
using plan::Kind;
using plan::Role;
using runtime::ActionBuffers;

UpdateHandlers::UpdateHandlers(StepContext& context, const ShardLayout& layout,
                               const TrainerSettings& settings)
    : context_(context), layout_(layout), settings_(settings), compute_(layout.model().dtype()) {
  for (int u = 0; u < layout.units(); ++u)
    ranges_.push_back(layout.update_ranges(u, settings.policy.moments.dtype, settings.seed));
}

void UpdateHandlers::install(runtime::Executor& executor) {
  executor.on(Kind::direction, this, &UpdateHandlers::direction);
  executor.on(Kind::orthogonalize, this, &UpdateHandlers::orthogonalize);
  executor.on(Kind::optimize, this, &UpdateHandlers::optimize);
  executor.on(Kind::verify, this, &UpdateHandlers::verify);
}

const plan::Spans& UpdateHandlers::updated_part(const ActionBuffers& buffers) const {
  return context_.plan().units[buffers.action.unit].layouts.update.divided;
}

/// Returns the verdict for an update. An optimistic update must not read the one that `clip` may be
/// changing.
const StepDecision& UpdateHandlers::verdict_for(const ActionBuffers& buffers) const {
  const plan::Action& action = buffers.action;
  const bool is_verified = action.kind == Kind::optimize && action.buffer(Role::replaced) >= 0;
  return is_verified ? context_.assumed : context_.verdict;
}

optim::UpdateStep UpdateHandlers::update_step(const UpdateRange& range,
                                              const StepDecision& verdict) const {
  optim::UpdateStep update;
  update.step = context_.update;
  // The sign rule follows counters: its learning rate is the same from the first step to the last.
  update.learning_rate =
      range.rule == OptimizerKind::sign
          ? range.param_group.learning_rate
          : optim::learning_rate(settings_.schedule, range.param_group.learning_rate, context_.step,
                                 settings_.steps);
  update.weight_decay = range.param_group.weight_decay;
  update.gradient_scale = verdict.gradient_scale;
  update.rounding_key = range.rounding_key;
  update.first_element = range.first;
  return update;
}

void UpdateHandlers::direction(const ActionBuffers& buffers) {
  if (context_.verdict.skip_update) return;
  const ActionParts parts(buffers, context_);
  const plan::Spans& ours = updated_part(buffers);
  dispatch_moment_dtype(settings_.policy.moments.dtype, [&](auto one) {
    using Moment = decltype(one);
    parts.in_space_of(Role::gradient_shard, [&](const auto& where, auto space) {
      using Space = decltype(space);
      const auto gradients = parts.view<float, Space>(Role::gradient_shard, ours);
      const auto momentum = parts.view<Moment, Space>(Role::first_moment, ours);
      for (const UpdateRange& range : ranges_[buffers.action.unit]) {
        if (range.rule != OptimizerKind::muon) continue;
        const std::int64_t end = range.offset + range.count;
        optim::muon_direction<float, Moment, Space>(
            where, settings_.optimizer, update_step(range, context_.verdict),
            gradients.range(range.offset, end), momentum.range(range.offset, end));
      }
    });
  });
}

void UpdateHandlers::orthogonalize(const ActionBuffers& buffers) {
  if (context_.verdict.skip_update) return;
  const math::ProductWorkspace room(buffers.device_view<std::byte>(Role::product_workspace));
  const std::vector<UpdateRange>& ranges = ranges_[buffers.action.unit];
  // Each parameter is orthogonalized once, even if it has several ranges.
  for (const model::Parameter& parameter : layout_.parameters(buffers.action.unit))
    if (std::any_of(ranges.begin(), ranges.end(), [&](const UpdateRange& range) {
          return range.rule == OptimizerKind::muon && range.parameter == &parameter;
        }))
      orthogonalize(buffers, parameter);
}

namespace {

plan::Spans spans_of_matrices(const plan::StepPlan& plan, int unit) {
  return plan::matrix_spans(plan.grid, plan.units[unit].layouts);
}

}  // namespace

/// Orthogonalizes a parameter of which this rank updates some or all elements.
void UpdateHandlers::orthogonalize(const ActionBuffers& buffers,
                                   const model::Parameter& parameter) {
  const ActionParts parts(buffers, context_);
  const plan::StepPlan& plan = context_.plan();
  const int unit = buffers.action.unit;
  const plan::Spans spans = spans_of_matrices(plan, unit);
  const auto whole = parts.device_view<float>(Role::parameter_gradients, spans);
  const auto mine = parts.device_view<float>(Role::gradient_shard, updated_part(buffers));
  const bool is_joined = parameter.pieces > 1;
  const auto in_place = [&] {
    const int flat = plan.trained(unit).first;
    const std::int64_t begin =
        layout_.first_of_piece(flat, parameter, 0) - plan.first_element(flat, spans, context_.rank);
    return whole.range(begin, begin + parameter.elements());
  };
  const View<float*> matrix = is_joined ? join_pieces(buffers, parameter, whole) : in_place();
  const auto workspace = buffers.device_view<std::byte>(Role::workspace);
  optim::orthogonalize(buffers.exec, matrix.matrix(parameter.shape[0], parameter.shape[1]),
                       settings_.optimizer.muon_iterations,
                       workspace.range(joined_matrix_bytes(parameter), workspace.size()));
  if (!mine) {
    if (is_joined) split_pieces(buffers, parameter, matrix, whole);
    return;
  }
  for (const UpdateRange& range : ranges_[buffers.action.unit]) {
    if (range.rule != OptimizerKind::muon || range.parameter != &parameter) continue;
    std::int64_t to = range.offset;
    range.elements.for_each([&](std::int64_t element, std::int64_t run) {
      math::copy<float>(buffers.exec, matrix.range(element, element + run),
                        mine.range(to, to + run));
      to += run;
    });
  }
}

namespace {

/// Calls body(rows of `whole`, rows of `matrix`) for each run of a parameter that is contiguous in
/// both.
template <class Body>
void for_each_block(const ShardLayout& layout, int unit, const model::Parameter& parameter,
                    View<float*> whole, View<float*> matrix, const Body& body) {
  const plan::StepPlan& plan = layout.plan();
  const plan::Spans spans = spans_of_matrices(plan, unit);
  for (const ParameterSlice& slice : layout.slices_of_part(plan.trained(unit).first, spans)) {
    if (slice.parameter != &parameter) continue;
    const model::ElementRuns& runs = slice.elements;
    const std::int64_t rows = slice.count / runs.run;
    const std::int64_t stride = rows > 1 ? runs.stride : runs.run;
    const View<float*> in_matrix =
        matrix.range(runs.first, runs.first + (rows - 1) * stride + runs.run);
    body(whole.range(slice.offset, slice.offset + slice.count).matrix(rows, runs.run),
         View<float**>(in_matrix.data(), rows, runs.run, stride, in_matrix.origin()));
  }
}

}  // namespace

/// Joins the pieces of a parameter in the workspace, row by row.
View<float*> UpdateHandlers::join_pieces(const ActionBuffers& buffers,
                                         const model::Parameter& parameter,
                                         View<float*> whole) const {
  const View<float*> matrix = view_as<float>(buffers.device_view<std::byte>(Role::workspace))
                                  .range(0, parameter.elements());
  for_each_block(layout_, buffers.action.unit, parameter, whole, matrix,
                 [&](View<float**> piece, View<float**> of_matrix) {
                   math::copy_rows<float, float>(buffers.exec, piece, of_matrix);
                 });
  return matrix;
}

/// Splits a joined matrix into the pieces of a parameter.
void UpdateHandlers::split_pieces(const ActionBuffers& buffers, const model::Parameter& parameter,
                                  View<float*> matrix, View<float*> whole) const {
  for_each_block(layout_, buffers.action.unit, parameter, whole, matrix,
                 [&](View<float**> piece, View<float**> of_matrix) {
                   math::copy_rows<float, float>(buffers.exec, of_matrix, piece);
                 });
}

/// Calls copy(array, where it is kept) for each array that an update replaces: this rank's part of
/// the masters, the moments and averages.
template <class Copy>
void UpdateHandlers::for_each_replaced(const ActionBuffers& buffers, const Copy& copy) const {
  const View<float*> kept = view_as<float>(buffers.device_view<std::byte>(Role::replaced));
  std::int64_t begin = 0;
  const auto next = [&](View<float*> array) {
    copy(array, kept.range(begin, begin + array.size()));
    begin += array.size();
  };
  next(ActionParts(buffers, context_).device_view<float>(Role::shard, updated_part(buffers)));
  // Moments are copied in words of four bytes, whatever their dtype.
  for (const Role state : {Role::first_moment, Role::second_moment, Role::average})
    if (buffers.action.buffer(state) >= 0)
      next(view_as<float>(buffers.device_view<std::byte>(state)));
}

void UpdateHandlers::optimize(const ActionBuffers& buffers) {
  if (buffers.action.buffer(Role::replaced) >= 0) {
    for_each_replaced(buffers, [&](View<float*> array, View<float*> kept) {
      math::copy<float>(buffers.exec, array, kept);
    });
    if (!context_.assumed.skip_update) context_.is_intact = false;
  }
  update_unit(buffers);
}

/// Verifies an update made before `clip`: if it does not stand, restores the replaced values and
/// updates again as the verdict says.
void UpdateHandlers::verify(const ActionBuffers& buffers) {
  if (context_.updates_are_valid()) return;
  for_each_replaced(buffers, [&](View<float*> array, View<float*> kept) {
    math::copy<float>(buffers.exec, kept, array);
  });
  update_unit(buffers);
}

/// Updates a unit unless the verdict says to skip the update.
void UpdateHandlers::update_unit(const ActionBuffers& buffers) {
  if (!verdict_for(buffers).skip_update)
    dispatch_moment_dtype(settings_.policy.moments.dtype, [&](auto one) {
      const ActionParts parts(buffers, context_);
      parts.in_space_of(Role::shard, [&](const auto& where, auto space) {
        update<decltype(one), decltype(space)>(buffers, where);
      });
    });
  // Parameters are converted even if the update is skipped, as they are copied from there.
  if (buffers.action.buffer(Role::parameters) >= 0) convert_updated(buffers);
}

template <class Moment, class Space>
void UpdateHandlers::update(const ActionBuffers& buffers, const math::ExecutorFor<Space>& where) {
  const ActionParts parts(buffers, context_);
  const optim::OptimizerSettings& optimizer = settings_.optimizer;
  const plan::Spans& ours = updated_part(buffers);
  const auto masters = parts.view<float, Space>(Role::shard, ours);
  const auto gradients = parts.view<float, Space>(Role::gradient_shard, ours);
  const auto first = parts.view<Moment, Space>(Role::first_moment, ours);
  const auto second = buffers.view<Moment, Space>(Role::second_moment);
  for (const UpdateRange& range : ranges_[buffers.action.unit]) {
    const optim::UpdateStep step = update_step(range, verdict_for(buffers));
    const auto part = [&](const auto& all) {
      return all.range(range.offset, range.offset + range.count);
    };
    if (range.rule == OptimizerKind::muon) {
      const std::vector<std::int64_t>& shape = range.parameter->shape;
      optim::muon_apply<float, Space>(where, optimizer, step, shape[0], shape[1], part(masters),
                                      part(gradients));
      continue;
    }
    optim::update<float, Moment, Space>(
        where, range.rule, optimizer, step, part(masters), part(gradients), part(first),
        second.range(range.second_offset, range.second_offset + range.count));
  }
  if (buffers.action.buffer(Role::average) >= 0)
    optim::update_averages<Space>(where, settings_.ema, masters,
                                  parts.view<float, Space>(Role::average, ours));
}

/// Converts updated masters to copies to compute with.
void UpdateHandlers::convert_updated(const ActionBuffers& buffers) {
  const plan::Spans& ours = updated_part(buffers);
  const ActionParts parts(buffers, context_);
  dispatch_dtype(compute_, [&](auto one) {
    parts.in_space_of(Role::shard, [&](const auto& where, auto space) {
      using T = decltype(one);
      using Space = decltype(space);
      math::convert<float, T, Space>(where, parts.view<float, Space>(Role::shard, ours),
                                     parts.view<T, Space>(Role::parameters, ours));
    });
  });
}

}  // namespace ostrakon::train
