// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/handlers/load_handler.hpp>

#include <algorithm>
#include <exception>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/cross_entropy/logits.hpp>
#include <string>

namespace ostrakon::train {

using plan::Role;
using runtime::ActionBuffers;

LoadHandler::LoadHandler(StepContext& context, const Programs& programs,
                         const StepSettings& settings, comm::Communicator& world)
    : context_(context),
      world_(world),
      loss_(settings.loss),
      step_terms_(settings.step_terms()),
      samples_(settings.micro_batch_size),
      parts_(settings.context_ranks),
      pieces_(settings.pieces) {
  const plan::StepPlan& plan = programs.train.plan;
  // Stages load the same leaf, and so do tensor ranks: one rank of them counts its targets.
  const bool has_losses =
      std::any_of(plan.actions.begin(), plan.actions.end(),
                  [](const plan::Action& action) { return action.kind == plan::Kind::loss; });
  counts_ =
      has_losses && has_targets() && plan.grid.coordinate(context.rank, plan::Axis::tensor) == 0;
  if (!plan.layouts.updates_early) return;
  for (const plan::Action& action : plan.actions)
    if (action.kind == plan::Kind::load) last_load_before_updates_ = action.micro_batch;
}

void LoadHandler::install(runtime::Executor& executor) {
  executor.on(plan::Kind::load, this, &LoadHandler::load);
}

void LoadHandler::require_size(const data::SampleSource& samples, std::int64_t expected) const {
  const std::int64_t bytes = samples.sample_bytes() * samples_ / parts_;
  require(bytes == expected, "a leaf of ", samples_, " samples of ", samples.sample_bytes(),
          " bytes", parts_ > 1 ? text(" in ", parts_, " parts") : "", " has ", bytes,
          " bytes; the model reads leaves of ", expected);
}

/// Returns how many targets of a leaf count, whose first sample is `first` of the global batch.
/// Throws Error where all have to and one does not.
std::int64_t LoadHandler::counted_terms(HostView<const unsigned char*> batch,
                                        std::int64_t first) const {
  const std::int32_t* const targets =
      reinterpret_cast<const std::int32_t*>(batch.data()) + loss_.first_target;
  const auto counted_of = [&](std::int64_t terms) {
    return std::count_if(targets, targets + terms,
                         [](std::int32_t target) { return math::counts(target); });
  };
  const std::int64_t counted =
      counted_of(loss_.terms * context_.counted_samples(first, samples_) / samples_);
  const std::string needs_all = loss_.needs_all;
  // What predicts further tokens reads all targets as tokens, in a validation, too.
  if (needs_all.empty() || (!context_.trains() && loss_.further == 0)) return counted;
  const std::int64_t missing = loss_.terms - counted_of(loss_.terms);
  require(missing == 0, "samples from ", context_.first_sample + first, " on have ", missing,
          " of ", loss_.terms, " ", loss_.name,
          " that do not count in the loss (targets of -1): expected all to count, as ", needs_all);
  return counted;
}

/// Ends the step on all ranks if one could not load, and else finds the factor of gradients, which
/// early updates can't take from the step's sums.
void LoadHandler::agree_before_updates() {
  world_.run_collectively([&] { require(context_.load_error.empty(), context_.load_error); });
  if (has_targets()) {
    std::int64_t counted = context_.counted_terms;
    world_.all_reduce_sum(&counted, 1);
    context_.verdict.gradient_scale *= StepTerms{step_terms_, counted}.gradient_factor();
  }
  context_.is_intact = false;
}

void LoadHandler::load(const ActionBuffers& buffers) {
  const int micro_batch = buffers.action.micro_batch;
  const HostView<unsigned char*> batch = buffers.host_view<unsigned char>(Role::host_batch);
  const std::int64_t leaf = context_.leaf_of(buffers.action);
  const bool is_counted = counts_ && !context_.plan().is_again(buffers.action);
  try {
    require_size(*context_.samples, batch.size());
    const std::int64_t first = leaf / parts_ * samples_;
    context_.samples->fill_part(context_.first_sample + static_cast<std::uint64_t>(first), samples_,
                                {leaf % parts_, parts_, pieces_}, batch.data());
    if (is_counted) context_.counted_terms += counted_terms(batch, first);
  } catch (const std::exception& error) {
    const std::string why = error.what();
    if (context_.load_error.empty())
      context_.load_error = why.empty() ? "samples can't be read" : why;
    std::fill_n(batch.data(), batch.size(), static_cast<unsigned char>(0));
  }
  // If updates begin before ranks agree on the step, none may use data that was not read.
  if (context_.trains() && micro_batch == last_load_before_updates_) agree_before_updates();
}

}  // namespace ostrakon::train
