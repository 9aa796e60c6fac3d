// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostrakon/checkpoint/manifest.hpp>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/checkpoint/shard_map.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/data/dataset.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/model/any_decoder.hpp>
#include <ostrakon/runtime/arena.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

/// What a step leaves behind, the same bits on every rank and every layout.
struct StepResult {
  double loss = 0.0;       ///< nats per token, mean over the global batch
  double grad_norm = 0.0;  ///< before clipping
  double learning_rate = 0.0;
  double loss_scale = 1.0;
  std::string skipped;  ///< why nothing was updated; empty where it was
};

/// The decoder of a run: in the deck's numbers and leaf, with what its rules freeze. Throws Error
/// where the model's settings don't fit together.
std::unique_ptr<model::AnyDecoder> make_decoder(const config::Settings& settings);

/// The decoder as plans of training see it: its description with the step's sums, and the matrices
/// that the optimizer updates as a whole.
plan::ModelDescription describe(const model::AnyDecoder& decoder,
                                const optim::OptimizerSettings& optimizer);

/// One rank's part of a training run: the plans, the arenas, and what each action of a plan does.
///
/// The constructor plans and proves and allocates nothing, so a run can be shown, and refused,
/// before it takes memory. All methods are collective over the mesh.
class Trainer {
 public:
  Trainer(const config::Settings& settings, mesh::Mesh& mesh);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  const model::AnyDecoder& decoder() const { return *decoder_; }
  const runtime::Program& program(plan::Purpose purpose) const;
  /// Floating-point operations that a step of the model takes on each rank, whatever the plan
  /// computes twice: those of forward, and two products for each of its products in backward. But
  /// none for the gradient of a frozen matrix, nor before the first unit that is trained. What MFU
  /// counts.
  double model_flops() const;
  /// Of the arenas that all programs share: all that a rank will use.
  std::int64_t planned_peak_bytes() const;
  runtime::Streams streams() const { return streams_; }
  /// Bytes that this rank has sent over a span of ranks since allocate().
  std::int64_t bytes_sent(const plan::Span& span) const;

  /// Throws AgreedError with the arithmetic where the ranks of a host need more than it or its
  /// device has left, and for devices on more than one rank, which have no communication yet.
  void require_memory();
  /// Throws AgreedError where ranks have made different plans.
  void require_same_plan();

  /// Takes the arenas, and makes the communicators of the streams.
  void allocate();

  /// Best rate of matrix products that all ranks reach at once, mean over ranks, in floating-point
  /// operations per second of a rank. Takes about `seconds`. Overwrites the arena: call between
  /// allocate() and initialize(), or when its contents are needed no more.
  double measure_peak_flops(double seconds = 0.25);

  /// Initial weights and moments of zero, unit by unit, straight into shards. Weights are random,
  /// or read from `weights`, by each rank what it has. Throws AgreedError where a rank can't read.
  void initialize(checkpoint::ParameterSource* weights = nullptr);

  /// Step `step`, from 1 on or from the first after that of the checkpoint, on the next
  /// global_batch_size samples.
  ///
  /// Throws AgreedError where a loss or a gradient is not finite, or data can't be read; no
  /// parameter has changed then, but where updates run beside backward (Policy::early_updates): see
  /// is_intact(). Whose gradient it was is found by running the step once more, which takes its
  /// time and changes nothing.
  StepResult step(data::Dataset& dataset, std::int64_t step);

  /// False once a step has failed after some of the parameters were updated.
  bool is_intact() const { return intact_; }

  /// Mean loss over `batches` global batches from sample 0, in nats per token.
  double evaluate(data::Dataset& dataset, std::int64_t batches);

  /// Hash of parameters and optimizer state by global index: the same for every layout. Throws
  /// AgreedError where replicas differ.
  std::uint64_t state_digest();

  // ---- checkpoints

  /// Which rank saves what; the same on every rank.
  checkpoint::ShardMap shard_map();
  /// What is saved beside arrays.
  checkpoint::Progress progress() const;

  /// Whether the plan has room for a copy of what this rank saves.
  bool has_staging() const { return train_.plan.checkpoint >= 0; }
  /// Copies what this rank saves to that room. Not collective.
  void stage();
  /// `bytes` bytes of slice `slice` of this rank's shard_map(), from its byte `first` on: in the
  /// copy (`staged`), or as they are now. On devices what is not staged is in a buffer, until the
  /// next call. Not collective; a thread may call it for staged ones while steps run.
  const void* saved(std::size_t slice, std::int64_t first, std::int64_t bytes, bool staged);

