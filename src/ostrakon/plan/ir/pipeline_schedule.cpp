// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/ir/pipeline_schedule.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <ostrakon/base/error.hpp>

namespace ostrakon::plan {
namespace {

/// Returns `warm_up` forwards, then forwards and backwards in turn, as long as there are any.
PipelineSchedule in_turn(const std::vector<Turn>& forwards, const std::vector<Turn>& backwards,
                         std::size_t warm_up) {
  PipelineSchedule turns;
  turns.reserve(forwards.size() + backwards.size());
  std::size_t next = 0;
  while (next < std::min(warm_up, forwards.size())) turns.push_back(forwards[next++]);
  for (const Turn& backward : backwards) {
    if (next < forwards.size()) turns.push_back(forwards[next++]);
    turns.push_back(backward);
  }
  return turns;
}

}  // namespace

PipelineSchedule one_forward_one_backward(int stage, int stages, int micro_batches) {
  return interleaved(stage, stages, 1, micro_batches);
}

PipelineSchedule interleaved(int stage, int stages, int chunks, int micro_batches) {
  std::vector<Turn> forwards, backwards;
  for (int first = 0; first < micro_batches; first += stages) {
    const int end = std::min(first + stages, micro_batches);
    for (int c = 0; c < chunks; ++c)
      for (int m = first; m < end; ++m) {
        forwards.push_back({Pass::forward, m, c});
        backwards.push_back({Pass::backward, m, chunks - 1 - c});
      }
  }
  // With several chunks, gradients return only after all later chunks of the other stages.
  const int behind = stages - 1 - stage, at_once = std::min(stages, micro_batches);
  return in_turn(
      forwards, backwards,
      static_cast<std::size_t>(chunks == 1 ? behind : 2 * behind + (chunks - 1) * at_once));
}

PipelineSchedule zero_bubble(int stage, int stages, int micro_batches) {
  PipelineSchedule turns;
  int deferred = 0;
  for (const Turn& turn : one_forward_one_backward(stage, stages, micro_batches)) {
    turns.push_back(turn);
    if (turn.pass == Pass::backward && turn.micro_batch >= stage)
      turns.push_back({Pass::gradients, deferred++});
  }
  while (deferred < micro_batches) turns.push_back({Pass::gradients, deferred++});
  return turns;
}

std::vector<Message> messages(const Pipeline& pipeline, int from, int to) {
  std::vector<Message> sent;
  for (const Turn& turn : pipeline.turns[from]) {
    if (turn.pass == Pass::gradients) continue;
    const bool forward = turn.pass == Pass::forward;
    const int number = pipeline.number(from, turn);
    const int next = forward ? number + 1 : number - 1;
    const bool is_sent =
        forward ? number < pipeline.last_chunk() : number > pipeline.first_backward;
    if (is_sent && pipeline.stage_of(next) == to) sent.push_back({forward, next, turn.micro_batch});
  }
  return sent;
}

std::vector<int> leaf_sequence(int count, LeafOrder order) {
  std::vector<int> sequence(static_cast<std::size_t>(count));
  std::iota(sequence.begin(), sequence.end(), 0);
  if (order == LeafOrder::descending) std::reverse(sequence.begin(), sequence.end());
  if (order == LeafOrder::shuffled) {
    // This is Fisher-Yates on a fixed linear congruential sequence, the same on every rank.
    std::uint64_t state = 0x9e3779b97f4a7c15ull;
    for (std::size_t i = sequence.size(); i > 1; --i) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      std::swap(sequence[i - 1], sequence[(state >> 33) % i]);
    }
  }
  return sequence;
}

Pipeline make_pipeline(ScheduleKind schedule, int stages, int chunks, int first_backward,
                       const std::vector<int>& leaves, bool only_forward) {
  const int micro_batches = static_cast<int>(leaves.size());
  require((schedule == ScheduleKind::interleaved) == (chunks > 1),
          "parallel.schedule = ", name(schedule), " with ", chunks,
          " chunks of each stage; expected several with interleaved, else one");
  require(chunks == 1 || micro_batches <= stages || micro_batches % stages == 0,
          "parallel.schedule = interleaved: the ", micro_batches,
          " micro-batches of a rank are no multiple of the ", stages,
          " stages; expected a multiple, fewer micro-batches than stages, or 1f1b");
  Pipeline pipeline{stages, chunks, first_backward};
  for (int stage = 0; stage < stages; ++stage) {
    PipelineSchedule turns = schedule == ScheduleKind::zero_bubble
                                 ? zero_bubble(stage, stages, micro_batches)
                                 : interleaved(stage, stages, chunks, micro_batches);
    turns.erase(
        std::remove_if(turns.begin(), turns.end(),
                       [&](const Turn& turn) {
                         return turn.pass != Pass::forward &&
                                (only_forward || pipeline.number(stage, turn) < first_backward);
                       }),
        turns.end());
    for (Turn& turn : turns) turn.micro_batch = leaves[static_cast<std::size_t>(turn.micro_batch)];
    pipeline.turns.push_back(std::move(turns));
  }
  return pipeline;
}

}  // namespace ostrakon::plan
