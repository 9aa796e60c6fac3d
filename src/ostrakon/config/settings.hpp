// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/base/names.hpp>
#include <ostrakon/checkpoint/file_layout.hpp>
#include <ostrakon/data/data_settings.hpp>
#include <ostrakon/math/kernel_form.hpp>
#include <ostrakon/math/subnormals.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/model/product_settings.hpp>
#include <ostrakon/optim/learning_rate.hpp>
#include <ostrakon/optim/loss_scale.hpp>
#include <ostrakon/optim/optimizer.hpp>
#include <ostrakon/optim/outlier_filter.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <set>
#include <string>

namespace ostrakon::config {

/// The unit of gradient accumulation: the gradients of a leaf are summed before they are added to
/// those of other leaves.
enum class Leaf {
  micro_batch,  ///< all sequences that a rank computes at once
  sequence      ///< each sequence of a micro-batch
};
constexpr Named<Leaf> leaf_names[] = {{Leaf::micro_batch, "micro_batch"},
                                      {Leaf::sequence, "sequence"}};
constexpr const char* name(Leaf leaf) { return name_in(leaf_names, leaf); }

/// What decks and TrainerSettings have in common, besides plan::PolicyChoices. Samples are
/// sequences in a deck.
struct StepChoices {
  std::int64_t steps = 1000;           ///< length of the learning rate schedule
  std::int64_t global_batch_size = 8;  ///< samples in a step
  std::int64_t micro_batch_size = 1;   ///< samples that a rank computes at once
  std::uint64_t seed = 1;              ///< of initial weights and stochastic rounding

