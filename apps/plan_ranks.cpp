// SPDX-License-Identifier: Apache-2.0
#include "plan_ranks.hpp"

namespace ostrakon::apps {

using config::Settings;

Throughput throughput(const Settings& settings, const plan::ModelDescription& model, int ranks,
                      double seconds, double flops) {
  const config::TrainingSettings& training = settings.training;
  const auto tokens = static_cast<double>(training.global_batch_size * training.sequence_length);
  const double of_rank = plan::model_flops(model) * static_cast<double>(settings.leaves()) *
                         static_cast<double>(settings.tensor) / static_cast<double>(ranks);
  return {tokens / seconds, of_rank / seconds / flops};
}

}  // namespace ostrakon::apps
