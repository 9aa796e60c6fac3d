// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/tasks.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <ostrakon/plan/pipeline_schedule.hpp>

namespace ostrakon::plan {
namespace {

std::vector<int> leaf_sequence(int count, LeafOrder order) {
  std::vector<int> sequence(static_cast<std::size_t>(count));
  std::iota(sequence.begin(), sequence.end(), 0);
  if (order == LeafOrder::descending) std::reverse(sequence.begin(), sequence.end());
  if (order == LeafOrder::shuffled) {
    // Fisher-Yates on a fixed linear congruential sequence: the same on every rank.
    std::uint64_t state = 0x9e3779b97f4a7c15ull;
    for (std::size_t i = sequence.size(); i > 1; --i) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      std::swap(sequence[i - 1], sequence[(state >> 33) % i]);
    }
  }
  return sequence;
}

Tasks training_tasks(const ModelDescription& model, const PipelineSchedule& turns,
                     const std::vector<int>& leaves, bool early_updates) {
  const int units = static_cast<int>(model.units.size()), last = units - 1;
  const int first = first_trained(model);
  const auto is_trained = [&](int u) { return model.units[u].trained_elements() > 0; };
  Tasks tasks = {{Work::begin}};
  for (const Turn& turn : turns) {
    const int micro_batch = leaves[static_cast<std::size_t>(turn.micro_batch)];
    if (turn.forward) {
      for (int u = 0; u < units; ++u)
        if (u < last || !model.has_loss) tasks.push_back({Work::forward, u, micro_batch});
      continue;
    }
    for (int u = last; u >= first; --u) {
      tasks.push_back({Work::backward, u, micro_batch});
      if (u == last && model.has_loss) tasks.push_back({Work::loss, u, micro_batch});
      tasks.push_back({Work::reduce, u, micro_batch});
      if (early_updates && micro_batch == leaves.back() && is_trained(u))
        tasks.push_back({Work::update, u});
    }
  }
  tasks.push_back({Work::clip});
  for (int u = 0; u < units; ++u)
    if (!early_updates && is_trained(u)) tasks.push_back({Work::update, u});
  return tasks;
}

Tasks evaluation_tasks(const ModelDescription& model, const std::vector<int>& leaves) {
  const int units = static_cast<int>(model.units.size());
  Tasks tasks = {{Work::begin}};
  for (int micro_batch : leaves) {
    for (int u = 0; u < units; ++u) tasks.push_back({Work::forward, u, micro_batch});
    if (model.has_loss) tasks.push_back({Work::loss, units - 1, micro_batch});
  }
  tasks.push_back({Work::clip});
  return tasks;
}

/// The same work for each unit.
Tasks tasks_of_units(const ModelDescription& model, Work work, int micro_batch) {
  Tasks tasks;
  for (int u = 0; u < static_cast<int>(model.units.size()); ++u)
    tasks.push_back({work, u, micro_batch});
  return tasks;
}

}  // namespace

int first_trained(const ModelDescription& model) {
  int first = 0;
  if (model.input_has_gradient) return first;
  while (first < static_cast<int>(model.units.size()) && model.units[first].trained_elements() == 0)
    ++first;
  return first;
}

std::vector<bool> find_checkpointed(const ModelDescription& model, const Checkpointing& policy) {
  std::vector<bool> checkpointed(model.units.size(), false);
  int seen = 0;
  const std::size_t forwards = model.units.size() - (model.has_loss ? 1 : 0);
  for (std::size_t u = 0; policy.every > 0 && u < forwards; ++u)
    if (model.units[u].recomputes) checkpointed[u] = seen++ % policy.every == 0;
  return checkpointed;
}

Tasks make_tasks(const ModelDescription& model, Purpose purpose, const Grid& grid, int stage,
                 LeafOrder order, bool early_updates) {
  const int micro_batches = static_cast<int>(grid.micro_batches());
  switch (purpose) {
    case Purpose::train:
      return training_tasks(model, one_forward_one_backward(stage, grid.stages(), micro_batches),
                            leaf_sequence(micro_batches, order), early_updates);
    case Purpose::evaluate:
      return evaluation_tasks(model, leaf_sequence(micro_batches, order));
    case Purpose::export_parameters:
      return tasks_of_units(model, Work::show, -1);
    case Purpose::decode:
      return tasks_of_units(model, Work::forward, 0);
  }
  return {};
}

}  // namespace ostrakon::plan