  std::int64_t micro_batches() const { return global_batch_size / micro_batch_size; }
};

struct TrainingSettings : StepChoices {
  Leaf leaf = Leaf::micro_batch;
  std::int64_t context_grain = 1;       ///< pieces of each sequence, each a separate leaf
  std::int64_t sum_grain = 0;           ///< as plan::Policy::sum_grain, in leaves as `leaf` says
  std::int64_t sequence_length = 256;   ///< tokens
  std::int64_t validate_every = 0;      ///< steps; 0: never
  std::int64_t validation_batches = 8;  ///< global batches in one validation
  bool validate_ema = false;            ///< also the averages of UpdateChoices::ema
  std::string evaluate;                 ///< questions: a file, or a folder of them; empty: none
  std::int64_t evaluate_every = 0;      ///< steps; 0: never
  double label_smoothing = 0.0;         ///< math::LossForm::smoothing
  double z_loss = 0.0;                  ///< math::LossForm::z_loss
  double dpo_beta = 0.1;                ///< math::pair_losses
  double time_limit_minutes = 0.0;      ///< end the run after this time; 0: no limit
};

struct OutputSettings {
  std::string directory = "output";
  std::int64_t every = 10;        ///< steps between progress lines
  std::int64_t digest_every = 0;  ///< steps between state digests in metrics.jsonl; 0: never
  std::int64_t trace_steps = 0;   ///< steps in trace.json, beginning with the second; 0: none
  std::int64_t rank_times_every =
      50;  ///< steps between times of all ranks in metrics.jsonl; 0: none
};

/// How a rank runs the streams of its plan.
enum class StreamsChoice {
  automatic,      ///< threads where every rank has a core to spare for communication
  in_plan_order,  ///< one action after the other
  threads         ///< a thread for each stream
};
constexpr Named<StreamsChoice> streams_choice_names[] = {{StreamsChoice::in_plan_order, "inline"},
                                                         {StreamsChoice::threads, "threads"},
                                                         {StreamsChoice::automatic, "auto"}};
constexpr const char* name(StreamsChoice choice) { return name_in(streams_choice_names, choice); }

/// How many communicators of NCCL a group of ranks has.
enum class CommunicatorsChoice { per_stream, single };
constexpr Named<CommunicatorsChoice> communicators_choice_names[] = {
    {CommunicatorsChoice::per_stream, "per_stream"}, {CommunicatorsChoice::single, "single"}};
constexpr const char* name(CommunicatorsChoice choice) {
  return name_in(communicators_choice_names, choice);
}

/// The library that moves data in device memory between ranks: automatic, or a comm::TransportKind.
enum class TransportChoice { automatic, nccl, mpi_direct, mpi_staged };
constexpr Named<TransportChoice> transport_choice_names[] = {
    {TransportChoice::automatic, "auto"},
    {TransportChoice::nccl, "nccl"},
    {TransportChoice::mpi_direct, "mpi_direct"},
    {TransportChoice::mpi_staged, "mpi_staged"}};
constexpr const char* name(TransportChoice choice) {
  return name_in(transport_choice_names, choice);
}

/// Whether the work of a compute action is submitted to a device as one graph.
enum class GraphsChoice {
  automatic,  ///< where the device has graphs, and a step's work allows it
  never
};
constexpr Named<GraphsChoice> graphs_choice_names[] = {{GraphsChoice::automatic, "auto"},
                                                       {GraphsChoice::never, "never"}};
constexpr const char* name(GraphsChoice choice) { return name_in(graphs_choice_names, choice); }

/// The implementation of attention on a device.
enum class AttentionChoice {
  automatic,  ///< cuDNN's where it supports a shape with fixed bits, else own kernels
  own,
  cudnn  ///< refused where it does not support the shape
};
constexpr Named<AttentionChoice> attention_choice_names[] = {{AttentionChoice::automatic, "auto"},
                                                             {AttentionChoice::own, "own"},
                                                             {AttentionChoice::cudnn, "cudnn"}};
constexpr const char* name(AttentionChoice choice) {
  return name_in(attention_choice_names, choice);
}

/// The folder that relative paths in a deck start from.
enum class PathsFrom {
  deck,              ///< folder of the deck
  working_directory  ///< folder in which the program is started
};
constexpr Named<PathsFrom> paths_from_names[] = {
    {PathsFrom::deck, "deck"}, {PathsFrom::working_directory, "working_directory"}};
constexpr const char* name(PathsFrom from) { return name_in(paths_from_names, from); }

/// When a run saves its state, and how; see docs/checkpoint-format.md.
struct CheckpointSettings {
  std::int64_t every = 0;  ///< steps; 0: only when asked to, by a signal or the end of wall_time
  std::int64_t keep = 2;   ///< number of checkpoints kept
  std::int64_t keep_every = 0;  ///< checkpoints at multiples of it are kept; 0: none
  checkpoint::Files files = checkpoint::Files::rank;
  bool asynchronous = true;     ///< training continues while a copy is written
  bool verify = false;          ///< read back written files
  double bandwidth = 0.0;       ///< MB/s per rank; 0: no limit
  std::string initial_weights;  ///< a file that checkpoint::open_parameters takes; empty: random
};

/// Selects as many threads for matrix products as Kokkos runs kernels on.
constexpr int automatic_threads = 0;

/// Values of RuntimeSettings::watchdog besides seconds.
constexpr int automatic_watchdog = 0, no_watchdog = -1;

struct RuntimeSettings {
  std::int64_t threads = automatic_threads;  ///< per rank, for matrix products
  double peak_gflops = 0.0;                  ///< of a rank, for MFU; 0: measured at start
  double wall_time = 0.0;                    ///< seconds after which the batch job ends; 0: never
  StreamsChoice streams = StreamsChoice::automatic;
  TransportChoice transport = TransportChoice::automatic;
  double collective_timeout = 600.0;  ///< seconds
  CommunicatorsChoice communicators = CommunicatorsChoice::per_stream;
  Subnormals subnormals = math::default_subnormals;
  PathsFrom paths_from = PathsFrom::deck;
  GraphsChoice graphs = GraphsChoice::automatic;
  AttentionChoice attention = AttentionChoice::automatic;
  bool preflight = false;                      ///< check ranks and links before step 1
  std::int64_t audit = 0;                      ///< steps between audits; 0: none
  std::int64_t watchdog = automatic_watchdog;  ///< limit in seconds, or a constant from above
  std::string inject;  ///< a fault on purpose, see watch::parse_fault; empty: none
  /// Not a key: a file of pinned algorithms of products (--products). Empty: chosen by timing.
  std::string products_file;
};

/// The dtypes in which parameters are gathered and computed; masters are fp32, and gradients are
/// sent in the dtype of Policy.
struct PrecisionSettings {
  DType gather = DType::fp32;
  std::optional<DType> activations;     ///< none: as gather
  model::ProductSettings products;      ///< of the linear layers of blocks
  optim::LossScaleSettings loss_scale;  ///< for fp16
};

/// How a step is handled whose loss or gradient is not finite, or an outlier.
struct StabilitySettings {
  bool skip_non_finite = false;       ///< skip the update instead of stopping
  double outlier_threshold = 0.0;     ///< standard deviations above the mean from which a step is
                                      ///< skipped; 0: none is
  std::int64_t outlier_window = 128;  ///< number of steps, see optim::OutlierSettings
};

/// How parameters are updated: decks and TrainerSettings have this in common, too.
struct UpdateChoices {
  optim::OptimizerSettings optimizer;
  /// Decay of the exponential moving average of parameters (EMA); 0: there is none.
  double ema = 0.0;
  optim::LearningRateSchedule schedule;
  StabilitySettings stability;
  /// Whether updates on the host may begin before the gradients of all units are known, where
  /// policy_of allows it.
  bool early_updates = true;
  bool pinned_host_memory = true;  ///< if there is a device
};

/// The kind of processor that a rank computes on.
struct Processor {
  math::KernelForm kernels = math::kernel_form;
  bool is_device = has_device;  ///< whether it has memory of its own
};

/// Returns the processor for a form of kernels: the host, or a device.
constexpr Processor processor_with(math::KernelForm kernels) {
  return {kernels, math::is_of_device(kernels)};
}

/// What a user chooses in a deck, validated; policy_of and train::resolve say what follows. Paths
/// are absolute or relative to the working directory.
struct Settings : UpdateChoices {
  model::DecoderSettings model;
  /// A folder of Hugging Face's whose config.json describes the model. Empty after reading: `model`
  /// says all of it.
  std::string model_from;
  std::string model_folder;  ///< what model_from was before reading
  std::string lora_initial;  ///< PEFT's folder with the adapters to begin with; empty: new ones
  data::DataSettings data;
  TrainingSettings training;
  plan::PolicyChoices parallel;
  std::int64_t context = 1;  ///< neighbouring ranks that share each sequence
  std::int64_t tensor = 1;   ///< neighbouring ranks that divide each unit and compute it together
  std::int64_t tensor_grain = 1;   ///< pieces of each unit that are summed by one tree
  std::int64_t tensor_chunks = 1;  ///< runs of rows that tensor ranks exchange one by one
  std::int64_t pipeline = 1;       ///< stages
  std::int64_t expert = 1;         ///< neighbouring ranks that share the experts of each block
  double expert_capacity = 1.25;   ///< model::LeafShape::expert_capacity
  std::int64_t ranks_per_node = 0;
  int shard_group = mesh::world_group;  ///< ranks per model copy, or a constant of mesh.hpp
  PrecisionSettings precision;
  model::Recompute recompute;  ///< parts of blocks to recompute
  /// Whether what blocks recompute is chosen by the memory that there is: `recompute` and
  /// parallel.activation_checkpointing are then results.
  bool chooses_recompute = false;
  /// The most bytes that a rank's arenas may take, of its device or, where it computes on the host,
  /// of the host; 0: what is free.
  std::int64_t memory_limit = 0;
  CheckpointSettings checkpoint;
  OutputSettings output;
  RuntimeSettings runtime;
  /// The number of leaves of a step: micro-batches, or the parts of them that context ranks have.
  std::int64_t leaves() const { return training.micro_batches() * context; }

