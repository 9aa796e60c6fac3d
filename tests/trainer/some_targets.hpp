// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <ostrakon/data/sample_source.hpp>
#include <ostrakon/math/attention/sequence_parts.hpp>
#include <utility>

namespace ostrakon::tests {

/// The samples of another source, with targets of -1 where counts(sample, position) is false.
class SomeTargets : public data::SampleSource {
 public:
  using Counts = std::function<bool(std::uint64_t sample, std::int64_t position)>;
  /// `arrays`: of a batch, one of each token.
  SomeTargets(data::SampleSource& samples, Counts counts, std::int64_t arrays = 2)
      : samples_(samples), counts_(std::move(counts)), arrays_(arrays) {}

  std::int64_t sample_bytes() const override { return samples_.sample_bytes(); }
  void fill(std::uint64_t first, std::int64_t count, void* batch) override {
    fill_part(first, count, {}, batch);
  }
  void fill_part(std::uint64_t first, std::int64_t count, const data::SamplePart& part,
                 void* batch) override {
    samples_.fill_part(first, count, part, batch);
    const std::int64_t of_token = arrays_ * static_cast<std::int64_t>(sizeof(std::int32_t));
    const math::SequenceParts sequence{sample_bytes() / of_token, part.parts, part.pieces};
    const std::int64_t tokens = sequence.part_tokens();
    std::int32_t* const targets = static_cast<std::int32_t*>(batch) + count * tokens;
    for (std::int64_t s = 0; s < count; ++s)
      for (std::int64_t r = 0; r < sequence.runs(); ++r) {
        const math::TokenRun run = sequence.run(part.index, r);
        for (std::int64_t i = 0; i < run.count; ++i)
          if (!counts_(first + static_cast<std::uint64_t>(s), run.position + i))
            targets[s * tokens + run.row + i] = -1;
      }
  }

 private:
  data::SampleSource& samples_;
  Counts counts_;
  std::int64_t arrays_;
};

/// In samples one after the other none, few, most or all targets count, at scattered positions, as
/// tests/transformers/README.md says.
inline bool counts_unequally(std::uint64_t sample, std::int64_t position) {
  const auto mixed = static_cast<std::uint64_t>(position) * 7919 + sample * 104729;
  return mixed % 11 < sample * 5 % 12;
}

}  // namespace ostrakon::tests
