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
#include <ostrakon/trainer/audit/bit_flip.hpp>
#include <ostrakon/trainer/channels.hpp>
#include <ostrakon/trainer/handlers/step_context.hpp>
#include <ostrakon/trainer/handlers/step_handlers.hpp>
#include <ostrakon/trainer/handlers/submissions.hpp>
#include <ostrakon/trainer/memory_check.hpp>
#include <ostrakon/trainer/product_algorithms.hpp>
#include <ostrakon/trainer/programs.hpp>
#include <ostrakon/trainer/state/model_state.hpp>
#include <ostrakon/trainer/state/shard_layout.hpp>
#include <ostrakon/trainer/step_guard.hpp>
#include <ostrakon/trainer/trainer_settings.hpp>
#include <ostrakon/watch/fault.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

/// One rank's part of the training of a model: plans it, keeps its state, and takes steps.
///
/// The constructor plans and proves but takes no memory for the model, so a run can be shown, or
/// refused, before that. Then call allocate(), initialize() or restore(), and step(): in another
/// order they throw Error, each rank by itself. All methods are collective over the mesh, with the
/// same arguments on all ranks, unless said otherwise.
class Trainer {
 public:
  /// `mesh` must outlive it. Throws CollectiveError where ranks have different settings, parameters
  /// or plans, where a setting is invalid, where there is no such plan, where the model was made
  /// for leaves of another size than settings say, where a rule of optimizer.parameters matches
  /// none of its parameters, and where units exchange activations with ranks that do not share
  /// their samples or parameters.
  Trainer(std::unique_ptr<const model::Model> model, const TrainerSettings& settings,
          mesh::Mesh& mesh);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // ---- plan

  const model::Model& model() const { return *model_; }
  const runtime::Program& program(plan::Purpose purpose) const { return programs_.of(purpose); }
  runtime::Streams streams() const { return settings_.streams; }
  const TrainerSettings& settings() const { return settings_; }
  /// What plans are made by: it follows from the settings, the model and the mesh.
  const plan::Policy& policy() const { return policy_; }
  /// Why ranks of a node communicate by MPI although they were to map each other's memory; else
  /// empty. See plan::NodeWindows.
  const std::string& why_no_windows() const { return why_no_windows_; }
  /// Floating-point operations of a step on each rank (in a pipeline the mean over stages), as
  /// counted for MFU: forward, and two products for each of its products in backward, without
  /// recomputation, without gradients of frozen matrices, and without backward before the first
  /// trained unit.
  double model_flops() const;
  /// Submissions of this rank to its device in a step of training; see count_submissions.
  std::optional<Submissions> submissions() const {
    return count_submissions(programs_.train, layout_, settings_);
  }
  /// Bytes of the arenas that all programs share: all arrays of this rank. What MPI, Kokkos and
  /// libraries allocate comes on top: see device_memory().
  std::int64_t planned_peak_bytes() const;
  /// Throws CollectiveError where the arenas of a rank, on its device or, without one, on the host,
  /// are larger than `bytes`; 0: any are allowed.
  void require_within(std::int64_t bytes);

  /// Throws CollectiveError with the arithmetic where the ranks of a host need more memory than it
  /// or its device has left.
  void require_memory();

  // ---- training

  /// Takes the arenas, makes the communicators of the streams, and launches all kernels that a
  /// device has to load. To be called once; throws Error otherwise.
  void allocate();

  /// Before allocate(): products.json of the run that is resumed, whose algorithms are taken where
  /// they are of this library and device, unless settings name a file. It need not exist; rank 0
  /// reads it.
  void take_products_of(std::string file) { earlier_products_ = std::move(file); }
  /// By which algorithms a device multiplies; known after allocate(). Not collective.
  const ProductAlgorithms& products() const { return products_; }

  /// Sets initial weights and moments of zero, unit by unit, directly in shards. Weights are
  /// random, or each rank reads its own from `weights`. Throws CollectiveError where a rank can't
  /// read.
  void initialize(checkpoint::ParameterSource* weights = nullptr);

  /// Takes step `step`, on the next global_batch_size samples. The first is 1, or the one after the
  /// checkpoint's, then one after the other; throws Error otherwise. A failed step may be tried
  /// again.
  ///
  /// Throws CollectiveError where a loss or a gradient is not finite, or data can't be read, or has
  /// samples of another size than the model reads, or targets that do not count where all have to
  /// (LossTerms::needs_all); no parameter has changed then (optimistic updates are undone), unless
  /// updates overlap with backward (Policy::early_updates): see is_intact(). The unit with the
  /// nonfinite gradient is found by running the step once more, which takes its time and changes
  /// nothing.
  StepResult step(data::SampleSource& samples, std::int64_t step);

