// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
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

/// The decoder as plans of training see it: its description with the step's sums.
plan::ModelDescription describe(const model::AnyDecoder& decoder);

/// How the streams of a run are run on this rank: as the deck says, or where it leaves the choice,
/// on threads if there is something to communicate and every rank has two cores to spare for it.
/// Collective over the mesh, the same on all ranks. Throws AgreedError where threads are asked for
/// and MPI does not allow them.
runtime::Streams choose_streams(const config::Settings& settings, mesh::Mesh& mesh);

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
  /// Floating-point operations that a step of the model takes on each rank: three forwards,
  /// whatever the plan computes twice. What MFU counts.
  double model_flops() const;
  /// Of the arenas that all programs share: all that a rank will use.
  std::int64_t planned_peak_bytes() const;
  runtime::Streams streams() const { return streams_; }
  /// Bytes that this rank has sent in one kind of group since allocate().
  std::int64_t bytes_sent(plan::Group group) const;

  /// Throws AgreedError with the arithmetic where the ranks of a host need more than it has left,
  /// and for devices on more than one rank, which have no communication yet.
  void require_memory();
  /// Throws AgreedError where ranks have made different plans.
  void require_same_plan();

  /// Takes the arenas, and makes the communicators of the streams.
  void allocate();

  /// Best rate of a matrix product on this rank, all ranks at once, in floating-point operations
  /// per second; overwrites the arena: call between allocate() and initialize().
  double measure_peak_flops();

  /// Initial weights and moments of zero, unit by unit, straight into shards.
  void initialize();

  /// Step `step`, from 1, on samples [(step - 1) * global_batch_size, step * global_batch_size).
  /// Throws AgreedError where a loss or a gradient is not finite; no parameter has changed then.
  StepResult step(data::Dataset& dataset, std::int64_t step);

  /// Mean loss over `batches` global batches from sample 0, in nats per token.
  double evaluate(data::Dataset& dataset, std::int64_t batches);

  /// Hash of parameters and optimizer state by global index: the same for every layout. Throws
  /// AgreedError where replicas differ.
  std::uint64_t state_digest();

  /// Calls visit(unit, flat parameter in device memory) on every rank, unit by unit.
  using Visitor = std::function<void(int unit, const float* parameters)>;
  void visit_parameters(const Visitor& visit);

  /// Told of every action of the compute stream before and after it runs; of the others too, where
  /// all run in plan order.
  void observe(runtime::Executor::Observer observer) { executor_->observe(std::move(observer)); }

  /// Upsets the order or the time of actions from now on; ranks need the same seed in plan order.
  void shake(runtime::Shake shake) { executor_->shake(shake); }
  /// Makes all gathers (or all reductions) slower, as if by the network; see comm::Communicator.
  void slow_down(plan::Stream stream, double seconds_per_byte);
  /// In the next step, makes one element of a unit's gradient on one rank infinite: for tests.
  void spoil_gradient(int unit, int rank) { spoilt_ = mesh_.world().rank() == rank ? unit : -1; }
  /// When each action of the last step, evaluation or export ran.
  const std::vector<runtime::ActionTime>& action_times() const { return executor_->times(); }

 private:
  /// A stretch of a unit's flat parameter within one parameter, as a rank stores it.
  struct Piece {
    const model::Parameter* parameter;
    std::int64_t first;   ///< element within the parameter
    std::int64_t offset;  ///< element within this rank's storage
    std::int64_t count;
  };
  /// A stretch of what this rank updates in one go.
  struct Stretch {
    std::int64_t offset;
    std::int64_t count;
    bool decays;
    std::uint64_t rounding_key;  ///< of 16-bit moments: one parameter's
    std::int64_t first;          ///< element within it
  };

  /// The groups as one stream talks in them. Streams may talk at the same time, so each has
  /// communicators of its own.
  struct Channel {
    std::unique_ptr<comm::Communicator> shard, replicate;
    std::map<int, std::unique_ptr<comm::Communicator>> kept;  ///< by their number of ranks
  };

  std::int64_t arena_bytes(plan::Space space) const;
  Channel make_channel(plan::Stream stream);
  std::vector<Piece> pieces(int unit, plan::Part part) const;
  std::vector<Stretch> stretches(int unit) const;
  std::int64_t first_element(int unit, plan::Part part) const;
  comm::Communicator& communicator(const plan::Action& action) const;
  void set_handlers();
  void load(const runtime::ActionBuffers& buffers);
  void forward(const runtime::ActionBuffers& buffers);
  void backward(const runtime::ActionBuffers& buffers);
  void gather(const runtime::ActionBuffers& buffers);
  void keep(const runtime::ActionBuffers& buffers);
  void reduce_scatter(const runtime::ActionBuffers& buffers);
  void accumulate(const runtime::ActionBuffers& buffers);
  void finish_sums(const runtime::ActionBuffers& buffers);
  void optimize(const runtime::ActionBuffers& buffers);
  void gather_updates(const runtime::ActionBuffers& buffers);
  void clear_gaps(int unit, float* gradients);
  void require_alike(const char* what, std::uint64_t mine, comm::Communicator& group);
  /// Numbers of fp16 have few exponents.
  bool scales_loss() const {
    return settings_.precision.gather == Number::fp16 || settings_.parallel.reduce == Number::fp16;
  }
  void write_initial_values(int unit, plan::Part part, float* target);
  std::string name_non_finite_gradient(const runtime::ActionBuffers& buffers);
  template <class A, class B>
  void convert(const plan::Action& action, const A* from, B* to, std::int64_t count);
  template <class T>
  double measure_peak_flops_of();

  /// A buffer of the training plan that is alive now.
  template <class T>
  T* alive(int buffer) const {
    return reinterpret_cast<T*>(arena_->data() + train_.memory.offsets[buffer]);
  }
  std::uint64_t digest_of(const char* what, const std::vector<int>& state, Number number,
                          plan::Part stored, plan::Part counted);

  config::Settings settings_;
  mesh::Mesh& mesh_;
  std::unique_ptr<model::AnyDecoder> decoder_;
  plan::ModelDescription description_;
  runtime::Program train_, evaluate_, export_;
  std::vector<std::vector<Stretch>> stretches_;  // of each unit
  Exec exec_;
  runtime::Streams streams_;
  std::map<plan::Stream, Channel> channels_;
  std::unique_ptr<runtime::Arena> arena_, host_arena_;
  std::unique_ptr<runtime::Executor> executor_;

  // Of the step that runs now.
  const runtime::Program* running_ = nullptr;
  data::Dataset* dataset_ = nullptr;
  std::uint64_t first_sample_ = 0;
  std::int64_t step_ = 0;
  std::int64_t updates_ = 0;     // steps that were not left out
  double gradient_scale_ = 1.0;  ///< of the update: clipping, and the loss scale undone
  optim::LossScale loss_scale_;
  std::optional<optim::OutlierFilter> outliers_;
  StepResult result_;
  Visitor visitor_;
  int spoilt_ = -1;                   // unit whose gradient is to be made infinite
  std::vector<std::int32_t> sample_;  // one sample
  std::string load_error_;
};

}  // namespace ostrakon::train
