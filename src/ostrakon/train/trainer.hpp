// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostrakon/checkpoint/manifest.hpp>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/checkpoint/shard_map.hpp>
#include <ostrakon/data/sample_source.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/model/model.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/train/channels.hpp>
#include <ostrakon/train/device_memory.hpp>
#include <ostrakon/train/model_state.hpp>
#include <ostrakon/train/programs.hpp>
#include <ostrakon/train/shard_layout.hpp>
#include <ostrakon/train/step_context.hpp>
#include <ostrakon/train/step_guard.hpp>
#include <ostrakon/train/step_handlers.hpp>
#include <ostrakon/train/submissions.hpp>
#include <ostrakon/train/trainer_settings.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

/// One rank's part of the training of a model: plans it, keeps its state, and takes steps.
///
/// The constructor plans and proves and takes no memory for the model, so a run can be shown, and
/// refused, before that. Then allocate(), initialize() or restore(), and step(): in another order
/// they throw Error, each rank by itself. All methods are collective over the mesh, with the same
/// arguments on all ranks, unless said otherwise.
class Trainer {
 public:
  /// `mesh` must outlive it. Throws AgreedError where ranks have different settings, parameters or
  /// plans, where a setting can't be, where there is no such plan, where the model was made for
  /// leaves of another size than settings say, where a rule of optimizer.parameters matches none of
  /// its parameters, and where units exchange activations over more than
  /// one rank.
  Trainer(std::unique_ptr<const model::Model> model, const TrainerSettings& settings,
          mesh::Mesh& mesh);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // ---- what is planned

  const model::Model& model() const { return *model_; }
  const runtime::Program& program(plan::Purpose purpose) const { return programs_.of(purpose); }
  runtime::Streams streams() const { return settings_.streams; }
  /// With what the Trainer has set; another Trainer refuses these.
  const TrainerSettings& settings() const { return settings_; }
  /// Why ranks of a node communicate by MPI where they were to read each other's memory; else
  /// empty. See plan::NodeWindows.
  const std::string& why_no_windows() const { return why_no_windows_; }
  /// Floating-point operations that a step of the model takes on each rank (in a pipeline the mean
  /// over stages), whatever the plan computes twice: those of forward, and two products for each of
  /// its products in backward. But none for the gradient of a frozen matrix, nor before the first
  /// unit that is trained. What MFU counts.
  double model_flops() const;
  /// In a step of training, by this rank; see count_submissions.
  std::optional<Submissions> submissions() const {
    return count_submissions(programs_.train, layout_, settings_);
  }
  /// Bytes of the arenas that all programs share: all that a rank will use.
  std::int64_t planned_peak_bytes() const;

  /// Throws AgreedError with the arithmetic where the ranks of a host need more than it or its
  /// device has left.
  void require_memory();

  // ---- training

  /// Takes the arenas, makes the communicators of the streams, and launches all that a device has
  /// to load. Once; Error otherwise.
  void allocate();

  /// Initial weights and moments of zero, unit by unit, straight into shards. Weights are random,
  /// or read from `weights`, by each rank what it has. Throws AgreedError where a rank can't read.
  void initialize(checkpoint::ParameterSource* weights = nullptr);

  /// Step `step`, on the next global_batch_size samples: 1, or the one after the checkpoint's, then
  /// one after the other; Error otherwise. One that has failed may be tried again.
  ///
  /// Throws AgreedError where a loss or a gradient is not finite, or data can't be read, or has
  /// samples of another size than the model reads; no parameter has changed then (optimistic
  /// updates are undone), unless updates overlap with backward (Policy::early_updates): see
  /// is_intact(). The unit with that gradient is found by running the step once more, which takes
  /// its time and changes nothing.
  StepResult step(data::SampleSource& samples, std::int64_t step);

  /// False once a step has failed after some of the parameters were updated, until initialize() or
  /// restore(). Such a state is not to be saved.
  bool is_intact() const { return context_.is_intact; }

  /// Mean loss over `batches` global batches, at least 1, from sample 0 (of tokens: in nats per
  /// token). Throws AgreedError as step() does.
  double evaluate(data::SampleSource& samples, std::int64_t batches);

  /// Mean loss over samples 0 to `count` - 1, at least one, and no more than a global batch: each
  /// counts once. `samples` is asked for the rest of the batch too, which is computed and does not
  /// count. Losses have to come sample by sample, equally many each, as those of a Decoder, unless
  /// `count` is a multiple of micro_batch_size; throws AgreedError where there are not so many.
  double evaluate_samples(data::SampleSource& samples, std::int64_t count);

  /// Calls visit(unit, trained, frozen) on every rank of the unit's stage, unit by unit, with views
  /// of the unit's two flat parameters.
  using Visitor = train::Visitor;
  void visit_parameters(const Visitor& visit);
  /// The plans of training of all stages, without actions: which units each has.
  const std::vector<plan::StepPlan>& stages() const { return programs_.stages; }
  /// The elements of a unit's parameter, row by row, from what a visitor was given. Not collective.
  std::vector<float> values_of(int unit, const model::Parameter& parameter,
                               View<const float*> trained, View<const float*> frozen) const;
  /// Returns them without a copy, where they lie there together, in this order; else nothing.
  View<const float*> view_of(int unit, const model::Parameter& parameter,
                             View<const float*> trained, View<const float*> frozen) const;