  /// False from when a step has failed after some of the parameters were updated, or an audit has
  /// ended it, as the parameters may be wrong since an earlier step; until initialize() or
  /// restore(). Also false while averages are in place of parameters. Such a state is not to be
  /// saved.
  bool is_intact() const { return context_.is_intact; }

  /// Returns the mean loss over `batches` global batches, at least 1, from sample 0 (of tokens: in
  /// nats per token): over all of their terms that count, 0 if none does. Throws CollectiveError as
  /// step() does.
  double evaluate(data::SampleSource& samples, std::int64_t batches);

  /// Returns the mean loss over samples 0 to `count` - 1, at least one, and no more than a global
  /// batch: each counts once. `samples` must also have the rest of the batch, which is computed but
  /// does not count. Losses have to be in the order of samples, equally many each, as those of a
  /// Decoder, unless `count` is a multiple of micro_batch_size; throws CollectiveError if they are
  /// not.
  double evaluate_samples(data::SampleSource& samples, std::int64_t count);

  /// Returns the losses of the global batch that begins with sample `first`, on all ranks: leaf by
  /// leaf, in the order in which the model has those of a leaf; where the target does not count 0.
  /// With LossTerms::tells_margins, the margins of all follow; of pairs, the other arrays of
  /// math::PairOutput. Further losses are left out. Throws CollectiveError as step() does.
  std::vector<float> losses(data::SampleSource& samples, std::uint64_t first);

  /// Calls work() while the averages over steps, which TrainerSettings::ema keeps, are in place of
  /// the parameters, so that it evaluates or visits these; then parameters have their bits again,
  /// also where work() throws CollectiveError. Throws Error where there are none. Collective.
  void with_averages(const std::function<void()>& work);

  /// How many terms of the loss the last evaluation's mean is over. Not collective.
  std::int64_t evaluated_terms() const { return evaluated_terms_; }
  /// What the last evaluation tells of pairs, where losses are those of pairs. Not collective.
  const std::optional<PairMeans>& evaluated_pairs() const { return evaluated_pairs_; }

  /// Calls visit(unit, trained, frozen) on every rank of the unit's stage, unit by unit, with views
  /// of the unit's two flat parameters.
  using Visitor = train::Visitor;
  void visit_parameters(const Visitor& visit);
  /// The training plans of all stages, without actions; they tell which units each has.
  const std::vector<plan::StepPlan>& stages() const { return programs_.stages; }
  /// The elements of a unit's parameter, row by row, from a visitor's arguments. Not collective.
  std::vector<float> values_of(int unit, const model::Parameter& parameter,
                               View<const float*> trained, View<const float*> frozen) const;
  /// Returns the same elements without a copy, if they are contiguous in this order; else an empty
  /// view.
  View<const float*> view_of(int unit, const model::Parameter& parameter,
                             View<const float*> trained, View<const float*> frozen) const;

  /// Hash of parameters and optimizer state by global index: the same for every layout. Throws
  /// CollectiveError where replicas differ.
  std::uint64_t state_digest();

  // ---- checkpoints

  /// Returns which rank saves what; the same on every rank. Not collective.
  checkpoint::ShardMap shard_map() const;
  /// Returns the state besides arrays that is saved, of the last step that succeeded. Not
  /// collective.
  checkpoint::Progress progress() const;
  /// The last steps whose updates were skipped, by this process and those before it. Not
  /// collective.
  const SkippedSteps& skipped() const { return guard_.skipped(); }

  /// Throws Error where nothing has set the state: before initialize() and restore(). `call` names
  /// the caller: "Trainer::step". Not collective.
  void require_state(const char* call) const;
  /// Whether the plan has a staging copy of the data that this rank saves.
  bool has_staging() const { return programs_.train.plan.checkpoint >= 0; }
  /// See ModelState.
  void stage() { state_->stage(); }
  const void* saved(std::size_t slice, std::int64_t first, std::int64_t bytes, bool staged) {
    return state_->saved(slice, first, bytes, staged);
  }

  /// Throws Error where a checkpoint is not of this model, or lacks state that this optimizer
  /// needs. Not collective.
  void require_fit(const checkpoint::Manifest& manifest) const;
  /// Takes state and progress from a checkpoint that fits: each rank reads its part. Throws
  /// CollectiveError where a rank can't read it; the arrays are undefined then.
  void restore(checkpoint::CheckpointReader& checkpoint);

  // ---- measurements and tests

  /// Device memory besides planned_peak_bytes(), so far; known after allocate(). Not collective.
  DeviceMemoryUse device_memory() const;
  /// What of a training step is submitted to the device as graphs; zeros before allocate().
  runtime::GraphCount graphs() const;

