// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/handlers/sum_handlers.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/exact_sum.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/trainer/dispatch_dtype.hpp>
#include <ostrakon/trainer/handlers/action_parts.hpp>
#include <type_traits>
#include <utility>

namespace ostrakon::train {

using plan::Kind;
using plan::Role;
using runtime::ActionBuffers;

static_assert(plan::shard_alignment % math::norm_block == 0,
              "shards begin within a block of the norm");
static_assert(model::parameter_alignment % math::norm_block == 0,
              "parameters begin within a block of the norm");

namespace {

/// Whether a buffer's content begins with an action, which therefore finds nothing in it.
bool begins(const plan::Action& action, Role role) {
  return std::any_of(action.uses.begin(), action.uses.end(), [&](const plan::Use& use) {
    return use.role == role && use.access == plan::Access::write;
  });
}

}  // namespace

SumHandlers::SumHandlers(StepContext& context, const ShardLayout& layout, StepGuard& guard,
                         Diagnosis& diagnosis, comm::Communicator& world, std::int64_t step_terms)
    : context_(context),
      guard_(guard),
      diagnosis_(diagnosis),
      world_(world),
      step_terms_(step_terms),
      counts_(layout.model().description(), layout.model().loss_terms()) {
  const model::LossTerms loss = layout.model().loss_terms();
  has_targets_ = loss.first_target >= 0;
  further_terms_ = step_terms / loss.terms * loss.further;
  are_of_pairs_ = loss.are_of_pairs;
  for (int u = 0; u < layout.units(); ++u) normed_.push_back(layout.normed_ranges(u));
}

void SumHandlers::install(runtime::Executor& executor) {
  executor.on(Kind::begin, this, &SumHandlers::begin);
  executor.on(Kind::accumulate, this, &SumHandlers::accumulate);
  executor.on(Kind::norm, this, &SumHandlers::norm);
  executor.on(Kind::reduce_sums, this, &SumHandlers::reduce_sums);
  executor.on(Kind::clip, this, &SumHandlers::clip);
}

/// Clears the step's sums on the device, or on the host.
void SumHandlers::begin(const ActionBuffers& buffers) {
  if (buffers.action.buffer(Role::host_sums) >= 0) return begin_on_host(buffers);
  math::clear(buffers.exec, buffers.device_view<std::int64_t>(Role::sums).range(0, counts_.sums()));
}

void SumHandlers::begin_on_host(const ActionBuffers& buffers) {
  const auto squares = buffers.host_view<std::int64_t>(Role::host_sums).range(0, step_sums);
  std::fill_n(squares.data(), squares.size(), std::int64_t{0});
}

/// Returns the sums on the host, with the two numbers behind them.
HostView<std::int64_t*> SumHandlers::all_sums(const ActionBuffers& buffers) const {
  return buffers.host_view<std::int64_t>(Role::host_sums).range(0, counts_.sums() + 2);
}

void SumHandlers::accumulate(const ActionBuffers& buffers) {
  const std::int64_t count = buffers.action.elements;
  const ActionParts parts(buffers, context_);
  parts.in_space_of(Role::parameter_gradients, [&](const auto& where, auto space) {
    using Space = decltype(space);
    math::add_to<float, Space>(
        where, buffers.view<float, Space>(Role::source).range(0, count),
        buffers.view<float, Space>(Role::parameter_gradients).range(0, count));
  });
}

void SumHandlers::norm(const ActionBuffers& buffers) {
  const ActionParts parts(buffers, context_);
  const plan::Spans& divided = context_.plan().units[buffers.action.unit].layouts.gradient.divided;
  constexpr std::int64_t begin = math::exact_sum_limbs,
                         end = std::int64_t{2} * math::exact_sum_limbs;
  parts.in_space_of(Role::gradient_shard, [&](const auto& where, auto space) {
    using Space = decltype(space);
    constexpr bool on_host = std::is_same<Space, OnHost>::value;
    const auto gradients = parts.view<float, Space>(Role::gradient_shard, divided);
    const auto squares =
        buffers.view<std::int64_t, Space>(on_host ? Role::host_sums : Role::sums).range(begin, end);
    const auto add_squares = [&] {
      for (const ElementRange& range : normed_[static_cast<std::size_t>(buffers.action.unit)])
        math::add_squares<float, Space>(where, gradients.range(range.begin, range.end), squares);
    };
    if constexpr (on_host) {
      const std::int64_t before = math::exact_sum_non_finite(squares);
      add_squares();
      const std::int64_t more = math::exact_sum_non_finite(squares) - before;
      if (more > 0) diagnosis_.note_sum(buffers.action.unit, more);
    } else {
      add_squares();
    }
  });
}

/// Adds the step's sums over all ranks, on the host; after them, how many ranks could not load, and
/// how many terms of the loss count.
void SumHandlers::reduce_sums(const ActionBuffers& buffers) {
  const std::int64_t count = counts_.sums();
  const auto from_device = buffers.host_view<std::int64_t>(Role::sums).range(0, count);
  const auto sums = all_sums(buffers);
  if (begins(buffers.action, Role::host_sums)) std::fill_n(sums.data(), step_sums, std::int64_t{0});
  // Carries are resolved now, so that spare bits are needed once per rank, not once per term.
  for (const HostView<std::int64_t*>& both : {sums, from_device})
    for (const int begin : {0, math::exact_sum_limbs})
      math::exact_sum_carry(both.range(begin, begin + math::exact_sum_limbs));
  for (int i = 0; i < counts_.further(); ++i)
    math::exact_sum_carry(counts_.further_of(from_device, i));
  for (int i = 0; i < step_sums; ++i) sums[i] += from_device[i];
  // Counters exist only in the sums of the device.
  std::copy_n(from_device.data() + step_sums, count - step_sums, sums.data() + step_sums);
  sums[count] = context_.load_error.empty() ? 0 : 1;
  sums[count + 1] = context_.counted_terms;
  world_.all_reduce_sum(sums.data(), sums.size());
}

/// Returns the step's sums over all ranks, which an earlier action may have added. Throws
/// CollectiveError where a rank could not load.
HostView<const std::int64_t*> SumHandlers::add_sums(const ActionBuffers& buffers) {
  if (buffers.action.buffer(Role::sums) >= 0) reduce_sums(buffers);
  const auto sums = all_sums(buffers);
  if (sums[counts_.sums()] > 0)
    world_.run_collectively([&] { require(context_.load_error.empty(), context_.load_error); });
  return sums;
}

void SumHandlers::clip(const ActionBuffers& buffers) {
  if (!context_.plan().layouts.updates_optimistically) return judge(buffers);
  try {
    judge(buffers);
  } catch (const CollectiveError&) {
    // Updates have to be undone first.
    context_.verdict = StepDecision();
    context_.verdict.skip_update = true;
    context_.failure = std::current_exception();
  }
}

void SumHandlers::judge(const ActionBuffers& buffers) {
  const HostView<const std::int64_t*> integers = add_sums(buffers);
  StepTerms terms;
  terms.all = context_.counted ? context_.counted->terms : step_terms_;
  terms.counted = has_targets_ ? integers[counts_.sums() + 1] : terms.all;
  const StepSums sums = read_sums(integers, terms, context_.result.loss_scale);
  context_.result.loss = sums.loss;
  context_.result.counted_terms = terms.counted;
  if (are_of_pairs_) {
    const auto mean = [&](math::PairOutput of) {
      return mean_of(counts_.further_of(integers, of - 1), terms.counted);
    };
    context_.result.pairs = {mean(math::chosen_log_ratio), mean(math::rejected_log_ratio),
                             mean(math::is_preferred)};
  }
  if (!context_.trains()) {
    const std::string error = guard_.validation_error(context_.step, sums);
    if (!error.empty()) throw CollectiveError(error);
    return;
  }
  context_.result.grad_norm = sums.grad_norm;
  if (further_terms_ > 0)
    context_.result.multi_token_loss = mean_of(counts_.further_of(integers), further_terms_);
  counts_.read_load(integers, context_.result.expert_load);
  counts_.read_rounds(integers, context_.result.expert_rounds);
  if (context_.audit_differs)
    refuse_update();
  else if (context_.diagnoses)
    context_.diagnosis = diagnosis_.name_origin(buffers);
  else
    judge(sums);
}

/// Lets nothing be updated with gradients that ranks do not agree on: the step is repeated.
void SumHandlers::refuse_update() {
  context_.verdict = StepDecision();
  context_.verdict.skip_update = true;
}

/// Judges a step, alike on all ranks.
void SumHandlers::judge(const StepSums& sums) {
  StepDecision verdict = guard_.judge(context_.step, sums);
  // The gradients do not exist any more, so the notes on them are used.
  if (verdict.needs_diagnosis && guard_.updates_early())
    verdict = guard_.judge_gradient(context_.step, diagnosis_.name_noted());
  if (!verdict.error.empty()) throw CollectiveError(verdict.error);
  // Early updates may be reading their verdict now: it stays as it was before the sums.
  if (!guard_.updates_early()) context_.verdict = std::move(verdict);
}

}  // namespace ostrakon::train
