// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench.hpp"
#include "models.hpp"

namespace ostrakon::bench {

/// Times of a model's steps: means over ranks (of collectives, those of the rank that comes last),
/// and over the steps in the middle half, so that actions add up to usual steps.
struct Run {
  plan::StepPlan plan;
  std::vector<double> seconds;  ///< per action
  double step_seconds = 0.0;    ///< sum over actions
  double between = 0.0;         ///< time of a step outside of actions
  double wall_seconds = 0.0;    ///< time of a step on the slowest rank

  void add(const Run& other, double times);
};

/// Runs steps of models on groups of ranks, all groups at the same time.
class TimedSteps {
 public:
  /// `budget`: seconds of each model in each round.
  TimedSteps(comm::Communicator& world, double budget) : world_(world), budget_(budget) {}

  static config::Settings settings_of(const TimedModel& model,
                                      const std::vector<std::string>& more);
  Run run(const config::Settings& settings, MPI_Comm group = MPI_COMM_SELF);
  /// Runs steps of all models with each of these settings, alternating. A model whose rounds
  /// differ, as it was disturbed, is measured twice as often. Of all settings, then all models.
  std::vector<std::vector<Run>> runs_of(const std::vector<TimedModel>& models,
                                        const std::vector<std::vector<std::string>>& overrides,
                                        MPI_Comm group = MPI_COMM_SELF, int ranks = 1);
  /// The mean over all ranks.
  double mean(double value);

 private:
  void to_means(double* values, std::size_t count);
  bool differ(const std::vector<Run>& runs);

  comm::Communicator& world_;
  double budget_;
};

}  // namespace ostrakon::bench
