// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/base/names.hpp>
#include <ostrakon/checkpoint/file_layout.hpp>
#include <ostrakon/data/dataset.hpp>
#include <ostrakon/math/kernel_form.hpp>
#include <ostrakon/math/subnormals.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/optim/learning_rate.hpp>
#include <ostrakon/optim/loss_scale.hpp>
#include <ostrakon/optim/optimizer.hpp>
#include <ostrakon/optim/outlier_filter.hpp>
#include <ostrakon/plan/description.hpp>
#include <ostrakon/plan/policy.hpp>
#include <set>
#include <string>

namespace ostrakon::config {

/// A leaf is what has its gradients summed by itself before they are summed with others.
enum class Leaf {
  micro_batch,  ///< all that a rank computes at once
  sequence      ///< each of its sequences
};
constexpr Named<Leaf> leaf_names[] = {{Leaf::micro_batch, "micro_batch"},
                                      {Leaf::sequence, "sequence"}};
constexpr const char* name(Leaf leaf) { return name_in(leaf_names, leaf); }

struct TrainingSettings {
  std::int64_t steps = 1000;
  std::int64_t global_batch_size = 8;  ///< sequences in a step
  std::int64_t micro_batch_size = 1;   ///< sequences that a rank computes at once
  Leaf leaf = Leaf::micro_batch;
  std::int64_t context_grain = 1;      ///< pieces of each sequence, each a leaf of its own
  std::int64_t sum_grain = 0;          ///< as plan::Policy::sum_grain
  std::int64_t sequence_length = 256;  ///< tokens
  std::uint64_t seed = 1;
  std::int64_t validate_every = 0;      ///< steps; 0: never
  std::int64_t validation_batches = 8;  ///< global batches in one validation
  double time_limit_minutes = 0.0;      ///< end the run after this time; 0: no limit

