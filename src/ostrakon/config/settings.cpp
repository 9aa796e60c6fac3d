// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/settings.hpp>

#include <algorithm>

namespace ostrakon::config {
namespace {

/// Returns the arguments of plan::may_update_early.
plan::GradientUses gradient_uses(const Settings& settings) {
  return {settings.optimizer.clip_norm > 0.0, scales_loss(settings),
          settings.stability.skip_non_finite || settings.stability.outlier_threshold > 0.0};
}

}  // namespace

std::int64_t micro_batch_grain(const TrainingSettings& training) {
  return training.leaf == Leaf::sequence ? training.sum_grain / training.micro_batch_size
                                         : training.sum_grain;
}

bool has_expert_units(const Settings& settings) {
  return settings.model.experts.exist() &&
         std::max({settings.expert, settings.tensor, settings.tensor_grain}) > 1;
}

bool scales_loss(const Settings& settings) {
  return settings.precision.gather == DType::fp16 || settings.parallel.reduce == DType::fp16;
}

plan::ModelDescription without_units(const Settings& settings) {
  plan::ModelDescription description;
  description.element_bytes = bytes_of(settings.precision.gather);
  description.master_bytes = bytes_of(DType::fp32);
  return description;
}

void complete(Settings& settings) {
  plan::Policy& policy = settings.parallel;
  policy.leaves = settings.leaves();
  policy.context_ranks = static_cast<int>(settings.context);
  policy.tensor_ranks = static_cast<int>(settings.tensor);
  policy.stages = static_cast<int>(settings.pipeline);
  policy.expert_ranks =
      static_cast<int>(std::max<std::int64_t>(settings.expert / settings.tensor, 1));
  policy.sum_grain = micro_batch_grain(settings.training) * settings.context;
  policy.moments.count = optim::moments(settings.optimizer);
  policy.checkpoint_staging = settings.checkpoint.asynchronous && settings.checkpoint.every > 0;
  policy.early_updates =
      settings.early_updates && plan::may_update_early(policy.offload, gradient_uses(settings));
}

}  // namespace ostrakon::config
