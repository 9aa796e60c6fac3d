// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/handlers/load_handler.hpp>

#include <algorithm>
#include <exception>
#include <ostrakon/base/error.hpp>

namespace ostrakon::train {

using plan::Role;
using runtime::ActionBuffers;

LoadHandler::LoadHandler(StepContext& context, const Programs& programs,
                         const StepSettings& settings, comm::Communicator& world)
    : context_(context),
      world_(world),
      samples_(settings.micro_batch_size),
      parts_(settings.context_ranks),
      pieces_(settings.pieces) {
  const plan::StepPlan& plan = programs.train.plan;
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

void LoadHandler::load(const ActionBuffers& buffers) {
  const int micro_batch = buffers.action.micro_batch;
  const HostView<unsigned char*> batch = buffers.host_view<unsigned char>(Role::host_batch);
  const std::int64_t leaf = context_.plan().leaf(context_.rank, micro_batch);
  try {
    require_size(*context_.samples, batch.size());
    const std::int64_t first = leaf / parts_ * samples_;
    context_.samples->fill_part(context_.first_sample + static_cast<std::uint64_t>(first), samples_,
                                {leaf % parts_, parts_, pieces_}, batch.data());
  } catch (const std::exception& error) {
    context_.load_error = error.what();
    if (context_.load_error.empty()) context_.load_error = "samples can't be read";
    std::fill_n(batch.data(), batch.size(), static_cast<unsigned char>(0));
  }
  // If updates begin before ranks agree on the step, none may use data that was not read.
  if (context_.trains() && micro_batch == last_load_before_updates_) {
    world_.run_collectively([&] { require(context_.load_error.empty(), context_.load_error); });
    context_.is_intact = false;
  }
}

}  // namespace ostrakon::train