  /// Throws Error where a checkpoint is not of this model, or lacks state that this optimizer
  /// needs. Not collective.
  void require_fit(const checkpoint::Manifest& manifest) const;
  /// Takes state and progress from a checkpoint that fits: each rank what it has. Throws
  /// AgreedError where a rank can't read it; what is in the arrays is undefined then.
  void restore(checkpoint::CheckpointReader& checkpoint);

  /// Calls visit(unit, trained, frozen) on every rank, unit by unit, with the unit's two flat
  /// parameters in device memory.
  using Visitor = std::function<void(int unit, const float* trained, const float* frozen)>;
  void visit_parameters(const Visitor& visit);

  /// Told of every action of the compute stream before and after it runs; of the others too, where
  /// all run in plan order.
  void observe(runtime::Executor::Observer observer) { executor_->observe(std::move(observer)); }

  /// Upsets the order or the time of actions from now on; ranks need the same seed in plan order.
  void shake(runtime::Shake shake) { executor_->shake(shake); }
  /// Makes all gathers (or all reductions) slower, as if by the network; see comm::Communicator.
  void slow_down(plan::Stream stream, double seconds_per_byte);
  /// In the next step, makes one element of a unit's gradient infinite, which `rank` computes from
  /// its micro-batch 0: for tests.
  void spoil_gradient(int unit, int rank) {
    next_spoilt_ = mesh_.world().rank() == rank ? unit : -1;
  }
  /// When each action of the last step, evaluation or export ran; of a step that ran twice, the
  /// second time.
  const std::vector<runtime::ActionTime>& action_times() const { return executor_->times(); }

 private:
  /// A stretch of a flat parameter within one parameter, as a rank has it in some part.
  struct Piece {
    const model::Parameter* parameter;
    std::int64_t first;   ///< element within the parameter
    std::int64_t offset;  ///< element within the part
    std::int64_t count;
  };
  /// A stretch of one kind of state, within one parameter, in the buffer that has it.
  struct StatePiece {
    const model::Parameter* parameter;
    std::int64_t first;   ///< element within the parameter
    std::int64_t offset;  ///< element within the buffer
    std::int64_t count;
  };
  /// What this rank saves of a parameter.
  struct SavedSlice {
    int buffer;
    std::int64_t begin;  ///< in the buffer, in bytes
    std::int64_t bytes;
    std::int64_t staged;  ///< begin in the copy, in bytes
  };
  /// Where a rank stands.
  struct RankPlace {
    int rank;  ///< its number in plans
    int node;
  };
  /// A stretch of what this rank updates in one go.
  struct Stretch {
    const model::Parameter* parameter;  ///< that it begins in
    optim::OptimizerKind rule;
    optim::Treatment treatment;
    std::int64_t offset;  ///< element within what this rank updates
    std::int64_t count;
    std::int64_t second;         ///< where it begins in the second moments
    std::uint64_t rounding_key;  ///< of 16-bit moments: one parameter's
    std::int64_t first;          ///< element within the parameter
  };
  /// Elements [begin, end) of a trained flat parameter.
  struct Range {
    std::int64_t begin, end;
  };
  /// A unit whose summed gradient is not finite in the shard of this rank; of several the last one.
  struct SpoiltSum {
    int unit = -1;  ///< none
    std::int64_t elements = 0;
  };
  /// Where on this rank the gradient of a micro-batch is not finite.
  struct Origin {
    int distance;  ///< from the loss: twice the units in between, one more for a unit that it is
                   ///< tied to
    std::int64_t micro_batch;
  };

  /// The groups of ranks as one stream talks in them, by their spans. Streams may talk at the same
  /// time, so each has communicators of its own.
  struct Group {
    plan::Span span;
    std::unique_ptr<comm::Communicator> communicator;
  };
  using Channel = std::vector<Group>;
  /// Which of the buffers of a unit that live from step to step.
  using StateBuffer = int plan::PlannedUnit::*;

  // ---- trainer.cpp: plans, arenas, groups, and what gathers and computes

