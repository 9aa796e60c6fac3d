// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/settings.hpp>

#include <algorithm>
#include <ostrakon/math/products/product_workspace.hpp>

namespace ostrakon::config {

std::int64_t micro_batch_grain(const TrainingSettings& training) {
  return training.leaf == Leaf::sequence ? training.sum_grain / training.micro_batch_size
                                         : training.sum_grain;
}

bool has_expert_units(const Settings& settings) {
  return settings.model.experts.exist() &&
         std::max({settings.expert, settings.tensor, settings.tensor_grain}) > 1;
}

bool saves_in_background(const CheckpointSettings& checkpoint) {
  return checkpoint.asynchronous && checkpoint.every > 0;
}

plan::Policy policy_of(const plan::PolicyChoices& choices, const UpdateChoices& updates,
                       const PolicyFacts& facts) {
  plan::Policy policy(choices);
  policy.leaves = facts.micro_batches * facts.context_ranks;
  policy.context_ranks = static_cast<int>(facts.context_ranks);
  policy.tensor_ranks = static_cast<int>(facts.tensor_ranks);
  policy.stages = static_cast<int>(facts.stages);
  policy.expert_ranks = static_cast<int>(facts.expert_ranks);
  policy.sum_grain = facts.micro_batch_grain * facts.context_ranks;
  policy.moment_count = optim::moments(updates.optimizer);
  policy.averages = updates.ema > 0.0;
  policy.checkpoint_staging = facts.checkpoint_staging;
  policy.product_workspace_bytes = math::product_workspace_bytes(facts.kernels);
  // A unit that the host updates may be updated before the gradients of all units are known unless
  // it depends on these whether and how it is: by clipping, or if steps may be skipped. Before
  // early updates ranks agree at the last batch, which not all stages of a pipeline read.
  policy.early_updates =
      updates.early_updates && policy.stages == 1 &&
      plan::offloads(policy.offload, plan::Offload::optimizer) &&
      updates.optimizer.clip_norm <= 0.0 && !scales_loss(facts.compute, policy.reduce) &&
      !updates.stability.skip_non_finite && updates.stability.outlier_threshold <= 0.0;
  return policy;
}

plan::Policy policy_of(const Settings& settings) {
  PolicyFacts facts;
  facts.compute = settings.precision.gather;
  facts.micro_batches = settings.training.micro_batches();
  facts.micro_batch_grain = micro_batch_grain(settings.training);
  facts.context_ranks = settings.context;
  facts.tensor_ranks = settings.tensor;
  facts.expert_ranks = std::max<std::int64_t>(settings.expert / settings.tensor, 1);
  facts.stages = settings.pipeline;
  facts.checkpoint_staging = saves_in_background(settings.checkpoint);
  facts.kernels = settings.processor.kernels;
  return policy_of(settings.parallel, settings, facts);
}

}  // namespace ostrakon::config
