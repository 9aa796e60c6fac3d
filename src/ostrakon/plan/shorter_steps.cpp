// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/shorter_steps.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostrakon/plan/pipeline/stages.hpp>
#include <ostrakon/plan/stage_plans.hpp>

namespace ostrakon::plan {
namespace {

/// Returns the position of `x` between `from` (0) and `to` (1); above 1 beyond.
double way(std::int64_t x, std::int64_t from, std::int64_t to) {
  return static_cast<double>(x - from) / static_cast<double>(to - from);
}

/// Returns `count` of the stages: the first, the last, and some between at equal distances, with
/// the busiest.
std::vector<int> pick_stages(const std::vector<double>& work, int count) {
  const int last = static_cast<int>(work.size()) - 1;
  std::vector<int> picked;
  for (int i = 0; i < count; ++i) picked.push_back(i * last / std::max(1, count - 1));
  const int busiest = static_cast<int>(std::max_element(work.begin(), work.end()) - work.begin());
  if (std::find(picked.begin(), picked.end(), busiest) == picked.end()) {
    // The busiest stage replaces the nearest of those between.
    const auto nearest = std::min_element(picked.begin() + 1, picked.end() - 1, [&](int a, int b) {
      return std::abs(a - busiest) < std::abs(b - busiest);
    });
    *nearest = busiest;
  }
  return picked;
}

/// Returns the smallest multiple of `step` that is at least `least`; 0 if `step` is 0.
int multiple(int step, int least) { return step > 0 ? (least + step - 1) / step * step : 0; }

}  // namespace

ShorterSteps::ShorterSteps(const ModelDescription& model, const Policy& policy,
                           const StepLength& whole, bool has_like_layers, int stages_at_a_time)
    : whole_(whole) {
  int fewest = static_cast<int>(whole.layers);  // per chunk
  if (whole.stages > 1 && has_like_layers) fewest = know_chunks(model, policy, stages_at_a_time);
  // With fewer layers than prefetch reaches, other actions would overlap.
  const int least = whole.stages == 1 ? 4 : policy.chunks < 4 ? 3 : 2;
  const int every = std::max(1, policy.activation_checkpointing.every);
  const int few = multiple(every, least), more = few + multiple(every, whole.stages == 1 ? 2 : 1);
  if (!has_like_layers || fewest <= few + more) {
    shorten(0, 1.0, false);
    return;
  }
  more_layers_ = way(fewest, few, more);
  shorten(fewest - more, more_layers_, true);
  shorten(fewest - few, 1.0 - more_layers_, false);
}

/// Returns the minimum number of layers in a chunk; 0 if chunks have others than whole layers.
int ShorterSteps::know_chunks(const ModelDescription& model, const Policy& policy,
                              int stages_at_a_time) {
  const int units = static_cast<int>(model.units.size());
  if (units != whole_.layers + 2) return 0;
  int fewest = units;
  work_.assign(static_cast<std::size_t>(whole_.stages), 0.0);
  for (const UnitRange& chunk : make_chunks(model, policy)) {
    work_[chunk_units_.size() % work_.size()] += flops_of(model, chunk);
    chunk_units_.push_back(chunk.end - chunk.first);
    // The first unit and the last are not layers.
    const int others = (chunk.first == 0 ? 1 : 0) + (chunk.end == units ? 1 : 0);
    fewest = std::min(fewest, chunk_units_.back() - others);
  }
  // If interleaved chunks differ, leaving out stages would change which stage has which chunk.
  const bool are_alike = std::all_of(chunk_units_.begin(), chunk_units_.end(),
                                     [&](int count) { return count == chunk_units_.front(); });
  if (policy.chunks == 1 || are_alike) stages_at_a_time_ = stages_at_a_time;
  return fewest;
}

/// Returns the whole step with `stages` stages, and `cut` layers less in each chunk.
StepLength ShorterSteps::take(int stages, int cut) const {
  StepLength length = whole_;
  if (whole_.stages == 1) length.layers -= cut;
  if (chunk_units_.empty()) return length;
  length.stages = stages;
  length.chunk_units.clear();
  const std::vector<int> picked = pick_stages(work_, stages);
  length.layers = -2;  // the first unit and the last are not layers
  for (std::size_t first = 0; first < chunk_units_.size(); first += work_.size())
    for (const int stage : picked) {
      length.chunk_units.push_back(chunk_units_[first + static_cast<std::size_t>(stage)] - cut);
      length.layers += length.chunk_units.back();
    }
  return length;
}

/// Adds steps for the fit T = a + b layers + c micro-batches: with two numbers of stages and as
/// many micro-batches per stage, and with the fewer stages and twice as many micro-batches.
void ShorterSteps::shorten(int cut, double share, bool has_more_layers) {
  // With fewer micro-batches there may be no time in which all stages are busy.
  constexpr std::int64_t most_of_each_stage = 2;
  const std::int64_t most = std::min(whole_.micro_batches, most_of_each_stage * whole_.stages);
  // Each number of stages must have a whole number of micro-batches.
  const auto step = static_cast<int>(std::lcm<std::int64_t>(
      stages_at_a_time_, whole_.stages / std::gcd<std::int64_t>(whole_.stages, most)));
  // If a node has several stages, two nodes are taken. At least 2 micro-batches are taken, as the
  // first one sums nothing.
  const int least =
      std::max({4, stages_at_a_time_ > 1 ? 2 * stages_at_a_time_ : 0,
                static_cast<int>((std::int64_t{2} * whole_.stages + most - 1) / most)});
  const int fewest = multiple(step, least), few = fewest + multiple(step, 2);
  const bool has_fewer_stages = step > 0 && few < whole_.stages;
  const bool has_fewer_micro_batches = whole_.micro_batches > (has_fewer_stages ? most : 2 * most);
  const auto with_stages = [&](int stages) {
    StepLength length = take(stages, cut);
    if (has_fewer_stages || has_fewer_micro_batches)
      length.micro_batches = most * stages / whole_.stages;
    return length;
  };
  const auto add = [&](const StepLength& length, bool is_deeper, double of_seconds) {
    lengths_.push_back(length);
    forms_.push_back({is_deeper, has_more_layers});
    of_seconds_.push_back(share * of_seconds);
  };
  StepLength shortest = with_stages(has_fewer_stages ? fewest : whole_.stages);
  // `deeper` and `longer` are shares of the distance from the shortest step to the whole one.
  double deeper = 0.0, longer = 0.0;
  std::int64_t added_by_stages = 0;  // micro-batches
  if (has_fewer_stages) {
    const StepLength shorter = with_stages(few);
    more_stages_ = way(whole_.stages, fewest, few);
    // Layers fill a pipeline. Without a step with more micro-batches, their number follows from
    // that of stages.
    deeper = has_fewer_micro_batches && shorter.layers > shortest.layers
                 ? way(take(whole_.stages, cut).layers, shortest.layers, shorter.layers)
                 : more_stages_;
    added_by_stages = shorter.micro_batches - shortest.micro_batches;
    add(shorter, true, deeper);
  }
  if (has_fewer_micro_batches) {
    const auto left = static_cast<double>(whole_.micro_batches - shortest.micro_batches);
    StepLength more = shortest;
    more.micro_batches += more.stages;
    longer = (left - deeper * static_cast<double>(added_by_stages)) / more.stages;
    add(more, false, longer);
  }
  add(shortest, false, 1.0 - deeper - longer);
}

double ShorterSteps::seconds(const std::vector<StepCost>& takes) const {
  double sum = 0.0;
  for (std::size_t i = 0; i < lengths_.size(); ++i) sum += of_seconds_[i] * takes[i].seconds;
  return sum;
}

std::int64_t ShorterSteps::bytes(const std::vector<StepCost>& takes) const {
  // Bytes are found for each stage of the shortest step. The more stages follow a stage, the more
  // it keeps, so half of the stages are counted from the first, half from the last.
  const int shown = lengths_.back().stages;
  double most = 0.0;
  for (int s = 0; s < shown; ++s) {
    double with_layers[2] = {};  // few, more
    for (const bool has_more_layers : {false, true}) {
      std::int64_t with_stages[2] = {};
      for (std::size_t i = 0; i < lengths_.size(); ++i) {
        if (forms_[i].has_more_layers != has_more_layers) continue;
        const int stage = 2 * s < shown ? s : s + lengths_[i].stages - shown;
        std::int64_t& of = with_stages[forms_[i].is_deeper ? 1 : 0];
        of = std::max(of, takes[i].bytes[static_cast<std::size_t>(stage)]);
      }
      with_layers[has_more_layers ? 1 : 0] =
          static_cast<double>(with_stages[0]) +
          more_stages_ * static_cast<double>(with_stages[1] - with_stages[0]);
    }
    most = std::max(most, with_layers[0] + more_layers_ * (with_layers[1] - with_layers[0]));
  }
  return std::llround(most);
}

}  // namespace ostrakon::plan
