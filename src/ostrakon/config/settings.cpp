// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/settings.hpp>

#include <algorithm>

namespace ostrakon::config {

std::int64_t micro_batch_grain(const TrainingSettings& training) {
  return training.leaf == Leaf::sequence ? training.sum_grain / training.micro_batch_size
                                         : training.sum_grain;
}

bool has_expert_units(const Settings& settings) {
  return settings.model.experts.exist() &&
         std::max({settings.expert, settings.tensor, settings.tensor_grain}) > 1;
}

plan::Policy policy_of(const Settings& settings) {
  plan::Policy policy(settings.parallel);
  policy.leaves = settings.leaves();
  policy.context_ranks = static_cast<int>(settings.context);
  policy.tensor_ranks = static_cast<int>(settings.tensor);
  policy.stages = static_cast<int>(settings.pipeline);
  policy.expert_ranks =
      static_cast<int>(std::max<std::int64_t>(settings.expert / settings.tensor, 1));
  policy.sum_grain = micro_batch_grain(settings.training) * settings.context;
  policy.moment_count = optim::moments(settings.optimizer);
  policy.checkpoint_staging = settings.checkpoint.asynchronous && settings.checkpoint.every > 0;
  // A unit that the host updates may be updated before the gradients of all units are known unless
  // it depends on these whether and how it is: by clipping, or if steps may be skipped. Before
  // early updates ranks agree at the last batch, which not all stages of a pipeline read.
  policy.early_updates = settings.early_updates && settings.pipeline == 1 &&
                         plan::offloads(policy.offload, plan::Offload::optimizer) &&
                         settings.optimizer.clip_norm <= 0.0 &&
                         !scales_loss(settings.precision.gather, policy.reduce) &&
                         !settings.stability.skip_non_finite &&
                         settings.stability.outlier_threshold <= 0.0;
  return policy;
}

}  // namespace ostrakon::config
