// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/settings.hpp>

#include <algorithm>

namespace ostrakon::config {
namespace {

/// Arrays of state that the rule with the most of them needs: of an optimizer with two rules, each
/// serves both.
int moments(const optim::OptimizerSettings& optimizer) {
  const optim::OptimizerKind of_vectors = optim::rule_of(optimizer, model::Parameter());
  return std::max(optim::moments(optimizer, optimizer.kind), optim::moments(optimizer, of_vectors));
}

/// Whether the whole gradient of a step is known to be taken as it is, before all of it is there.
bool takes_every_gradient(const Settings& settings) {
  return settings.optimizer.clip_norm == 0.0 && !scales_loss(settings) &&
         !settings.stability.skip_non_finite && settings.stability.outlier_threshold == 0.0;
}

}  // namespace

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
  policy.leaves = settings.training.leaves();
  policy.sum_grain = settings.training.sum_grain;
  policy.moments.count = moments(settings.optimizer);
  policy.checkpoint_staging = settings.checkpoint.asynchronous && settings.checkpoint.every > 0;
  policy.early_updates = settings.early_updates &&
                         plan::offloads(policy.offload, plan::Offload::optimizer) &&
                         takes_every_gradient(settings);
}

}  // namespace ostrakon::config
