// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/plan/description.hpp>
#include <ostrakon/plan/policy.hpp>
#include <vector>

namespace ostrakon::plan {

/// How much of a model a step computes, on how many stages, and how often.
struct StepLength {
  std::int64_t layers = 0;
  std::int64_t micro_batches = 1;
  int stages = 1;
  std::vector<int> chunk_units = {};  ///< as Policy::chunk_units
};

/// What a step takes.
struct StepTakes {
  double seconds = 0.0;
  std::vector<std::int64_t> bytes;  ///< of each stage, live at the peak
};

/// Shorter steps, of which follows what a whole step takes, without planning it. Time grows
/// linearly with micro-batches, and as memory with the layers of one stage and with the stages of a
/// pipeline. Shorter pipelines have as many micro-batches for each stage, or two; of the stages
/// they have the first, the last, the busiest, and some between.
class ShorterSteps {
 public:
  /// `model` and `policy`: of the whole step. `has_like_layers`: whether the model with fewer
  /// layers has the same units, but fewer of them. `stages_at_a_time`: shorter pipelines have a
  /// multiple of it: as many stages as share a node, or 1, so that stages lie on nodes as those of
  /// the whole; 0: they can't. Throws Error where make_chunks does.
  ShorterSteps(const ModelDescription& model, const Policy& policy, const StepLength& whole,
               bool has_like_layers, int stages_at_a_time);

  /// One to six; the whole step alone where it is not longer.
  const std::vector<StepLength>& lengths() const { return lengths_; }

  /// What the whole step takes; of its stages that with the most bytes. `takes`: of each length.
  double seconds(const std::vector<StepTakes>& takes) const;
  std::int64_t bytes(const std::vector<StepTakes>& takes) const;

 private:
  struct Form {
    bool is_deeper;        // has more stages than others
    bool has_more_layers;  // in each chunk
  };

  int know_chunks(const ModelDescription& model, const Policy& policy, int stages_at_a_time);
  StepLength take(int stages, int cut) const;
  void shorten(int cut, double share, bool has_more_layers);

  StepLength whole_;
  std::vector<int> chunk_units_;  // of the whole; empty: one stage, or they stay
  std::vector<double> work_;      // of each of its stages
  int stages_at_a_time_ = 0;
  std::vector<StepLength> lengths_;
  std::vector<Form> forms_;
  std::vector<double> of_seconds_;  // the whole takes the sum of all, each so often
  // The whole is so many times as far from the shortest as those with more of them. Its memory is,
  // too; that of more micro-batches is taken as the same, though a tree of sums has more levels.
  double more_stages_ = 0.0, more_layers_ = 0.0;
};

}  // namespace ostrakon::plan
