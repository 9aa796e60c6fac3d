// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/train/load_handler.hpp>

#include <algorithm>
#include <exception>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/transfer.hpp>

namespace ostrakon::train {

using plan::Role;
using runtime::ActionBuffers;

LoadHandler::LoadHandler(StepContext& context, const Programs& programs,
                         const TrainerSettings& settings, comm::Communicator& world)
    : context_(context),
      world_(world),
      samples_(settings.micro_batch_size),
      tokens_(settings.sequence_length),
      sample_(static_cast<std::size_t>(tokens_ + 1)) {
  const plan::StepPlan& plan = programs.train.plan;
  if (!plan.layouts.updates_early) return;
  for (const plan::Action& action : plan.actions)
    if (action.kind == plan::Kind::load) last_load_before_updates_ = action.micro_batch;
}

void LoadHandler::install(runtime::Executor& executor) {
  executor.on(plan::Kind::load, [this](const ActionBuffers& buffers) { load(buffers); });
}

/// Tokens, then targets, of the samples of a leaf.
void LoadHandler::read(std::int64_t leaf, std::int32_t* batch) {
  for (std::int64_t s = 0; s < samples_; ++s) {
    const std::int64_t sample = leaf * samples_ + s;
    context_.dataset->read(context_.first_sample + static_cast<std::uint64_t>(sample),
                           sample_.data());
    std::copy_n(sample_.begin(), tokens_, batch + s * tokens_);
    std::copy_n(sample_.begin() + 1, tokens_, batch + (samples_ + s) * tokens_);
  }
}

void LoadHandler::load(const ActionBuffers& buffers) {
  const int micro_batch = buffers.action.micro_batch;
  const std::int64_t numbers = 2 * samples_ * tokens_;
  auto* batch = buffers.get<std::int32_t>(Role::host_batch);
  try {
    read(context_.plan().leaf(context_.rank, micro_batch), batch);
  } catch (const std::exception& error) {
    context_.load_error = error.what();
    std::fill_n(batch, numbers, 0);
  }
  // Where updates begin before ranks agree on the step, none may use what was not read.
  if (context_.trains() && micro_batch == last_load_before_updates_) {
    world_.agree([&] { require(context_.load_error.empty(), context_.load_error); });
    context_.is_intact = false;
  }
  math::copy_to_device(exec_, batch, buffers.get<std::int32_t>(Role::batch),
                       static_cast<std::size_t>(numbers));
}

}  // namespace ostrakon::train
