// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/simulate/prediction.hpp>
#include <ostrakon/trainer/resolve.hpp>
#include <string>
#include <vector>

namespace ostrakon::apps {

/// A deck's training step on some ranks, planned but not proven.
struct PlannedStep {
  config::Settings settings;
  int ranks = 1;
  int ranks_per_node = 1;
  std::vector<plan::StepPlan> stages;
  double tokens = 0.0;       ///< of a step on all ranks
  double model_flops = 0.0;  ///< the same, that count for MFU

  std::vector<const plan::StepPlan*> plans() const;
  /// The largest arena of any stage, in device memory.
  std::int64_t arena_bytes() const;
};

/// Throws Error where the deck does not fit these ranks.
PlannedStep plan_step(config::Settings settings, int ranks, int ranks_per_node);

using train::streams_of;

simulate::Prediction predict(const PlannedStep& step, const simulate::Machine& machine);

/// What `ostrakon-plan --time` shows.
void show_time(const PlannedStep& step, const simulate::Machine& machine, bool json,
               std::ostream& out);

/// How a deck is run on more ranks.
enum class Scaling {
  weak,   ///< the global batch grows with the ranks, from that of the deck on the fewest
  strong  ///< the deck's global batch
};

/// What `ostrakon-plan --sweep` shows.
enum class SweepFormat { table, csv, json };

struct SweepRow {
  int ranks = 1;
  std::int64_t batch = 0;
  std::int64_t arena = 0;
  simulate::Prediction prediction;
  double tokens_per_second = 0.0;
  double efficiency = 1.0;  ///< tokens/s of a rank, of those on the fewest ranks
};

/// A deck's step on several numbers of ranks, the fewest first.
struct Sweep {
  std::string machine;
  Scaling scaling = Scaling::weak;
  std::vector<SweepRow> rows;
};

/// The deck's global batch is that of the fewest ranks.
Sweep run_sweep(const config::Settings& settings, const std::vector<int>& ranks, int ranks_per_node,
                Scaling scaling, const simulate::Machine& machine);

void show_sweep(const Sweep& sweep, SweepFormat format, std::ostream& out);

}  // namespace ostrakon::apps
