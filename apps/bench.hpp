// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the measurements of ostrakon-bench share: how a time is taken, and how a row is shown.

#include <functional>
#include <nlohmann/json.hpp>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/config/deck.hpp>
#include <string>
#include <vector>

namespace ostrakon::bench {

/// Seconds that a piece of work takes, as the slowest rank sees it.
struct Seconds {
  double median = 0.0;
  double fastest = 0.0;
};

/// Seconds of each of `works`, over about `budget` seconds of repeats for each, at least 3, after a
/// warm-up. The works alternate, so that noise of the machine affects all of them alike. Each work
/// ends with its results in place (fenced). Collective over `world`.
std::vector<Seconds> measure(comm::Communicator& world, double budget,
                             const std::vector<std::function<void()>>& works);

/// Summarizes `values` that were measured over and over, at least one.
Seconds summarize(std::vector<double> values);

/// How a column's value is shown; JSON rows hold seconds, bytes and fractions as plain numbers.
enum class Format { text, count, seconds, bytes, number, ratio, percent };

struct Column {
  std::string title;
  std::string key;  ///< in JSON
  Format format = Format::text;
  int width = 0;
};

/// Rows under a heading, each written as it comes, by one rank: aligned text or one JSON object a
/// line. A null value is one that there isn't.
class Table {
 public:
  using Row = std::vector<nlohmann::ordered_json>;

  /// `name`: the value of "bench" in JSON rows. Nothing is written where not `is_root`.
  Table(std::string name, std::vector<Column> columns, bool json, bool is_root);
  void row(const Row& values);

 private:
  std::string name_;
  std::vector<Column> columns_;
  bool json_;
  bool is_root_;
};

struct Options {
  double seconds = 0.0;  ///< for each row, or for all steps; 0: as the measurement likes
  bool json = false;
  int ranks_per_node = 0;     ///< of comm: neighbouring ranks; 0: nodes as they are
  std::string output;         ///< of machine: the file to write
  std::string machine;        ///< of step: a machine file, for a prediction beside what is measured
  DType dtype = DType::fp32;  ///< of kernels: in which models compute
  double added_seconds_per_byte = 0.0;  ///< of step: that collectives take longer
};

/// Kernels of one rank, all ranks at once.
void run_kernels(comm::Communicator& world, const Options& options);

/// Collectives compared with MPI's own and with the same in two levels, where ranks are on several
/// nodes; and from which size on two levels are faster. Throws Error on one rank.
void run_comm(comm::Communicator& world, const Options& options);

/// Copies, launches, products and collectives of devices. Throws AgreedError without a device.
void run_device(comm::Communicator& world, const Options& options);

/// The numbers of a machine file (config/machine_file.hpp), measured by steps of small models and
/// collectives; written to Options::output, or shown.
void run_machine(comm::Communicator& world, const Options& options);

/// Training steps as a deck describes them, on synthetic data where its files are not there.
void run_step(comm::Communicator& world, config::Settings settings, const Options& options);

/// How much of a slower network's delay is hidden behind compute, for several depths of prefetch.
void run_overlap(comm::Communicator& world, config::Settings settings, const Options& options);

/// How long stages of a pipeline wait for each other, with units that sleep, compared with what
/// their plans say.
void run_pipeline(comm::Communicator& world, config::Settings settings, const Options& options);

/// Saving and reading state, compared with dd and cat, and what it costs training.
void run_checkpoint(comm::Communicator& world, config::Settings settings, const Options& options);

/// Takes the synthetic data set where the deck's files are not there, as rank 0 sees it; and more
/// steps than anyone measures.
void use_synthetic_data_if_needed(comm::Communicator& world, config::Settings& settings);

}  // namespace ostrakon::bench
