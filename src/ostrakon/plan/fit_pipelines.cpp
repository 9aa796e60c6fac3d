// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/fit_pipelines.hpp>

#include <algorithm>
#include <limits>

namespace ostrakon::plan {

PipelineBounds::PipelineBounds(const ModelDescription& model, const Policy& policy,
                               std::int64_t micro_batches, const Rates& rates)
    : stages_(policy.stages) {
  constexpr std::size_t most = 500;
  double least = std::numeric_limits<double>::infinity();
  std::map<std::vector<int>, int> index;  // of a stage: its number, and where its chunks begin, end
  for (const Division& division : possible_divisions(model, policy, most)) {
    least = std::min(
        least, least_step_seconds(model, division, policy, static_cast<int>(micro_batches), rates));
    std::vector<int>& stages = divisions_.emplace_back();
    for (int s = 0; s < policy.stages; ++s) {
      Stage stage;
      std::vector<int> name = {s};
      for (std::size_t c = static_cast<std::size_t>(s); c < division.size();
           c += static_cast<std::size_t>(policy.stages)) {
        stage.chunks.push_back(division[c]);
        name.insert(name.end(), {division[c].first, division[c].end});
      }
      if (policy.chunks == 1)
        stage.in_flight = std::min<std::int64_t>(policy.stages - s, micro_batches);
      const auto [found, is_new] = index.emplace(name, static_cast<int>(kinds_.size()));
      if (is_new) kinds_.push_back(stage);
      stages.push_back(found->second);
    }
  }
  if (!divisions_.empty()) seconds_ = least;
}

std::int64_t PipelineBounds::bytes(const Bounds& candidate) const {
  if (divisions_.empty()) return candidate.persistent_bytes() / stages_;
  std::vector<std::int64_t> of_kind;
  for (const Stage& stage : kinds_)
    of_kind.push_back(candidate.stage_bytes(stage.chunks, stage.in_flight));
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const std::vector<int>& division : divisions_) {
    std::int64_t largest = 0;
    for (int kind : division) largest = std::max(largest, of_kind[static_cast<std::size_t>(kind)]);
    least = std::min(least, largest);
  }
  return least;
}

const PipelineBounds& PipelineCache::of(const Candidate& candidate, std::int64_t micro_batches) {
  const Policy& policy = candidate.policy;
  const Key key = {candidate.model,
                   micro_batches,
                   policy.stages,
                   policy.chunks,
                   policy.schedule,
                   policy.zero_bubble_memory,
                   policy.activation_checkpointing.every,
                   policy.chunk_units};
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  return known_.emplace(key, PipelineBounds(*candidate.model, policy, micro_batches, rates_))
      .first->second;
}

}  // namespace ostrakon::plan