  /// Not a key: this build's processor, unless a plan is for another machine.
  Processor processor;

  std::string choose;  ///< machine file to choose settings for; empty: no choice

  /// Origins of paths, keyed by deck key; see path_origin.
  std::map<std::string, std::string> path_origins;
  /// Keys that the deck or --set names: "parallel.sharding".
  std::set<std::string> given;
};

/// Returns training.sum_grain in micro-batches.
std::int64_t micro_batch_grain(const TrainingSettings& training);

/// Whether experts are separate units after their blocks; see model::LeafShape.
bool has_expert_units(const Settings& settings);

/// Whether the loss is scaled: if fp16 is computed with or sent, as small gradients underflow in
/// its small exponent range.
constexpr bool scales_loss(DType compute, DType reduce) {
  return compute == DType::fp16 || reduce == DType::fp16;
}

/// Whether a copy of what is saved is written while training continues.
bool saves_in_background(const CheckpointSettings& checkpoint);

/// What a policy follows from besides choices, of a deck or of a Trainer and its model.
struct PolicyFacts {
  DType compute = DType::fp32;
  std::int64_t micro_batches = 1;      ///< of a step, on all ranks
  std::int64_t micro_batch_grain = 0;  ///< as plan::Policy::sum_grain, in micro-batches
  std::int64_t context_ranks = 1, tensor_ranks = 1, expert_ranks = 1, stages = 1;
  bool checkpoint_staging = false;
  math::KernelForm kernels = math::kernel_form;  ///< that ranks compute with
};

/// Returns the policy that follows on any ranks: without shard_group and ranks_per_node.
plan::Policy policy_of(const plan::PolicyChoices& choices, const UpdateChoices& updates,
                       const PolicyFacts& facts);
plan::Policy policy_of(const Settings& settings);

}  // namespace ostrakon::config
