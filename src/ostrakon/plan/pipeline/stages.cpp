// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/pipeline/stages.hpp>

#include <algorithm>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <utility>

namespace ostrakon::plan {
namespace {

void check_chunks(const ModelDescription& model, const std::vector<UnitRange>& chunks) {
  const int units = static_cast<int>(model.units.size());
  int next = 0;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    require(chunks[c].first == next && chunks[c].end > next && chunks[c].end <= units, "chunk ", c,
            " has the units [", chunks[c].first, ", ", chunks[c].end, "), expected some from ",
            next, " on, of ", units);
    next = chunks[c].end;
    if (next == units) continue;
    const UnitDescription& last = model.units[next - 1];
    require(last.output_bytes > 0, "unit ", last.name, " is the last of chunk ", c,
            " and leaves nothing for the next");
    for (std::int64_t bytes : {last.output_bytes, model.gradient_bytes})
      require(bytes % model.element_bytes == 0, "unit ", last.name, " is the last of chunk ", c,
              " and passes on ", bytes, " bytes, which is not a multiple of the dtype's ",
              model.element_bytes, " bytes");
  }
  require(next == units, "the chunks have ", next, " units of ", units);
}

/// Adds copies of units in other stages that units of this stage are tied to, before its own.
void borrow_tied(const ModelDescription& model, const std::vector<UnitRange>& chunks, int stages,
                 ModelDescription& stage) {
  std::vector<UnitDescription> borrowed;
  for (UnitDescription& unit : stage.units) {
    const auto is_it = [&](const UnitDescription& other) { return other.number == unit.tied_to; };
    if (unit.tied_to < 0 || std::any_of(stage.units.begin(), stage.units.end(), is_it)) continue;
    UnitDescription copy = model.units[unit.tied_to];
    copy.number = unit.tied_to;
    copy.recomputes = copy.reads_batch = false;
    copy.tied_to = -1;
    copy.whole_matrices.clear();
    for (std::size_t c = 0; c < chunks.size(); ++c)
      if (chunks[c].has(unit.tied_to)) copy.tied_stages.source = static_cast<int>(c) % stages;
    borrowed.push_back(copy);
    unit.sums_tied_apart = unit.tied_gradients;
  }
  const int before = static_cast<int>(borrowed.size());
  stage.units.insert(stage.units.begin(), borrowed.begin(), borrowed.end());
  for (Chunk& chunk : stage.chunks) {
    chunk.units.first += before;
    chunk.units.end += before;
  }
}

/// Notes which stages have copies of a stage's units, and whether that changes the order of sums.
void note_copies(const ModelDescription& model, std::vector<ModelDescription>& stages) {
  for (int s = 0; s < static_cast<int>(stages.size()); ++s)
    for (const UnitDescription& unit : stages[s].units) {
      const int tied_to = unit.number < 0 ? -1 : model.units[unit.number].tied_to;
      if (tied_to < 0) continue;
      for (ModelDescription& other : stages)
        for (UnitDescription& lent : other.units)
          if (lent.number == tied_to && lent.tied_stages.source < 0 && &other != &stages[s]) {
            lent.tied_stages.replica = s;
            lent.tied_stages.replica_has_gradient =
                unit.tied_gradients && lent.trained_elements() > 0;
          }
      if (unit.sums_tied_apart == model.units[unit.number].sums_tied_apart) continue;
      for (ModelDescription& other : stages) other.splits_ties = true;
    }
}

/// Renumbers ties to units of the model as ties to units of the stage.
void renumber_ties(ModelDescription& stage) {
  for (UnitDescription& unit : stage.units) {
    if (unit.tied_to < 0) continue;
    const auto found =
        std::find_if(stage.units.begin(), stage.units.end(),
                     [&](const UnitDescription& other) { return other.number == unit.tied_to; });
    unit.tied_to = static_cast<int>(found - stage.units.begin());
  }
}

/// Returns a list of units to prefetch by name without units of other stages.
std::optional<Prefetch> only_of_stage(std::optional<Prefetch> prefetch,
                                      const ModelDescription& stage) {
  if (!prefetch || prefetch->units.empty()) return prefetch;
  std::vector<std::string>& names = prefetch->units;
  names.erase(std::remove_if(names.begin(), names.end(),
                             [&](const std::string& name) {
                               return std::none_of(
                                   stage.units.begin(), stage.units.end(),
                                   [&](const UnitDescription& unit) { return unit.name == name; });
                             }),
              names.end());
  // The list replaces the next units, also if none of its units are left.
  if (names.empty()) prefetch->depth = 0;
  return prefetch;
}

}  // namespace

