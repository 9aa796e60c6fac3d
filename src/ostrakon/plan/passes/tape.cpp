// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/passes/tape.hpp>

#include <algorithm>

namespace ostrakon::plan {

Tape::Tape(const ModelDescription& model)
    : units(model.units.size()), chunk_of_(model.units.size(), -1) {
  for (const Chunk& chunk : chunks_of(model)) {
    std::fill(chunk_of_.begin() + chunk.units.first, chunk_of_.begin() + chunk.units.end,
              static_cast<int>(chunks_.size()));
    chunks_.emplace_back();
  }
}

Tape& Tapes::of(const Task& task) {
  const auto [found, is_new] = tapes_.try_emplace(task.micro_batch, builder_.model());
  Tape& tape = found->second;
  if (is_new) {
    const auto& all = builder_.model().units;
    const auto reads = [](const UnitDescription& unit) { return unit.reads_batch; };
    if (task.computes() && std::any_of(all.begin(), all.end(), reads))
      tape.batch = builder_.make_named("batch", Category::activations, builder_.model().batch_bytes,
                                       Space::device);
  }
  return tape;
}

void Tapes::finish() {
  if (builder_.plan().purpose != Purpose::decode) return;
  const Tape& tape = tapes_.at(0);
  const auto keep = [&](int buffer) {
    if (buffer >= 0) builder_.make_persistent(buffer);
  };
  for (int u = 0; u < builder_.units() - 1; ++u) keep(tape.units[u].saved);
}

}  // namespace ostrakon::plan