  std::int64_t arena_bytes(plan::Space space) const;
  comm::Communicator& axis_group(plan::Axis axis) const {
    return axis == plan::Axis::replicate ? mesh_.replicate_group() : mesh_.shard_group();
  }
  Channel make_channel(plan::Stream stream);
  Group make_group(const plan::Span& span) const;
  comm::Communicator& communicator(plan::Stream stream, const plan::Span& span) const;
  comm::Communicator& communicator(const plan::Action& action) const {
    return communicator(action.stream, action.span);
  }
  std::vector<Piece> pieces(int flat, const plan::Spans& divided) const;
  std::vector<Piece> pieces_of(int rank, int flat, const plan::Spans& divided) const;
  std::vector<Range> gaps(int unit) const;
  Number number_of(const plan::Action& action) const;
  void set_handlers();
  void load(const runtime::ActionBuffers& buffers);
  void forward(const runtime::ActionBuffers& buffers);
  void backward(const runtime::ActionBuffers& buffers);
  void gather(const runtime::ActionBuffers& buffers);
  void keep(const runtime::ActionBuffers& buffers);
  void reduce_scatter(const runtime::ActionBuffers& buffers);
  void copy(const runtime::ActionBuffers& buffers);
  void show(const runtime::ActionBuffers& buffers);
  void clear_gaps(int unit, float* gradients);
  template <class A, class B>
  void convert(const plan::Action& action, const A* from, B* to, std::int64_t count);
  template <class T>
  double measure_own_peak_flops(double seconds);

  /// Where this rank's part of a flat parameter begins in the buffer in `role`; null where the
  /// action has none.
  template <class T>
  T* find(const runtime::ActionBuffers& buffers, plan::Role role, int flat,
          const plan::Spans& divided) const {
    const int buffer = buffers.action.buffer(role);
    if (buffer < 0) return nullptr;
    return buffers.at<T>(buffer) +
           running_->plan.offset_in(running_->plan.buffers[buffer], flat, divided, rank_);
  }
  /// The same of what the action's unit trains.
  template <class T>
  T* find(const runtime::ActionBuffers& buffers, plan::Role role,
          const plan::Spans& divided) const {
    return find<T>(buffers, role, running_->plan.trained(buffers.action.unit).first, divided);
  }
  /// What the array that is gathered in `role` is divided over; and its parts over the action's
  /// span.
  plan::Spans gathered_in(const runtime::ActionBuffers& buffers, plan::Role role) const;
  plan::Spans parts_of(const runtime::ActionBuffers& buffers, plan::Role role) const;

  // ---- trainer_update.cpp: from gradients to updates

  std::vector<Stretch> stretches(int unit) const;
  std::int64_t whole_matrices_before(int unit, std::int64_t offset) const;
  optim::UpdateStep update_step(const Stretch& stretch) const;
  void begin(const runtime::ActionBuffers& buffers);
  void accumulate(const runtime::ActionBuffers& buffers);
  void norm(const runtime::ActionBuffers& buffers);
  void finish_sums(const runtime::ActionBuffers& buffers);
  void judge(const std::string& bad_loss, bool bad_gradient);
  std::string failure(const std::string& when, const std::string& what, bool of_loss) const;
  std::string what_is_left() const;
  void gather_gradients(const runtime::ActionBuffers& buffers);
  void direction(const runtime::ActionBuffers& buffers);
  void orthogonalize(const runtime::ActionBuffers& buffers);
  void optimize(const runtime::ActionBuffers& buffers);
  void gather_updates(const runtime::ActionBuffers& buffers);
  void inspect(const plan::Action& action, int unit, int distance, const float* gradients);
  std::int64_t count_non_finite(const float* values, std::int64_t count, plan::Space space) const;
  std::string name_origin(const runtime::ActionBuffers& buffers);
  SpoiltSum find_spoilt_sum(const runtime::ActionBuffers& buffers) const;
  std::string name_spoilt_sum(const SpoiltSum& mine);
  bool updates_early() const {
    return settings_.parallel.early_updates &&
           train_.plan.layouts.update.space == plan::Space::host;
  }

  // ---- trainer_state.cpp: what lives from step to step