  std::int64_t micro_batches() const { return global_batch_size / micro_batch_size; }
};

struct OutputSettings {
  std::string directory = "output";
  std::int64_t every = 10;        ///< steps between progress lines
  std::int64_t digest_every = 0;  ///< steps between state digests in metrics.jsonl; 0: never
  std::int64_t trace_steps = 0;   ///< steps in trace.json, beginning with the second; 0: none
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

/// What moves data in device memory between ranks; comm::TransportKind, or a choice.
enum class TransportChoice { automatic, nccl, mpi_direct, mpi_staged };
constexpr Named<TransportChoice> transport_choice_names[] = {
    {TransportChoice::automatic, "auto"},
    {TransportChoice::nccl, "nccl"},
    {TransportChoice::mpi_direct, "mpi_direct"},
    {TransportChoice::mpi_staged, "mpi_staged"}};
constexpr const char* name(TransportChoice choice) {
  return name_in(transport_choice_names, choice);
}

/// Names the folder at which relative paths in a deck begin.
enum class PathsFrom {
  deck,              ///< the deck's own
  working_directory  ///< where the program is started
};
constexpr Named<PathsFrom> paths_from_names[] = {
    {PathsFrom::deck, "deck"}, {PathsFrom::working_directory, "working_directory"}};
constexpr const char* name(PathsFrom from) { return name_in(paths_from_names, from); }

/// When a run saves its state, and how; see docs/checkpoint-format.md.
struct CheckpointSettings {
  std::int64_t every = 0;  ///< steps; 0: only when asked to, by a signal or the end of wall_time
  std::int64_t keep = 2;   ///< of those saved last
  std::int64_t keep_every = 0;  ///< steps of which multiples are kept for good; 0: none
  checkpoint::Files files = checkpoint::Files::rank;
  bool asynchronous = true;     ///< training continues while a copy is written
  bool verify = false;          ///< read back what was written
  double bandwidth = 0.0;       ///< MB/s of a rank at most; 0: no limit
  std::string initial_weights;  ///< a file that checkpoint::open_parameters takes; empty: random
};

/// Stands for as many threads in matrix products as Kokkos runs kernels on.
constexpr int automatic_threads = 0;

struct RuntimeSettings {
  std::int64_t threads = automatic_threads;  ///< per rank, for matrix products
  double peak_gflops = 0.0;                  ///< of one rank, for MFU; 0: measured at start
  double wall_time = 0.0;  ///< seconds after which the job ends, whatever it does; 0: never
  StreamsChoice streams = StreamsChoice::automatic;
  TransportChoice transport = TransportChoice::automatic;
  double collective_timeout = 600.0;  ///< seconds
  CommunicatorsChoice communicators = CommunicatorsChoice::per_stream;
  Subnormals subnormals = math::default_subnormals;
  PathsFrom paths_from = PathsFrom::deck;
};

/// The dtypes in which parameters are gathered and computed with; masters are fp32, and gradients
/// are sent as Policy says.
struct PrecisionSettings {
  DType gather = DType::fp32;
  std::optional<DType> activations;     ///< none: as gather, the one that it may be
  optim::LossScaleSettings loss_scale;  ///< of fp16
};

/// The handling of a step whose loss or gradient is not finite, or an outlier.
struct StabilitySettings {
  bool skip_non_finite = false;    ///< skip the update instead of stopping
  double outlier_threshold = 0.0;  ///< deviations from which a step is skipped; 0: none is
  std::int64_t outlier_window = 128;
};

/// What a rank computes on.
struct Processor {
  math::KernelForm kernels = math::kernel_form;
  bool is_device = has_device;  ///< which has memory of its own
};

/// What kernels of this form run on: a host's on the host, those of devices on a device.
constexpr Processor processor_with(math::KernelForm kernels) {
  return {kernels, math::is_of_device(kernels)};
}

/// A deck, validated. Paths are absolute or relative to the working directory.
struct Settings {
  model::DecoderSettings model;
  data::DataSettings data;
  TrainingSettings training;
  plan::Policy parallel;     ///< complete(), but for shard_group, which takes the mesh
  std::int64_t context = 1;  ///< neighbouring ranks that share each sequence
  std::int64_t tensor = 1;   ///< neighbouring ranks that divide each unit and compute it together
  std::int64_t tensor_grain = 1;   ///< pieces of it that are summed by one tree
  std::int64_t tensor_chunks = 1;  ///< runs of rows that they exchange one after the other
  std::int64_t pipeline = 1;       ///< stages
  std::int64_t expert = 1;         ///< neighbouring ranks that share the experts of each block
  double expert_capacity = 1.25;   ///< model::LeafShape::expert_capacity
  std::int64_t ranks_per_node = 0;
  int shard_group = mesh::world_group;  ///< ranks that share one copy, or a name of mesh/mesh.hpp
  PrecisionSettings precision;
  model::Recompute recompute;      ///< within blocks
  bool pinned_host_memory = true;  ///< where there is a device
  bool early_updates = true;       ///< where plan::Policy::early_updates may be
  StabilitySettings stability;
  optim::OptimizerSettings optimizer;
  optim::LearningRateSchedule schedule;
  CheckpointSettings checkpoint;
  OutputSettings output;
  RuntimeSettings runtime;
  /// Counts the leaves of a step: micro-batches, or the parts of them that ranks have.
  std::int64_t leaves() const { return training.micro_batches() * context; }

  /// No key: this build's, unless a plan is for others.
  Processor processor;

  std::string choose;  ///< a machine file for which settings are chosen; empty: none are

  /// By key, see path_origin.
  std::map<std::string, std::string> path_origins;
  /// Keys that the deck or --set names, "parallel.sharding".
  std::set<std::string> given;
};

/// training.sum_grain in micro-batches.
std::int64_t micro_batch_grain(const TrainingSettings& training);

/// Whether experts are units of their own behind their blocks: as model::LeafShape says.
bool has_expert_units(const Settings& settings);

/// fp16 has a small range of exponents: small gradients vanish in it.
bool scales_loss(const Settings& settings);

/// What a plan knows of a model before its units are known: the sizes of its elements.
plan::ModelDescription without_units(const Settings& settings);

/// Sets what of the policy follows from other settings: leaves, sample_ranks, sum_grain,
/// moments.count, checkpoint_staging and early_updates.
void complete(Settings& settings);

}  // namespace ostrakon::config
