// SPDX-License-Identifier: Apache-2.0
#pragma once

// Shared by the measurements of ostrakon-bench: timing, trainers, and output of rows.

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/data/dataset.hpp>
#include <ostrakon/trainer/make_trainer.hpp>
#include <string>
#include <vector>

namespace ostrakon::bench {

/// Seconds that a piece of work takes on the slowest rank.
struct Seconds {
  double median = 0.0;
  double fastest = 0.0;
};

/// Measures each of `works` after a warm-up, repeated for about `budget` seconds each, at least 3
/// times. The works alternate, so that noise of the machine affects all of them equally. Each work
/// must end with its results complete (fenced). Collective over `world`.
std::vector<Seconds> measure(comm::Communicator& world, double budget,
                             const std::vector<std::function<void()>>& works);

/// Summarizes repeated measurements, at least one.
Seconds summarize(std::vector<double> values);

/// The format of a column's values; JSON rows hold seconds, bytes and fractions as plain numbers.
enum class Format { text, count, seconds, bytes, number, ratio, percent };

struct Column {
  std::string title;
  std::string key;  ///< key in JSON
  Format format = Format::text;
  int width = 0;
};

/// What the command line says.
struct Options {
  double seconds = 0.0;  ///< per row, or for all steps; 0: chosen by the measurement
  bool json = false;
  int ranks_per_node = 0;  ///< comm: neighbouring ranks; 0: real nodes
  std::string output;      ///< machine: the file to write
  std::string machine;     ///< step: a machine file, to predict the measured times; preflight: to
                           ///< compare with
  std::string hostfile;    ///< preflight: the file to write
  DType dtype = DType::fp32;                ///< kernels: dtype in which models compute
  bool kernels = false;                     ///< step: also time by kernel
  double added_nanoseconds_per_byte = 0.0;  ///< step: extra time of collectives

  double seconds_or(double usual) const { return seconds > 0.0 ? seconds : usual; }
};

/// Rows under a heading, each written at once, by rank 0: as aligned text or one JSON object per
/// line. A null value is missing.
class Table {
 public:
  using Row = std::vector<nlohmann::ordered_json>;

  /// `name`: the value of "bench" in JSON rows.
  Table(std::string name, comm::Communicator& world, const Options& options,
        std::vector<Column> columns);
  void row(const Row& values);

 private:
  std::string name_;
  std::vector<Column> columns_;
  bool json_;
  bool is_root_;
};

/// Writes text for people, on rank 0.
void say(comm::Communicator& world, const Options& options, const std::string& text);

/// Seconds that a piece of work takes on the slowest rank, if all begin at once.
template <class Work>
double slowest(comm::Communicator& world, const Work& work) {
  world.barrier();
  const Stopwatch timer;
  work();
  double seconds = timer.seconds();
  world.all_reduce_max(&seconds, 1);
  return seconds;
}

/// A trainer of a deck, and its data.
struct Training {
  using Make = std::function<train::Trainer(mesh::Mesh&)>;

  /// `make`: the trainer, if it is not the deck's.
  Training(MPI_Comm parent, const config::Settings& settings, const Make& make = {});
  /// Allocates and initializes all that steps need.
  void prepare();
  const plan::StepPlan& plan() const { return trainer.program(plan::Purpose::train).plan; }

  mesh::Mesh mesh;
  comm::Communicator& world;
  train::Trainer trainer;
  std::unique_ptr<data::Dataset> dataset;
};

/// Measures kernels of one rank, on all ranks at once.
void run_kernels(comm::Communicator& world, const Options& options);

/// Measures collectives compared with MPI's own and, if ranks are on several nodes, with
/// collectives in two levels; finds the size from which two levels are faster. Throws Error on one
/// rank.
void run_comm(comm::Communicator& world, const Options& options);

/// Measures copies, launches, products and collectives of devices. Throws CollectiveError without a
/// device.
void run_device(comm::Communicator& world, const Options& options);

/// Measures the numbers of a machine file (config/machine_file.hpp) by steps of small models and
/// collectives; writes them to Options::output, or shows them.
void run_machine(comm::Communicator& world, const Options& options);

/// Checks ranks, links and hosts, for the plan of a deck if there is one, see preflight.hpp.
/// Returns the exit status: 0, or 3 where there is a fault.
int run_preflight(comm::Communicator& world, const std::string& deck,
                  const std::vector<config::Override>& overrides, const Options& options);

// With settings that fit the ranks, for more steps than any measurement takes.

/// Measures training steps of a deck.
void run_step(comm::Communicator& world, config::Settings settings, const Options& options);

/// Measures the fraction of a slower network's delay that is overlapped with compute, for several
/// depths of prefetch.
void run_overlap(comm::Communicator& world, config::Settings settings, const Options& options);

/// Measures how long pipeline stages wait for each other, with units that sleep, compared with
/// their plans.
void run_pipeline(comm::Communicator& world, config::Settings settings, const Options& options);

/// Measures what the watchdog and the times of ranks cost a step.
void run_watch(comm::Communicator& world, config::Settings settings, const Options& options);

/// Measures saving and reading of checkpoints, compared with dd and cat, and their cost in
/// training.
void run_checkpoint(comm::Communicator& world, config::Settings settings, const Options& options);

}  // namespace ostrakon::bench
