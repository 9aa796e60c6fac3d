// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <ostrakon/base/names.hpp>
#include <string>
#include <vector>

namespace ostrakon::scaling {

/// The quantity that stays the same as ranks are added.
enum class Scaling {
  strong,  ///< the global batch
  weak     ///< the batch per rank
};
constexpr Named<Scaling> scaling_names[] = {{Scaling::strong, "strong"}, {Scaling::weak, "weak"}};
constexpr const char* name(Scaling scaling) { return name_in(scaling_names, scaling); }

/// The program that starts the ranks of a run.
enum class Launcher { mpiexec, slurm, pbs, flux };
constexpr Named<Launcher> launcher_names[] = {{Launcher::mpiexec, "mpiexec"},
                                              {Launcher::slurm, "slurm"},
                                              {Launcher::pbs, "pbs"},
                                              {Launcher::flux, "flux"}};
constexpr const char* name(Launcher launcher) { return name_in(launcher_names, launcher); }

/// The predicted time of a step, and its parts, in seconds.
struct PredictedStep {
  double seconds = 0.0;
  double compute = 0.0, communication = 0.0, host = 0.0, copies = 0.0, waiting = 0.0;
  std::string source;  ///< origin of the prediction, for messages
};

/// The runs of a study on one number of ranks.
struct StudySize {
  int ranks = 1;
  int nodes = 1;
  std::string folder;                  ///< relative to the study's folder: "ranks-4"
  std::int64_t global_batch_size = 0;  ///< number of sequences
  std::int64_t tokens_per_step = 0;
  std::int64_t memory_bytes = 0;        ///< arenas of a rank, on the device and on the host
  std::int64_t bytes_inside_nodes = 0;  ///< sent by a rank in a step
  std::int64_t bytes_across_nodes = 0;
  std::int64_t actions = 0;  ///< actions of a step on a rank
  std::optional<PredictedStep> prediction;
};

/// A scaling study: study.json.
struct Study {
  std::string deck;     ///< path as given by the user
  std::string version;  ///< version of Ostrakon
  std::string build;
  Scaling scaling = Scaling::strong;
  Launcher launcher = Launcher::mpiexec;
  int ranks_per_node = 0;        ///< 0: all ranks on one node
  std::int64_t steps = 0;        ///< steps of each run
  std::int64_t warmup = 0;       ///< steps at the begin of a run that do not count
  std::int64_t trace_steps = 0;  ///< number of steps in trace.json, from step 2 on
  int repeat = 1;                ///< runs of each size
  std::vector<StudySize> sizes;  ///< fewest ranks first

  /// The folder of run 1, 2, ... of a size, in the study's folder: "ranks-4/run-1".
  static std::string run_folder(const StudySize& size, int run);
};

/// Returns the global batch of `ranks` ranks; the deck's is that of `base_ranks`, the fewest of the
/// study. Throws Error where it is not a whole number.
std::int64_t global_batch(Scaling scaling, std::int64_t of_deck, int base_ranks, int ranks);

/// Parses "1,2,4,8", which must be increasing numbers. Throws Error, naming `option`.
std::vector<int> parse_ranks(const std::string& option, const std::string& text);

nlohmann::ordered_json study_json(const Study& study);
/// Reads an object of study_json(). Throws Error that names `file` and the field.
Study read_study(const nlohmann::json& json, const std::string& file);

/// Write and read DIR/study.json. Throw Error.
void write_study(const std::string& folder, const Study& study);
Study read_study_of(const std::string& folder);

}  // namespace ostrakon::scaling
