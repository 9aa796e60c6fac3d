// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/handlers/compute_handlers.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/exact_sum.hpp>
#include <ostrakon/math/products/product_workspace.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/trainer/dispatch_dtype.hpp>
#include <ostrakon/trainer/handlers/unit_buffers.hpp>

namespace ostrakon::train {

using plan::Kind;
using plan::Role;
using runtime::ActionBuffers;

ComputeHandlers::ComputeHandlers(const StepContext& context, const ShardLayout& layout,
                                 const StepSettings& settings,
                                 const EmptyExchanges& empty_exchanges, Diagnosis* diagnosis)
    : context_(context),
      model_(layout.model()),
      empty_exchanges_(empty_exchanges),
      diagnosis_(diagnosis),
      counts_(model_.description(), model_.loss_terms()),
      output_terms_(settings.leaf_terms() / settings.tensor_ranks),
      step_terms_(settings.step_terms()),
      samples_(settings.micro_batch_size),
      parts_(settings.context_ranks),
      tells_of_pairs_(settings.loss.are_of_pairs) {
  for (int u = 0; u < layout.units(); ++u) gaps_.push_back(layout.gaps(u));
  for (const plan::UnitDescription& unit : model_.description().units)
    depends_on_data_.push_back(!unit.counts.empty() || unit.expert_ranks > 1 ||
                               !unit.cuts_matrices);
}

void ComputeHandlers::install(runtime::Executor& executor) {
  for (Kind kind : {Kind::forward, Kind::recompute})
    executor.on(kind, this, &ComputeHandlers::forward);
  executor.on(Kind::backward, this, &ComputeHandlers::backward);
  for (Kind kind : {Kind::forward, Kind::recompute, Kind::backward})
    executor.submit_as_graph(
        kind, [this](const ActionBuffers& buffers) { return graph_inputs(buffers); });
  executor.on(Kind::loss, this, &ComputeHandlers::add_losses);
  executor.on(Kind::export_parameters, this, &ComputeHandlers::export_parameters);
}

/// Returns the unit's buffers, with the rank's places in the grid.
model::UnitBuffers<void> ComputeHandlers::buffers_of(const ActionBuffers& buffers) const {
  const plan::StepPlan& plan = context_.plan();
  const plan::PlannedUnit& unit = plan.units[buffers.action.unit];
  const auto neighbours = [&](int count) {
    return plan.grid.coordinate(context_.rank, plan::Span{plan::Axis::shard, count});
  };
  model::UnitBuffers<void> own = unit_buffers<void>(buffers, plan, unit.tied_to);
  own.context_rank = neighbours(parts_);
  own.tensor_rank = plan.grid.coordinate(context_.rank, plan::Axis::tensor);
  own.expert_rank =
      std::int64_t{neighbours(unit.layouts.expert_ranks)} * plan.grid.tensor() + own.tensor_rank;
  own.exchange_is_empty = empty_exchanges_.empty(buffers.action);
  if (own.exchange_is_empty != nullptr) *own.exchange_is_empty = false;
  return own;
}

void ComputeHandlers::forward(const ActionBuffers& buffers) {
  const plan::PlannedUnit& unit = context_.plan().units[buffers.action.unit];
  model::UnitBuffers<void> own = buffers_of(buffers);
  if (buffers.action.buffer(Role::sums) >= 0)
    own.counts = counts_.of_unit(unit.number, buffers.device_view<std::int64_t>(Role::sums));
  const math::ProductWorkspace room(buffers.device_view<std::byte>(Role::product_workspace));
  model_.forward(unit.number, buffers.exec, own);
}

/// What experts launch depends on where tokens go. The last unit alone takes the loss scale.
runtime::GraphInputs ComputeHandlers::graph_inputs(const ActionBuffers& buffers) const {
  const plan::PlannedUnit& unit = context_.plan().units[buffers.action.unit];
  const bool is_inspected = context_.diagnoses || context_.inject_nonfinite >= 0;
  if (is_inspected || depends_on_data_[static_cast<std::size_t>(unit.number)]) return std::nullopt;
  if (buffers.action.kind != Kind::backward || unit.number + 1 < model_.units()) return 0;
  std::int64_t scale = 0;
  static_assert(sizeof scale == sizeof context_.result.loss_scale);
  std::memcpy(&scale, &context_.result.loss_scale, sizeof scale);
  return scale;
}

void ComputeHandlers::backward(const ActionBuffers& buffers) {
  const plan::Action& action = buffers.action;
  const plan::PlannedUnit& planned = context_.plan().units[action.unit];
  const int tied_to = planned.tied_to;
  model::UnitBuffers<void> unit = buffers_of(buffers);
  const bool is_last_phase = unit.phase + 1 == static_cast<int>(planned.backward.size());
  const View<float*> own = unit.parameter_gradients;
  const View<float*> tied = unit.tied_gradients;
  if (unit.phase == planned.first_gradient_phase) {
    if (own && !action.adds_gradients()) clear_gaps(buffers.exec, action.unit, own);
    if (tied) clear_gaps(buffers.exec, tied_to, tied);
  }
  const double scale = context_.result.loss_scale / static_cast<double>(step_terms_);
  const math::ProductWorkspace room(buffers.device_view<std::byte>(Role::product_workspace));
  model_.backward(planned.number, buffers.exec, unit, static_cast<float>(scale),
                  action.adds_gradients());
  if (!is_last_phase) return;
  if (planned.number == context_.inject_nonfinite && action.micro_batch == 0 && own)
    math::fill(buffers.exec, own.range(0, 1), std::numeric_limits<float>::infinity());
  if (context_.diagnoses) diagnosis_->inspect(buffers, own, tied);
}

// Clears padding, as it takes part in sums over ranks and in the norm.
void ComputeHandlers::clear_gaps(const Exec& exec, int unit, View<float*> gradients) {
  for (const Gap& gap : gaps_[unit]) math::fill(exec, gradients.range(gap.begin, gap.end), 0.0f);
}

/// Returns how many of an action's losses count, from the first on: a leaf's losses are in the
/// order of samples, and its tensor ranks have equal runs of them.
std::int64_t ComputeHandlers::counted_terms(const plan::Action& action) const {
  const plan::Grid& grid = context_.plan().grid;
  const std::int64_t leaf = context_.plan().leaf(context_.rank, action.micro_batch);
  const std::int64_t samples = context_.counted_samples(leaf / parts_ * samples_, samples_);
  const std::int64_t terms = output_terms_ * grid.tensor() * samples / samples_;
  const std::int64_t first = output_terms_ * grid.coordinate(context_.rank, plan::Axis::tensor);
  return std::clamp<std::int64_t>(terms - first, 0, output_terms_);
}

/// Copies an action's losses, and margins if there are any, to where those of its leaf and tensor
/// rank are kept.
void ComputeHandlers::keep_losses(const ActionBuffers& buffers) const {
  const plan::Grid& grid = context_.plan().grid;
  const std::int64_t leaf = context_.plan().leaf(context_.rank, buffers.action.micro_batch);
  const std::int64_t first =
      (leaf * grid.tensor() + grid.coordinate(context_.rank, plan::Axis::tensor)) * output_terms_;
  const auto output = buffers.device_view<float>(Role::output);
  for (std::int64_t from = 0, to = first; to < context_.kept.size();
       from += output_terms_, to += step_terms_)
    math::copy_to_host(buffers.exec, output.range(from, from + output_terms_),
                       context_.kept.range(to, to + output_terms_));
}

void ComputeHandlers::add_losses(const ActionBuffers& buffers) {
  if (context_.kept) keep_losses(buffers);
  const std::int64_t terms = counted_terms(buffers.action);
  if (terms == 0) return;
  const auto losses = buffers.device_view<float>(Role::output);
  const auto sums = buffers.device_view<std::int64_t>(Role::sums);
  math::add_terms<float>(buffers.exec, losses.range(0, terms), sums);
  if (!context_.trains() && !tells_of_pairs_) return;
  for (int i = 0; i < counts_.further(); ++i) {
    const std::int64_t first = (i + 1) * output_terms_;
    math::add_terms<float>(buffers.exec, losses.range(first, first + terms),
                           counts_.further_of(sums, i));
  }
}

void ComputeHandlers::export_parameters(const ActionBuffers& buffers) {
  buffers.exec.fence();
  const plan::StepPlan& plan = context_.plan();
  const int unit = buffers.action.unit;
  const View<const float*> both = buffers.device_view<float>(Role::parameters);
  const std::int64_t frozen = plan.padded(plan.frozen(unit));
  if (buffers.action.buffer(Role::source) >= 0) {
    const View<float*> converted = buffers.device_view<float>(Role::workspace);
    dispatch_dtype(model_.dtype(), [&](auto one) {
      using T = decltype(one);
      math::convert<T, float, OnDevice>(
          buffers.exec, buffers.device_view<T>(Role::source).range(0, frozen), converted);
    });
    buffers.exec.fence();
    return context_.visitor(plan.units[unit].number, both, converted);
  }
  context_.visitor(plan.units[unit].number, both.range(frozen, both.size()), both.range(0, frozen));
}

}  // namespace ostrakon::train
