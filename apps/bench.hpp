// SPDX-License-Identifier: Apache-2.0
#pragma once

// Shared by the measurements of ostrakon-bench: timing, and output of rows.

#include <functional>
#include <nlohmann/json.hpp>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/config/deck.hpp>
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

/// Rows under a heading, each written at once, by one rank: as aligned text or one JSON object per
/// line. A null value is missing.
class Table {
 public:
  using Row = std::vector<nlohmann::ordered_json>;

  /// `name`: the value of "bench" in JSON rows. Writes nothing unless `is_root`.
  Table(std::string name, std::vector<Column> columns, bool json, bool is_root);
  void row(const Row& values);

 private:
  std::string name_;
  std::vector<Column> columns_;
  bool json_;
  bool is_root_;
};

struct Options {
  double seconds = 0.0;  ///< per row, or for all steps; 0: chosen by the measurement
  bool json = false;
  int ranks_per_node = 0;               ///< comm: neighbouring ranks; 0: real nodes
  std::string output;                   ///< machine: the file to write
  std::string machine;                  ///< step: a machine file, to predict the measured times
  DType dtype = DType::fp32;            ///< kernels: dtype in which models compute
  double added_seconds_per_byte = 0.0;  ///< step: extra time of collectives
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

/// Measures training steps of a deck, on synthetic data if its files do not exist.
void run_step(comm::Communicator& world, config::Settings settings, const Options& options);

/// Measures the fraction of a slower network's delay that is overlapped with compute, for several
/// depths of prefetch.
void run_overlap(comm::Communicator& world, config::Settings settings, const Options& options);

/// Measures how long pipeline stages wait for each other, with units that sleep, compared with
/// their plans.
void run_pipeline(comm::Communicator& world, config::Settings settings, const Options& options);

/// Measures saving and reading of checkpoints, compared with dd and cat, and their cost in
/// training.
void run_checkpoint(comm::Communicator& world, config::Settings settings, const Options& options);

/// Uses the synthetic data set if the deck's files do not exist on rank 0, and more steps than any
/// measurement takes.
void use_synthetic_data_if_needed(comm::Communicator& world, config::Settings& settings);

}  // namespace ostrakon::bench
