// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/pipeline/deferral.hpp>

#include <algorithm>
#include <ostrakon/plan/passes/activation_pass.hpp>
#include <utility>
#include <vector>

namespace ostrakon::plan {
namespace {

/// Whether gradients of any micro-batch come later than its backward.
bool defers(const PipelineSchedule& turns) {
  for (std::size_t t = 0; t < turns.size(); ++t)
    if (turns[t].pass == Pass::gradients &&
        (t == 0 || !(turns[t - 1] == Turn{Pass::backward, turns[t].micro_batch, turns[t].chunk})))
      return true;
  return false;
}

/// Counts the bytes that wait for deferred phases, task after task.
class Waiting {
 public:
  explicit Waiting(const ModelDescription& stage) : stage_(stage), held_(stage.units.size(), 0) {
    for (const Chunk& chunk : chunks_of(stage))
      for (int u = chunk.units.first; u < chunk.units.end; ++u)
        held_[u] = stage.units[u].saved_bytes +
                   (u == chunk.units.first ? chunk.input_bytes : stage.units[u - 1].output_bytes);
  }

  std::int64_t bytes() const { return bytes_; }
  std::int64_t with(const Task& task) const { return bytes_ + change(task); }
  void on(const Task& task) { bytes_ += change(task); }

 private:
  std::int64_t change(const Task& task) const {
    if (task.unit < 0 || stage_.units[task.unit].deferral.phases == 0) return 0;
    const std::int64_t deferred = stage_.units[task.unit].deferral.bytes;
    return task.work == Work::forward     ? held_[task.unit]
           : task.work == Work::backward  ? deferred
           : task.work == Work::gradients ? -held_[task.unit] - deferred
                                          : 0;
  }

  const ModelDescription& stage_;
  std::vector<std::int64_t> held_;  // per unit: bytes that forward saves, and its input
  std::int64_t bytes_ = 0;
};

}  // namespace

ModelDescription with_deferral(const ModelDescription& stage, const Policy& policy,
                               const PipelineSchedule& turns) {
  const bool any = defers(turns);
  const std::vector<bool> checkpointed = find_checkpointed(stage, policy.activation_checkpointing);
  ModelDescription own = stage;
  for (int u = 0; u < static_cast<int>(own.units.size()); ++u)
    if (!any || checkpointed[u] || waits_on_host(stage, policy, u))
      own.units[u] = at_once(std::move(own.units[u]));
  return own;
}

std::int64_t waiting_bytes(const ModelDescription& stage, const Tasks& tasks) {
  Waiting waiting(stage);
  std::int64_t most = 0;
  for (const Task& task : tasks) {
    waiting.on(task);
    most = std::max(most, waiting.bytes());
  }
  return most;
}

Tasks limit_deferred_bytes(const ModelDescription& stage, const Tasks& tasks, std::int64_t most) {
  Waiting waiting(stage);
  Tasks ordered;
  ordered.reserve(tasks.size());
  std::vector<bool> is_done(tasks.size(), false);
  std::size_t next = 0;  // no deferred phases are left before it
  int ready = 0;         // how many have had their backward; both are in the same order
  const auto compute = [&](std::size_t at) {
    waiting.on(tasks[at]);
    if (tasks[at].work == Work::gradients) --ready;
    if (tasks[at].work == Work::backward && stage.units[tasks[at].unit].deferral.phases > 0)
      ++ready;
    ordered.push_back(tasks[at]);
    is_done[at] = true;
  };
  // Computes the next deferred phases, and the reductions of their gradients.
  const auto compute_next_deferred = [&] {
    while (is_done[next] || tasks[next].work != Work::gradients) ++next;
    const int unit = tasks[next].unit;
    // Updates stay where they are, as other stages wait for messages before them.
    do compute(next++);
    while (next < tasks.size() && tasks[next].unit == unit && tasks[next].work == Work::reduce);
  };
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    if (is_done[t]) continue;
    while (ready > 0 && tasks[t].work != Work::gradients && waiting.with(tasks[t]) > most)
      compute_next_deferred();
    compute(t);
  }
  return ordered;
}

void find_most_waiting(const ModelDescription& stage, const Tasks& tasks,
                       const std::function<bool(std::int64_t most)>& has_room) {
  std::int64_t high = waiting_bytes(stage, tasks);
  if (has_room(high)) return;
  // The arena need not grow with the bytes that wait, so each plan is checked.
  constexpr int builds = 5;
  std::int64_t low = 0;
  for (int i = 0; i < builds; ++i) {
    const std::int64_t most = low + (high - low) / 2;
    (has_room(most) ? low : high) = most;
  }
}

double part_deferred(const std::vector<ModelDescription>& stages, int micro_batches) {
  const int count = static_cast<int>(stages.size());
  std::vector<double> at_once, more;  // bytes per stage
  for (int s = 0; s < count; ++s) {
    double left = 0.0, deferred = 0.0;
    for (const Chunk& chunk : chunks_of(stages[s])) left += static_cast<double>(chunk.input_bytes);
    for (const UnitDescription& unit : stages[s].units) {
      left += static_cast<double>(unit.saved_bytes + unit.output_bytes);
      deferred += static_cast<double>(unit.deferral.bytes);
    }
    const int in_flight = std::min(micro_batches, count - s);
    at_once.push_back(in_flight * left);
    more.push_back((std::min(micro_batches, count) - in_flight) * left +
                   std::min(micro_batches, s + 1) * deferred);
  }
  const double most = *std::max_element(at_once.begin(), at_once.end());
  double part = 0.0;
  for (int s = 1; s < count; ++s)
    part += more[s] > 0.0 ? std::min(1.0, (most - at_once[s]) / more[s]) / (count - 1) : 0.0;
  return part;
}

}  // namespace ostrakon::plan