std::vector<UnitRange> divide_units(const ModelDescription& model, int chunks) {
  const int units = static_cast<int>(model.units.size());
  require(chunks >= 1 && chunks <= units, "expected at least as many units as chunks: ", units,
          " units in ", chunks, " chunks");
  std::vector<double> before(static_cast<std::size_t>(units) + 1, 0.0);
  for (int u = 0; u < units; ++u)
    before[u + 1] = before[u] + flops(model.units[u].forward) + flops(model.units[u].backward);
  // `least` and `begins` have, for the first `end` units in c chunks, the minimum of the busiest
  // chunk's work, and where the last chunk begins then.
  std::vector<std::vector<double>> least(
      chunks + 1, std::vector<double>(units + 1, std::numeric_limits<double>::infinity()));
  std::vector<std::vector<int>> begins(chunks + 1, std::vector<int>(units + 1, 0));
  least[0][0] = 0.0;
  for (int c = 1; c <= chunks; ++c)
    for (int end = c; end <= units; ++end)
      for (int begin = c - 1; begin < end; ++begin) {
        const double busiest = std::max(least[c - 1][begin], before[end] - before[begin]);
        if (!(busiest < least[c][end])) continue;
        least[c][end] = busiest;
        begins[c][end] = begin;
      }
  std::vector<UnitRange> ranges(static_cast<std::size_t>(chunks));
  for (int c = chunks, end = units; c > 0; end = begins[c--][end])
    ranges[c - 1] = {begins[c][end], end};
  return ranges;
}

std::vector<UnitRange> make_chunks(const ModelDescription& model, const Policy& policy) {
  const std::vector<int>& given = policy.chunk_units;
  const std::int64_t count = std::int64_t{policy.stages} * policy.chunks;
  const int units = static_cast<int>(model.units.size());
  if (given.empty()) {
    require(count <= units, "parallel.pipeline = ", policy.stages,
            policy.chunks > 1 ? text(" with parallel.pipeline_chunks = ", policy.chunks) : "",
            " needs at least ", count, " units, but the model has ", units,
            "; expected fewer, or more units (model.blocks_per_unit)");
    return divide_units(model, static_cast<int>(count));
  }
  require(static_cast<std::int64_t>(given.size()) == count, "parallel.pipeline_units has ",
          given.size(), " numbers; expected ", count, ", one for each chunk of each stage");
  std::vector<UnitRange> chunks;
  int next = 0;
  for (int of_chunk : given) {
    chunks.push_back({next, next + of_chunk});
    next += of_chunk;
  }
  require(next == units, "parallel.pipeline_units are ", next, " units in all; expected the ",
          units, " of the model");
  return chunks;
}

int first_backward(const ModelDescription& model, const std::vector<UnitRange>& chunks) {
  int first = 0;
  for (const UnitRange& chunk : chunks) {
    for (int u = chunk.first; u < chunk.end; ++u)
      if (model.units[u].trained_elements() > 0) return first;
    ++first;
  }
  return first;
}

std::vector<ModelDescription> make_stages(const ModelDescription& model,
                                          const std::vector<UnitRange>& chunks, int stages) {
  check_chunks(model, chunks);
  const int count = static_cast<int>(chunks.size());
  require(stages >= 1 && count % stages == 0, count, " chunks in ", stages,
          " stages; expected as many in each");
  const int first_trained = first_backward(model, chunks);
  std::vector<ModelDescription> made;
  for (int s = 0; s < stages; ++s) {
    ModelDescription stage = model;
    stage.units.clear();
    for (int number = s; number < count; number += stages) {
      Chunk chunk;
      chunk.number = number;
      chunk.units.first = static_cast<int>(stage.units.size());
      for (int u = chunks[number].first; u < chunks[number].end; ++u) {
        stage.units.push_back(model.units[u]);
        stage.units.back().number = u;
      }
      chunk.units.end = static_cast<int>(stage.units.size());
      if (number > 0) chunk.input_bytes = model.units[chunks[number].first - 1].output_bytes;
      chunk.input_has_gradient = number > first_trained;
      stage.chunks.push_back(chunk);
    }
    stage.has_loss = s == stages - 1;
    borrow_tied(model, chunks, stages, stage);
    renumber_ties(stage);
    made.push_back(std::move(stage));
  }
  note_copies(model, made);
  return made;
}

Policy policy_of_stage(const Policy& policy, const ModelDescription& stage) {
  Policy ours = policy;
  ours.forward_prefetch = *only_of_stage(policy.forward_prefetch, stage);
  ours.backward_prefetch = *only_of_stage(policy.backward_prefetch, stage);
  ours.units.clear();
  for (UnitRule rule : policy.units) {
    if (std::none_of(stage.units.begin(), stage.units.end(),
                     [&](const UnitDescription& unit) { return matches(rule.pattern, unit.name); }))
      continue;
    rule.forward_prefetch = only_of_stage(rule.forward_prefetch, stage);
    rule.backward_prefetch = only_of_stage(rule.backward_prefetch, stage);
    ours.units.push_back(std::move(rule));
  }
  return ours;
}

}  // namespace ostrakon::plan