  /// A buffer that lives from step to step.
  template <class T>
  T* state(int buffer) const {
    const bool on_host = train_.plan.buffers[buffer].space == plan::Space::host;
    return reinterpret_cast<T*>(on_host ? host_arena_->data() + train_.host_memory.offsets[buffer]
                                        : arena_->data() + train_.memory.offsets[buffer]);
  }
  template <class Work>
  void in_chunks(std::int64_t count, const Work& work) const;
  template <class T>
  void store(const float* values, int buffer, std::int64_t first, std::int64_t count);
  template <class T>
  const float* fetch(int buffer, std::int64_t first, std::int64_t count);
  void clear(int buffer);
  void read_values(const std::vector<Piece>& parameters, std::int64_t begin, std::int64_t count,
                   checkpoint::ParameterSource& weights, float* values);
  void initialize(int buffer, Number number, checkpoint::ParameterSource* weights);
  void make_initial_values(const std::vector<Piece>& parameters, std::int64_t begin,
                           std::int64_t count, float* values);
  void restore_working(int unit, checkpoint::CheckpointReader& checkpoint);
  /// A buffer of a unit, or -1.
  int state_buffer(int unit, checkpoint::State state) const {
    return train_.plan.units[unit].*member_of(state);
  }
  static StateBuffer member_of(checkpoint::State state);
  Number number_of(checkpoint::State state) const;
  std::vector<StatePiece> state_pieces(int unit, StateBuffer which,
                                       const plan::Spans& divided) const;
  std::uint64_t digest_of(const char* what, StateBuffer which, Number number,
                          const plan::Spans& counted);
  void require_alike(const char* what, std::uint64_t mine, comm::Communicator& group);

  // ---- trainer_checkpoint.cpp

  std::vector<RankPlace> find_places();
  void note_slices();
  std::vector<checkpoint::Slice> slices_of(int rank) const;
  bool is_host_readable(int buffer) const {
    return memory_is_host_accessible || train_.plan.buffers[buffer].space == plan::Space::host;
  }
  void restore(int unit, checkpoint::State state, checkpoint::CheckpointReader& checkpoint,
               std::vector<checkpoint::Wanted>& wanted);
  bool is_packed(int unit, checkpoint::State state) const;
  void share(int unit, checkpoint::State state);
  void restore(const checkpoint::Progress& progress);

  config::Settings settings_;
  mesh::Mesh& mesh_;
  std::unique_ptr<model::AnyDecoder> decoder_;
  int rank_;  // number in plans, which count along shard groups
  plan::ModelDescription description_;
  runtime::Program train_, evaluate_, export_;
  std::vector<std::vector<Stretch>> stretches_;  // of each unit
  std::vector<std::vector<Range>> gaps_;         // of each unit's trained flat parameter
  std::vector<RankPlace> places_;                // of each rank of the world
  std::vector<SavedSlice> saved_;
  std::vector<const model::Parameter*> table_;  // of a checkpoint's parameters
  std::vector<char> bounce_;                    // of what is saved from, or read for, a device
  Exec exec_;
  runtime::Streams streams_;
  std::map<plan::Stream, Channel> channels_;
  std::unique_ptr<runtime::Arena> arena_, host_arena_;
  std::unique_ptr<runtime::Executor> executor_;
  float* scratch_ = nullptr;  // behind what lives from step to step: device memory
  std::int64_t chunk_ = 0;    // elements that it holds twice

  // Of the step that runs now. Threads of other streams read what was set before the run, or by an
  // action that theirs waits for.
  const runtime::Program* running_ = nullptr;
  data::Dataset* dataset_ = nullptr;
  std::uint64_t first_sample_ = 0;
  std::int64_t step_ = 0;
  std::int64_t updates_ = 0;         // steps that were not left out
  std::int64_t first_step_ = 1;      // of this process
  std::int64_t samples_before_ = 0;  // that the steps before it took
  double gradient_scale_ = 1.0;      ///< of the update: clipping, and the loss scale undone
  bool leaves_out_ = false;          // whether nothing is to be updated
  bool bad_gradient_ = false;        // that no loss scale is to blame for
  bool diagnoses_ = false;           // runs once more, to find where the gradient comes from
  std::optional<Origin> origin_;     // nearest to the loss
  SpoiltSum spoilt_sum_;             // that the host came upon as it summed squares
  std::string diagnosis_;
  int last_loaded_ = -1;  // micro-batch in a step
  bool intact_ = true;
  optim::LossScale loss_scale_;
  std::optional<optim::OutlierFilter> outliers_;
  StepResult result_;
  Visitor visitor_;
  int spoilt_ = -1, next_spoilt_ = -1;  // unit whose gradient is to be made infinite
  std::vector<std::int32_t> sample_;    // one sample
  std::string load_error_;
};

}  // namespace ostrakon::train