  /// Measures the best rate of matrix products that all ranks reach at once, mean over ranks, in
  /// floating-point operations per second per rank. Takes about `seconds`. Overwrites the arena:
  /// call it between allocate() and initialize(), or when the state is not needed any more.
  double measure_peak_flops(double seconds = 0.25);
  /// Bytes that this rank has sent over a span of ranks since allocate(). Not collective.
  std::int64_t bytes_sent(const plan::Span& span) const { return channels_->bytes_sent(span); }
  /// Bytes that were planned and not sent, in exchanges for which no rank had any data
  /// (plan::Exchange::may_be_empty). Not collective.
  std::int64_t bytes_left_out(const plan::Span& span) const {
    return channels_->bytes_left_out(span);
  }
  /// When each action of the last step, evaluation or export ran; of a step that ran twice, the
  /// second time. Not collective.
  const std::vector<runtime::ActionTime>& action_times() const { return executor_->times(); }
  /// The program of which action_times() are. Not collective.
  const runtime::Program& timed_program() const { return *context_.program; }
  /// Sets a function that is called before and after every action of the compute stream; of the
  /// other streams too, if all run in plan order.
  void observe(runtime::Executor::Observer observer) { executor_->observe(std::move(observer)); }
  /// Called after every run of a program that did not fail; action_times() has the times of its
  /// actions.
  using RunObserver = std::function<void(const runtime::Program&)>;
  void observe_runs(RunObserver observer) { run_observer_ = std::move(observer); }
  /// Changes the order or the time of actions from now on; ranks need the same seed in plan order.
  void perturb(runtime::Perturbation perturbation) { executor_->perturb(perturbation); }
  /// Flips a bit in an array of this rank, as the fault says: see BitFlip. After allocate(). Throws
  /// Error where no action of the fault's step (with `recurs`, or of a later one) on this rank has
  /// the fault's name, or none of these has such an array. Not collective.
  void flip(const watch::Fault& fault);
  /// Whether a step is audited. Not collective.
  bool is_audited(std::int64_t step) const;
  /// Which bit flip() has flipped; empty if none yet. Not collective.
  std::string flipped() const { return flip_ == nullptr ? "" : flip_->flipped(); }
  /// Makes collectives of steps slower, like a slower network; see comm::Communicator.
  void slow_down(double seconds_per_byte) { channels_->slow_down(seconds_per_byte); }
  /// For tests: takes `step` as the next one.
  void set_next_step(std::int64_t step) { steps_done_ = step - 1; }
  /// For tests: in the next step, makes one element of a unit's gradient infinite, which `rank`
  /// computes from its micro-batch 0.
  void inject_nonfinite(int unit, int rank) {
    next_nonfinite_ = mesh_.world().rank() == rank ? unit : -1;
  }

 private:
  /// The step and samples at which this process began to train.
  struct Start {
    std::int64_t step = 1;
    std::int64_t samples = 0;  ///< samples that the steps before took
  };

  void capture_graphs();
  void require_allocated(const char* call) const;
  void require_same_plan();
  void run(const runtime::Program& program);
  void begin_step(data::SampleSource& samples, std::int64_t step);
  void diagnose();
  std::string describe_findings();
  void note_audit();
  void require_repeatable(std::int64_t step, int attempt);
  /// The number of samples that steps before `step` take.
  std::int64_t samples_before(std::int64_t step) const {
    return start_.samples + (step - start_.step) * settings_.global_batch_size;
  }

  std::string why_no_windows_;
  const StepSettings settings_;
  mesh::Mesh& mesh_;
  std::unique_ptr<const model::Model> model_;
  const plan::Policy policy_;
  plan::ModelDescription description_;
  Programs programs_;
  ShardLayout layout_;
  std::vector<RankLocation> rank_locations_;  // one per rank of the world
  StepGuard guard_;
  StepContext context_;
  Start start_;
  std::int64_t steps_done_ = 0;    // the last step that succeeded
  std::int64_t audited_step_ = 0;  // the last step whose audit has passed; 0: none
  std::int64_t evaluated_terms_ = 0;
  std::optional<PairMeans> evaluated_pairs_;
  int next_nonfinite_ = -1;
  DeviceMemoryUse device_memory_;
  std::string earlier_products_;
  ProductAlgorithms products_;
  std::unique_ptr<ModelState> state_;
  std::unique_ptr<Channels> channels_;
  std::unique_ptr<StepHandlers> handlers_;
  std::unique_ptr<BitFlip> flip_;
  std::unique_ptr<runtime::Executor> executor_;
  RunObserver run_observer_;
};

}  // namespace ostrakon::train
