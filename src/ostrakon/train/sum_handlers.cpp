// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/train/sum_handlers.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/exact_sum.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/train/action_parts.hpp>
#include <ostrakon/train/dispatch_dtype.hpp>
#include <utility>

namespace ostrakon::train {

using plan::Kind;
using plan::Role;
using runtime::ActionBuffers;

static_assert(plan::shard_alignment % math::norm_block == 0,
              "shards begin within a block of the norm");
static_assert(model::parameter_alignment % math::norm_block == 0,
              "parameters begin within a block of the norm");

SumHandlers::SumHandlers(StepContext& context, StepGuard& guard, Diagnosis& diagnosis,
                         comm::Communicator& world, std::int64_t step_terms)
    : context_(context),
      guard_(guard),
      diagnosis_(diagnosis),
      world_(world),
      step_terms_(step_terms) {}

void SumHandlers::install(runtime::Executor& executor) {
  executor.on(Kind::begin, [this](const ActionBuffers& buffers) { begin(buffers); });
  executor.on(Kind::accumulate, [this](const ActionBuffers& buffers) { accumulate(buffers); });
  executor.on(Kind::norm, [this](const ActionBuffers& buffers) { norm(buffers); });
  executor.on(Kind::clip, [this](const ActionBuffers& buffers) { clip(buffers); });
}

void SumHandlers::begin(const ActionBuffers& buffers) {
  context_.load_error.clear();
  diagnosis_.restart_notes();
  Kokkos::deep_copy(
      exec_,
      math::UnmanagedArray<std::int64_t, Memory>(buffers.get<std::int64_t>(Role::sums), step_sums),
      std::int64_t{0});
  if (auto* on_host = buffers.get<std::int64_t>(Role::host_sums))
    std::fill_n(on_host, step_sums, std::int64_t{0});
}

void SumHandlers::accumulate(const ActionBuffers& buffers) {
  const auto* source = buffers.get<float>(Role::source);
  auto* sum = buffers.get<float>(Role::parameter_gradients);
  // Other streams may be threads outside Kokkos. Their memory is the host's.
  if (buffers.action.stream == plan::Stream::compute)
    math::add_to(exec_, source, sum, buffers.action.elements);
  else
    math::host::add_to(source, sum, buffers.action.elements);
}

void SumHandlers::norm(const ActionBuffers& buffers) {
  const auto* gradients =
      ActionParts(buffers, context_)
          .find<float>(Role::gradient_shard, context_.plan().layouts.gradient.divided);
  const std::int64_t count = buffers.action.elements;
  if (buffers.action.stream != plan::Stream::host) {
    math::add_squares(exec_, gradients, count,
                      buffers.get<std::int64_t>(Role::sums) + math::exact_sum_limbs);
    return;
  }
  std::int64_t* const squares = buffers.get<std::int64_t>(Role::host_sums) + math::exact_sum_limbs;
  const std::int64_t before = math::exact_sum_non_finite(squares);
  math::host::add_squares(gradients, count, squares);
  const std::int64_t more = math::exact_sum_non_finite(squares) - before;
  if (more > 0) diagnosis_.note_sum(buffers.action.unit, more);
}

/// The step's sums over all ranks, on the host. Throws AgreedError where a rank could not load.
const std::int64_t* SumHandlers::add_sums(const ActionBuffers& buffers) {
  auto* losses = buffers.get<std::int64_t>(Role::host_sums);
  std::int64_t* squares = losses + math::exact_sum_limbs;
  std::int64_t& failures = losses[step_sums];
  // Where updates are on the host, the squares were summed there.
  if (!context_.trains() || context_.plan().layouts.update.space == plan::Space::device)
    std::fill_n(losses, step_sums, std::int64_t{0});
  std::int64_t on_device[step_sums];
  math::copy_to_host(exec_, buffers.get<std::int64_t>(Role::sums), on_device, step_sums);
  // Carries now, so that spare bits are needed once a rank, not once a term.
  for (std::int64_t* sum : {losses, squares, on_device, on_device + math::exact_sum_limbs})
    math::exact_sum_carry(sum);
  for (int i = 0; i < step_sums; ++i) losses[i] += on_device[i];
  failures = context_.load_error.empty() ? 0 : 1;
  world_.sum(losses, step_sums + 1);
  if (failures > 0)
    world_.agree([&] { require(context_.load_error.empty(), context_.load_error); });
  return losses;
}

void SumHandlers::clip(const ActionBuffers& buffers) {
  const StepSums sums = read_sums(add_sums(buffers), step_terms_, context_.result.loss_scale);
  context_.result.loss = sums.loss;
  if (!context_.trains()) {
    const std::string error = guard_.validation_error(context_.step, sums);
    if (!error.empty()) throw AgreedError(error);
    return;
  }
  context_.result.grad_norm = sums.grad_norm;
  if (context_.diagnoses)
    context_.diagnosis = diagnosis_.name_origin(buffers);
  else
    judge(sums);
}

/// Alike on all ranks.
void SumHandlers::judge(const StepSums& sums) {
  Verdict verdict = guard_.judge(context_.step, sums);
  // The gradients are not there any more: what was noted of them has to do.
  if (verdict.needs_diagnosis && guard_.updates_early())
    verdict = guard_.judge_gradient(context_.step, diagnosis_.name_noted());
  if (!verdict.error.empty()) throw AgreedError(verdict.error);
  // Early updates may read theirs at this moment: it stays as it was before the sums.
  if (!guard_.updates_early()) context_.verdict = std::move(verdict);
}

}  // namespace ostrakon::train
