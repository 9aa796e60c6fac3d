// SPDX-License-Identifier: Apache-2.0
#include "share.hpp"

#include <algorithm>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/evaluate/evaluating_trainer.hpp>

namespace ostrakon::apps {
void share_jobs(comm::Communicator& world, std::vector<Job>& jobs) {
  auto count = static_cast<std::int64_t>(jobs.size());
  world.broadcast(&count, sizeof count, 0);
  jobs.resize(static_cast<std::size_t>(count));
  for (Job& job : jobs) {
    job.token_file = world.broadcast(job.token_file, 0);
    evaluate::share(world, job.sequences);
  }
}

std::int64_t context_for(const std::vector<Job>& jobs) {
  constexpr std::size_t multiple = 64;
  std::size_t longest = 1;
  for (const Job& job : jobs) {
    if (!job.token_file.empty()) return std::numeric_limits<std::int64_t>::max();
    for (const evaluate::Sequence& one : job.sequences)
      longest = std::max(longest, one.tokens.size() - 1);
  }
  return static_cast<std::int64_t>((longest + multiple - 1) / multiple * multiple);
}

void require_settable(const std::vector<config::Override>& overrides) {
  for (const auto& [key, value] : overrides) {
    const std::string section = key.substr(0, key.find('.'));
    const bool is_of_layout = section == "parallel" || section == "precision" ||
                              section == "memory" || section == "runtime";
    require(is_of_layout || key == "training.micro_batch_size" || key == "training.context_grain" ||
                key == "model.tensor_grain",
            "--set ", key, "=", value,
            ": expected a key of parallel, precision, memory or runtime, or "
            "training.micro_batch_size, training.context_grain or model.tensor_grain: the model is "
            "that of the weights, and nothing is trained");
  }
}

config::Settings settings_of_run(const config::Settings& model,
                                 const std::vector<config::Override>& overrides, int ranks) {
  config::Settings own;
  own.model = model.model;
  own.training.sequence_length = model.training.sequence_length;
  own.tensor_grain = model.tensor_grain;
  own.training.context_grain = model.training.context_grain;
  // A deck and back, which checks them and reads the overrides. The global batch follows from the
  // ranks, and is a multiple of the micro-batch until then.
  std::vector<config::Override> all = overrides;
  for (const auto& [key, value] : overrides)
    if (key == "training.micro_batch_size") all.emplace_back("training.global_batch_size", value);
  return evaluate::evaluation_settings(
      config::read_settings(config::write_deck(own), "the evaluation", all, config::DeckUse::model),
      ranks);
}

}  // namespace ostrakon::apps
