// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <ostrakon/data/sample_source.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/train/expert_counts.hpp>
#include <ostrakon/train/step_guard.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

/// What a step leaves behind, the same bits on every rank and every layout.
struct StepResult {
  double loss = 0.0;       ///< mean of its terms over the global batch (nats per token)
  double grad_norm = 0.0;  ///< before clipping
  double learning_rate = 0.0;
  double loss_scale = 1.0;
  std::string skipped;           ///< why nothing was updated; empty where it was
  bool overflowed = false;       ///< skipped as the loss scale was too large: no fault of the run
  bool update_repeated = false;  ///< made before the sums were known, undone, and made as they say
  std::vector<ExpertLoad> expert_load;           ///< of each layer that has experts
  std::vector<ExpertRoundsTaken> expert_rounds;  ///< of each layer whose experts ranks share
};

/// Is shown a unit's two flat parameters; valid while it runs.
using Visitor =
    std::function<void(int unit, View<const float*> trained, View<const float*> frozen)>;

/// Losses that count in an evaluation of less than a global batch: those of its first samples.
struct CountedLosses {
  std::int64_t samples = 0;
  std::int64_t terms = 0;  ///< of these samples, on all ranks
};

/// What the handlers of a running program share. Handlers of different streams may run on different
/// threads: what they read here was set before the program ran, or by an action that theirs waits
/// for.
struct StepContext {
  // ---- Set by the Trainer before a program runs, and not changed while it does.
  int rank = 0;  ///< number in plans
  const runtime::Program* program = nullptr;
  data::SampleSource* samples = nullptr;
  std::uint64_t first_sample = 0;  ///< of the global batch
  std::int64_t step = 0;           ///< the last one of training, where it does not train
  std::int64_t update = 1;         ///< that it makes, counted from 1
  bool diagnoses = false;          ///< it runs once more, to find where a gradient is not finite
  int inject_nonfinite = -1;       ///< unit of the model whose gradient of micro-batch 0 is made
                                   ///< infinite: for tests
  std::optional<CountedLosses> counted;  ///< none: all losses count
  Visitor visitor;                       ///< of an export
  Verdict assumed;  ///< the verdict before it runs: what updates that are verified
                    ///< after `clip` go by

  // ---- Of actions of the host's stream alone, while a program runs: set by `load`, and read by
  // `clip` or `reduce_sums`.
  std::string load_error;  ///< why this rank's data can't be read; cleared by the Trainer before
  bool is_intact = true;   ///< false from where updates begin that a failure can't take back

  // ---- Set by the Trainer before, and by `clip`: actions of updates wait for it, but early ones,
  // for which it leaves the verdict as it is, and those that are verified.
  Verdict verdict;
  std::exception_ptr failure;  ///< agreed in `clip`; thrown once such updates are undone
  StepResult result;           ///< learning rate and loss scale by the Trainer, the rest by `clip`
  std::string diagnosis;       ///< of a program that diagnoses

  const plan::StepPlan& plan() const { return program->plan; }
  bool trains() const { return plan().purpose == plan::Purpose::train; }
  /// After `clip`: whether updates that were made before it are what it says.
  bool updates_stand() const {
    return !verdict.skip_update && verdict.gradient_scale == assumed.gradient_scale;
  }
};

}  // namespace ostrakon::train
