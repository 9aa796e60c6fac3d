// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <ostrakon/data/sample_source.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/trainer/audit/audit.hpp>
#include <ostrakon/trainer/expert_counts.hpp>
#include <ostrakon/trainer/step_guard.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

/// What a step or an evaluation tells of its pairs of answers: means over the pairs, see
/// math::PairOutput.
struct PairMeans {
  double chosen_log_ratio = 0.0, rejected_log_ratio = 0.0;
  double preferred = 0.0;  ///< share of pairs whose chosen answer has the larger log-ratio
};

/// The result of a step: the same bits on every rank and for every layout.
struct StepResult {
  double loss = 0.0;       ///< mean over the terms of the global batch that count (nats per token)
  double grad_norm = 0.0;  ///< of that mean's gradient, before clipping
  std::int64_t counted_terms = 0;  ///< how many terms count, of the global batch; 0: the loss and
                                   ///< all gradients are 0
  std::optional<double> multi_token_loss;  ///< mean of further losses, where the model has such
  std::optional<PairMeans> pairs;          ///< where losses are those of pairs
  double learning_rate = 0.0;
  double loss_scale = 1.0;
  bool audited = false;          ///< whether its gradients were audited, and in the end all agreed
  std::string audit_finding;     ///< what an audit has found before the step was repeated
  std::string skipped;           ///< why nothing was updated; empty if it was
  bool overflowed = false;       ///< whether it was skipped as the loss scale was too large, which
                                 ///< is no fault of the run
  bool update_repeated = false;  ///< whether an update before the sums were known was undone and
                                 ///< repeated
  std::vector<ExpertLoad> expert_load;           ///< one per layer with experts
  std::vector<ExpertRoundsTaken> expert_rounds;  ///< one per layer whose experts are shared by
                                                 ///< ranks
};

/// Called with a unit's two flat parameters, which are valid during the call.
using Visitor =
    std::function<void(int unit, View<const float*> trained, View<const float*> frozen)>;

/// The losses that count in an evaluation of less than a global batch: those of its first samples.
struct CountedLosses {
  std::int64_t samples = 0;
  std::int64_t terms = 0;  ///< number of their loss terms, on all ranks
};

/// Data that the handlers of a running program share. Handlers of different streams may run on
/// different threads: data that they read here was set before the program ran, or by an action that
/// theirs waits for.
struct StepContext {
  // ---- Set by the Trainer before a program runs, and not changed while it does.
  int rank = 0;  ///< number in plans
  const runtime::Program* program = nullptr;
  data::SampleSource* samples = nullptr;
  std::uint64_t first_sample = 0;  ///< index of the first sample of the global batch
  std::int64_t step = 0;  ///< current step; if the program does not train, the last one of training
  std::int64_t update = 1;    ///< number of the update that this step makes, from 1
  bool diagnoses = false;     ///< whether this run is a repetition to find where a gradient is
                              ///< not finite
  int inject_nonfinite = -1;  ///< for tests: unit of the model whose gradient of micro-batch 0
                              ///< is made infinite
  std::optional<CountedLosses> counted;  ///< nullopt: those of all samples count
  Visitor visitor;                       ///< called by an export
  HostView<float*> kept;  ///< where an evaluation keeps the losses of this rank, and behind those
                          ///< of all leaves margins: Trainer::losses; empty: it keeps none
  AuditRound audit;       ///< in an audited step: who computes what again
  StepDecision assumed;   ///< verdict before the program runs, which updates use that are verified
                          ///< after `clip`

  // ---- Accessed only by actions of the host's stream while a program runs: set by `load`, read by
  // `clip` or `reduce_sums`.
  std::string load_error;  ///< why this rank's data can't be read; cleared by the Trainer before a
                           ///< run
  std::int64_t counted_terms = 0;  ///< terms that count, in what this rank has loaded and no other
                                   ///< rank counts; cleared as load_error is
  bool audit_differs = false;      ///< set by `audit`: ranks do not agree; cleared by the Trainer
  std::vector<AuditTable> audit_tables;  ///< of the runs of this step
  bool is_intact = true;  ///< false once updates have begun that can't be undone after a failure

  // ---- Set by the Trainer before a run, then by `clip`. Updates wait for `clip`, except early
  // ones (for which it does not change the verdict), and those that are verified.
  StepDecision verdict;
  std::exception_ptr failure;  ///< agreed on in `clip`; thrown once updates are undone
  StepResult result;           ///< learning rate and loss scale are set by the Trainer, the rest by
                               ///< `clip`
  std::string diagnosis;       ///< text that a diagnosing program has found

  const plan::StepPlan& plan() const { return program->plan; }
  bool trains() const { return plan::trains(plan().purpose); }
  /// The leaf of the global batch that an action works on.
  std::int64_t leaf_of(const plan::Action& action) const {
    if (!plan().is_again(action)) return plan().leaf(rank, action.micro_batch);
    return plan().leaf(audited_rank(plan(), rank, audit.shift), audit.micro_batch);
  }
  /// How many of a leaf's samples count, from the first on, which is sample `first` of the batch.
  std::int64_t counted_samples(std::int64_t first, std::int64_t of_leaf) const {
    return counted ? std::clamp<std::int64_t>(counted->samples - first, 0, of_leaf) : of_leaf;
  }
  /// After `clip`: whether updates that were made before it have the right verdict.
  bool updates_are_valid() const {
    return !verdict.skip_update && verdict.gradient_scale == assumed.gradient_scale;
  }
};

}  // namespace ostrakon::train