  /// Hash of parameters and optimizer state by global index: the same for every layout. Throws
  /// AgreedError where replicas differ.
  std::uint64_t state_digest();

  // ---- checkpoints

  /// Says which rank saves what; the same on every rank. Not collective.
  checkpoint::ShardMap shard_map() const;
  /// What is saved besides arrays, of the last step that succeeded. Not collective.
  checkpoint::Progress progress() const;
  /// The last steps whose updates were skipped, of this process and of those that it has resumed
  /// from. Not collective.
  const SkippedSteps& skipped() const { return guard_.skipped(); }

  /// Throws Error where nothing has set the state: before initialize() and restore(). `call`
  /// is what needs it: "Trainer::step". Not collective.
  void require_state(const char* call) const;
  /// Whether the plan has a staging copy of what this rank saves.
  bool has_staging() const { return programs_.train.plan.checkpoint >= 0; }
  /// See ModelState.
  void stage() { state_->stage(); }
  const void* saved(std::size_t slice, std::int64_t first, std::int64_t bytes, bool staged) {
    return state_->saved(slice, first, bytes, staged);
  }

  /// Throws Error where a checkpoint is not of this model, or lacks state that this optimizer
  /// needs. Not collective.
  void require_fit(const checkpoint::Manifest& manifest) const;
  /// Takes state and progress from a checkpoint that fits: each rank what it has. Throws
  /// AgreedError where a rank can't read it; what is in the arrays is undefined then.
  void restore(checkpoint::CheckpointReader& checkpoint);

  // ---- measurements and tests

  /// Besides planned_peak_bytes(), so far; known once allocate() was called. Not collective.
  DeviceMemoryUse device_memory() const;

  /// Best rate of matrix products that all ranks reach at once, mean over ranks, in floating-point
  /// operations per second of a rank. Takes about `seconds`. Overwrites the arena: call between
  /// allocate() and initialize(), or when its contents are needed no more.
  double measure_peak_flops(double seconds = 0.25);
  /// Bytes that this rank has sent over a span of ranks since allocate(). Not collective.
  std::int64_t bytes_sent(const plan::Span& span) const { return channels_->bytes_sent(span); }
  /// Bytes that were planned and not sent, in exchanges for which no rank had anything
  /// (plan::Exchange::may_be_empty). Not collective.
  std::int64_t bytes_left_out(const plan::Span& span) const {
    return channels_->bytes_left_out(span);
  }
  /// When each action of the last step, evaluation or export ran; of a step that ran twice, the
  /// second time. Not collective.
  const std::vector<runtime::ActionTime>& action_times() const { return executor_->times(); }
  /// Called before and after every action of the compute stream; of the others too, where all run
  /// in plan order.
  void observe(runtime::Executor::Observer observer) { executor_->observe(std::move(observer)); }
  /// Called after every run of a program that did not fail, with action_times() of its actions.
  using RunObserver = std::function<void(const runtime::Program&)>;
  void observe_runs(RunObserver observer) { run_observer_ = std::move(observer); }
  /// Changes the order or the time of actions from now on; ranks need the same seed in plan order.
  void perturb(runtime::Perturbation perturbation) { executor_->perturb(perturbation); }
  /// Makes all gathers (or all reductions) slower, as if by the network; see comm::Communicator.
  void slow_down(plan::Stream stream, double seconds_per_byte) {
    channels_->slow_down(stream, seconds_per_byte);
  }
  /// Takes `step` as the next one, whatever was before: for tests.
  void set_next_step(std::int64_t step) { steps_done_ = step - 1; }
  /// In the next step, makes one element of a unit's gradient infinite, which `rank` computes from
  /// its micro-batch 0: for tests.
  void inject_nonfinite(int unit, int rank) {
    next_nonfinite_ = mesh_.world().rank() == rank ? unit : -1;
  }

 private:
  /// Where this process began to train.
  struct Start {
    std::int64_t step = 1;
    std::int64_t samples = 0;  ///< that the steps before took
  };

  void require_allocated(const char* call) const;
  void require_same_plan();
  void run(const runtime::Program& program);
  void begin_step(data::SampleSource& samples, std::int64_t step);
  void diagnose();
  /// Samples that steps before `step` take.
  std::int64_t samples_before(std::int64_t step) const {
    return start_.samples + (step - start_.step) * settings_.global_batch_size;
  }

  std::string why_no_windows_;
  TrainerSettings settings_;
  mesh::Mesh& mesh_;
  std::unique_ptr<const model::Model> model_;
  plan::ModelDescription description_;
  Programs programs_;
  ShardLayout layout_;
  std::vector<RankLocation> rank_locations_;  // of each rank of the world
  StepGuard guard_;
  StepContext context_;
  Start start_;
  std::int64_t steps_done_ = 0;  // the last step that succeeded
  int next_nonfinite_ = -1;
  DeviceMemoryUse device_memory_;
  std::unique_ptr<ModelState> state_;
  std::unique_ptr<Channels> channels_;
  std::unique_ptr<StepHandlers> handlers_;
  std::unique_ptr<runtime::Executor> executor_;
  RunObserver run_observer_;
};

}  // namespace ostrakon::train
