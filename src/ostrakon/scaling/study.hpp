// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <ostrakon/base/names.hpp>
#include <string>
#include <vector>

namespace ostrakon::scaling {

/// What stays the same as ranks are added.
enum class Scaling {
  strong,  ///< the global batch
  weak     ///< the batch of a rank
};
constexpr Named<Scaling> scaling_names[] = {{Scaling::strong, "strong"}, {Scaling::weak, "weak"}};
constexpr const char* name(Scaling scaling) { return name_in(scaling_names, scaling); }

/// What starts the ranks of a run.
enum class Launcher { mpiexec, slurm, pbs, flux };
constexpr Named<Launcher> launcher_names[] = {{Launcher::mpiexec, "mpiexec"},
                                              {Launcher::slurm, "slurm"},
                                              {Launcher::pbs, "pbs"},
                                              {Launcher::flux, "flux"}};
constexpr const char* name(Launcher launcher) { return name_in(launcher_names, launcher); }

/// How long a step was predicted to take, in seconds, and of what.
struct PredictedStep {
  double seconds = 0.0;
  double compute = 0.0, communication = 0.0, host = 0.0, copies = 0.0, waiting = 0.0;
  std::string source;  ///< what it was made with, for people
};

/// The runs of a study on one number of ranks.
struct StudySize {
  int ranks = 1;
  int nodes = 1;
  std::string folder;                  ///< in the study's: "ranks-4"
  std::int64_t global_batch_size = 0;  ///< sequences
  std::int64_t tokens_per_step = 0;
  std::int64_t memory_bytes = 0;        ///< arenas of a rank, on the device and on the host
  std::int64_t bytes_inside_nodes = 0;  ///< sent by a rank in a step
  std::int64_t bytes_across_nodes = 0;
  std::int64_t actions = 0;  ///< of a step on a rank
  std::optional<PredictedStep> prediction;
};

/// A scaling study: study.json.
struct Study {
  std::string deck;     ///< as it was given
  std::string version;  ///< of Ostrakon
  std::string build;
  Scaling scaling = Scaling::strong;
  Launcher launcher = Launcher::mpiexec;
  int ranks_per_node = 0;        ///< 0: all ranks on one node
  std::int64_t steps = 0;        ///< of each run
  std::int64_t warmup = 0;       ///< steps at the begin of a run that do not count
  std::int64_t trace_steps = 0;  ///< in trace.json, from step 2 on
  int repeat = 1;                ///< runs of each size
  std::vector<StudySize> sizes;  ///< fewest ranks first

  /// The folder of run 1, 2, ... of a size, in the study's folder: "ranks-4/run-1".
  static std::string run_folder(const StudySize& size, int run);
};

/// The batch of `ranks` ranks, where the deck's is that of `base_ranks`, the fewest of the study.
/// Throws Error where it is no whole number.
std::int64_t global_batch(Scaling scaling, std::int64_t of_deck, int base_ranks, int ranks);

/// "1,2,4,8" as increasing numbers. Throws Error, naming `option`.
std::vector<int> parse_ranks(const std::string& option, const std::string& text);

nlohmann::ordered_json study_json(const Study& study);
/// Throws Error that names `file` and the field. `json` is the object study_json() made.
Study read_study(const nlohmann::json& json, const std::string& file);

/// DIR/study.json. Throws Error.
void write_study(const std::string& folder, const Study& study);
Study read_study_of(const std::string& folder);

}  // namespace ostrakon::scaling
