// SPDX-License-Identifier: Apache-2.0
// Sets every field that docs/own-models.md lists, with names of the namespace ostrakon alone.

#include <ostrakon/gradient_check.hpp>
#include <ostrakon/training.hpp>

namespace {

namespace os = ostrakon;

struct Samples final : os::SampleSource {
  std::int64_t sample_bytes() const override { return 4; }
  void fill(std::uint64_t, std::int64_t, void*) override { throw os::Error("no samples"); }
  os::Facts identity() const override { return {os::Fact{"checksum", "9f0c"}}; }
};

os::PolicyChoices policy() {
  os::PolicyChoices policy;
  policy.sharding = os::Sharding::full;
  policy.shard_optimizer_over = os::OptimizerGroup::world;
  policy.accumulation = os::Accumulation::shard_each;
  policy.leaf_order = os::LeafOrder::shuffled;
  policy.reshard_after_forward = {os::Reshard::partly, 2};
  policy.forward_prefetch.depth = 2;
  policy.backward_prefetch = os::Prefetch{0, {"first"}};
  policy.in_flight_gathers = os::GatherLimit{2, 1 << 20};
  policy.in_flight_reductions = 2;
  policy.hierarchical.kind = os::Hierarchical::always;
  os::UnitRule rule;
  rule.pattern = "block.*";
  rule.reshard_after_forward = os::Reshard{os::Reshard::never, 0};
  policy.units = {rule};
  policy.reduce = os::DType::bf16;
  policy.activation_checkpointing = os::ActivationCheckpointing{1};
  policy.moments.dtype = os::DType::bf16;
  policy.offload = os::Offload::optimizer;
  policy.offload_activations = true;
  return policy;
}

os::OptimizerSettings optimizer() {
  os::OptimizerSettings optimizer;
  optimizer.kind = os::OptimizerKind::muon;
  optimizer.learning_rate = optimizer.weight_decay = 1e-3;
  optimizer.beta1 = optimizer.beta2 = optimizer.momentum = 0.9;
  optimizer.epsilon = 1e-8;
  optimizer.nesterov = false;
  optimizer.clip_norm = 1.0;
  optimizer.muon_iterations = 4;
  optimizer.muon_rate_factor = 2.0;
  os::ParameterRule rule;
  rule.pattern = "*.bias";
  rule.frozen = false;
  rule.learning_rate = rule.weight_decay = 0.0;
  optimizer.parameters = {rule};
  return optimizer;
}

os::TrainerSettings trainer_settings() {
  os::TrainerSettings settings;
  settings.steps = 10;
  settings.global_batch_size = 8;
  settings.micro_batch_size = 2;
  settings.seed = 2;
  settings.policy = policy();
  settings.early_updates = false;
  settings.checkpoint_staging = true;
  settings.sum_grain = 2;
  settings.optimizer = optimizer();
  settings.schedule = os::LearningRateSchedule{os::Tail::warmup_stable_decay, 2, 0.1, 2};
  os::StabilitySettings stability;
  stability.skip_non_finite = true;
  stability.outlier_threshold = 5.0;
  stability.outlier_window = 64;
  settings.stability = stability;
  os::LossScaleSettings scale;
  scale.initial = 1024.0;
  settings.loss_scale = scale;
  settings.streams = os::Streams::in_plan_order;
  settings.pinned_host_memory = false;
  return settings;
}

os::CheckpointOptions checkpoint_options() {
  os::CheckpointOptions options;
  options.folder = "checkpoints";
  options.keep = 3;
  options.keep_every = 100;
  options.files = os::Files::node;
  options.verify = true;
  options.tell = [](const std::string&) {};
  return options;
}

/// Compiled, not run: the calls that take them.
[[maybe_unused]] int train(std::unique_ptr<os::Model> model) {
  os::Mesh mesh(MPI_COMM_WORLD, 2, os::node_group);
  os::set_matrix_threads(mesh.world(), 1);
  os::Trainer trainer(std::move(model), trainer_settings(), mesh);
  Samples samples;
  os::Checkpoints checkpoints(checkpoint_options(), mesh, trainer, samples);
  try {
    checkpoints.finish_after([&] { trainer.step(samples, 1); });
  } catch (const os::CollectiveError&) {
    return 1;
  }
  return 0;
}

template <class T>
constexpr bool is_small = sizeof(T) == 2;
static_assert(is_small<os::bf16> && is_small<os::fp16>);

}  // namespace

int main() { return trainer_settings().policy.units.empty() || checkpoint_options().keep != 3; }
