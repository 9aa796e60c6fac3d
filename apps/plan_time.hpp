// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <ostrakon/simulate/prediction.hpp>
#include <ostrakon/train/place_on_ranks.hpp>
#include <string>
#include <vector>

namespace ostrakon::apps {

/// A deck's training step on some ranks, planned but not proven.
struct PlannedStep {
  config::Settings settings;  ///< with what follows from the ranks
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

/// The step true in time, as an SVG image: all stages where there are several, and the streams of
/// the one that computes longest; beside what was measured, the last step of its first rank in the
/// file `trace` (trace.json of a run) where that is not empty. Throws Error where it is none.
std::string draw_time(const PlannedStep& step, const simulate::Machine& machine,
                      const std::string& title, const std::string& trace);

/// What show_time shows and draw_time draws, as a page of its own.
std::string time_page(const PlannedStep& step, const simulate::Machine& machine,
                      const std::string& title, const std::string& trace);

/// How a deck is run on more ranks.
enum class Scaling {
  weak,   ///< the global batch grows with the ranks, from that of the deck on the fewest
  strong  ///< the deck's global batch
};

/// What `ostrakon-plan --sweep` shows.
enum class SweepFormat { table, csv, json };

/// The deck's step on each number of ranks. `first_ranks`: those of the deck's global batch.
/// `svg`: also draws efficiency over ranks, or nothing where it is null.
void show_sweep(const config::Settings& settings, const std::vector<int>& ranks, int ranks_per_node,
                Scaling scaling, const simulate::Machine& machine, SweepFormat format,
                std::ostream& out, std::string* svg);

}  // namespace ostrakon::apps
