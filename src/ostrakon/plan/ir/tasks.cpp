// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/ir/tasks.hpp>

#include <algorithm>
#include <map>

namespace ostrakon::plan {
namespace {

/// Appends forward and backward of a leaf that is computed again, numbered after all others.
void append_audit(const ModelDescription& model, const PipelineSchedule& turns, Tasks& tasks) {
  const int units = static_cast<int>(model.units.size());
  int again = 0;
  for (const Turn& turn : turns) again = std::max(again, turn.micro_batch + 1);
  for (int u = 0; u < units; ++u)
    if (!computes_loss(model, u)) tasks.push_back({Work::forward, u, again});
  for (int u = units - 1; u >= 0 && has_backward(model, u); --u) {
    tasks.push_back({Work::backward, u, again});
    tasks.push_back({Work::digest, u, again});
  }
  tasks.push_back({Work::audit});
}

Tasks training_tasks(const ModelDescription& model, const PipelineSchedule& turns,
                     const Layouts& layouts, bool audits) {
  const std::vector<Chunk> chunks = chunks_of(model);
  const int units = static_cast<int>(model.units.size());
  const auto is_trained = [&](int u) {
    return model.units[u].trained_elements() > 0 && model.units[u].tied_stages.source < 0;
  };
  // Lent parameters are updated late, as a part of their gradient comes last from another stage.
  const auto is_early = [&](int u) {
    return layouts.updates_early && !model.units[u].tied_stages.replica_has_gradient;
  };
  std::vector<int> optimistic;
  for (const bool has_copy : {false, true})
    for (int u = units - 1; u >= 0 && layouts.updates_optimistically; --u)
      if (is_trained(u) && model.units[u].whole_matrices.empty() &&
          model.units[u].tied_stages.replica_has_gradient == has_copy)
        optimistic.push_back(u);
  const auto is_optimistic = [&](int u) {
    return std::find(optimistic.begin(), optimistic.end(), u) != optimistic.end();
  };
  std::vector<bool> goes_back;  // per unit: whether it has a backward
  for (int u = 0; u < units; ++u) goes_back.push_back(has_backward(model, u));
  std::map<Pass, std::vector<int>> left;  // number of turns left per chunk
  for (const Pass pass : {Pass::forward, Pass::backward, Pass::gradients})
    left[pass].resize(chunks.size());
  for (const Turn& turn : turns) ++left[turn.pass][static_cast<std::size_t>(turn.chunk)];
  Tasks tasks = {{Work::begin}};
  for (int t = 0; t < static_cast<int>(turns.size()); ++t) {
    const Turn& turn = turns[t];
    const auto chunk = static_cast<std::size_t>(turn.chunk);
    const UnitRange range = chunks[chunk].units;
    const int micro_batch = turn.micro_batch;
    if (turn.pass == Pass::forward) {
      for (int u = range.first; u < range.end; ++u)
        if (!computes_loss(model, u)) tasks.push_back({Work::forward, u, micro_batch, t});
      continue;
    }
    const bool is_last = --left[turn.pass][chunk] == 0;
    for (int u = range.end - 1; u >= range.first && goes_back[u]; --u) {
      if (turn.pass == Pass::backward) {
        tasks.push_back({Work::backward, u, micro_batch, t});
        if (computes_loss(model, u)) tasks.push_back({Work::loss, u, micro_batch});
      }
      const bool defers = model.units[u].deferral.phases > 0;
      if (turn.pass != (defers ? Pass::gradients : Pass::backward)) continue;
      if (defers) tasks.push_back({Work::gradients, u, micro_batch, t});
      tasks.push_back({Work::reduce, u, micro_batch});
      if (is_early(u) && is_last && is_trained(u)) tasks.push_back({Work::update, u});
    }
  }
  if (audits) append_audit(model, turns, tasks);
  for (int u : optimistic) tasks.push_back({Work::update, u});
  tasks.push_back({Work::clip});
  for (int u : optimistic) tasks.push_back({Work::verify, u});
  for (int u = 0; u < units; ++u)
    if (!is_early(u) && !is_optimistic(u) && is_trained(u)) tasks.push_back({Work::update, u});
  for (int u = 0; u < units; ++u)
    if (model.units[u].trained_elements() > 0 &&
        (model.units[u].tied_stages.replica >= 0 || model.units[u].tied_stages.source >= 0))
      tasks.push_back({Work::share, u});
  return tasks;
}

Tasks evaluation_tasks(const ModelDescription& model, const PipelineSchedule& turns) {
  const std::vector<Chunk> chunks = chunks_of(model);
  Tasks tasks = {{Work::begin}};
  for (int t = 0; t < static_cast<int>(turns.size()); ++t) {
    const UnitRange range = chunks[static_cast<std::size_t>(turns[t].chunk)].units;
    const int micro_batch = turns[t].micro_batch;
    for (int u = range.first; u < range.end; ++u)
      tasks.push_back({Work::forward, u, micro_batch, t});
    if (const int last = range.end - 1; computes_loss(model, last))
      tasks.push_back({Work::loss, last, micro_batch});
  }
  tasks.push_back({Work::clip});
  return tasks;
}

/// Returns a task of the same work for each unit.
Tasks tasks_of_units(const ModelDescription& model, Work work, int micro_batch) {
  Tasks tasks;
  for (int u = 0; u < static_cast<int>(model.units.size()); ++u)
    tasks.push_back({work, u, micro_batch});
  return tasks;
}

}  // namespace

std::vector<bool> find_checkpointed(const ModelDescription& model,
                                    const ActivationCheckpointing& policy) {
  std::vector<bool> checkpointed(model.units.size(), false);
  int seen = 0;
  for (int u = 0; policy.every > 0 && u < static_cast<int>(model.units.size()); ++u)
    if (model.units[u].recomputes && !computes_loss(model, u))
      checkpointed[u] = seen++ % policy.every == 0;
  return checkpointed;
}

Tasks make_tasks(const ModelDescription& model, Purpose purpose, const PipelineSchedule& turns,
                 const Layouts& layouts) {
  switch (purpose) {
    case Purpose::train:
    case Purpose::audit:
      return training_tasks(model, turns, layouts, purpose == Purpose::audit);
    case Purpose::evaluate:
      return evaluation_tasks(model, turns);
    case Purpose::export_parameters:
      return tasks_of_units(model, Work::export_parameters, -1);
    case Purpose::decode:
      return tasks_of_units(model, Work::forward, 0);
  }
  return {};
}

}  // namespace ostrakon::plan
