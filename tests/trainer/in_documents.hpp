// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <ostrakon/data/dataset.hpp>
#include <ostrakon/math/attention/sequence_parts.hpp>
#include <random>
#include <utility>
#include <vector>

namespace ostrakon::tests {

/// The samples of another data set, each cut into documents of lengths that depend on its index:
/// many of 1, and in every fourth sample one document alone.
class InDocuments : public data::Dataset {
 public:
  explicit InDocuments(std::unique_ptr<data::Dataset> of)
      : Dataset(of->length()), of_(std::move(of)) {}

  void read(std::uint64_t index, std::int32_t* tokens) override { of_->read(index, tokens); }
  std::uint64_t samples() const override { return of_->samples(); }
  std::optional<double> entropy() const override { return of_->entropy(); }
  std::int64_t sample_bytes() const override { return of_->sample_bytes() / 2 * 3; }
  void fill(std::uint64_t first, std::int64_t count, void* batch) override {
    fill_part(first, count, {}, batch);
  }
  void fill_part(std::uint64_t first, std::int64_t count, const data::SamplePart& part,
                 void* batch) override {
    of_->fill_part(first, count, part, batch);
    const math::SequenceParts sequence{length() - 1, part.parts, part.pieces};
    auto* const begins = static_cast<std::int32_t*>(batch) + 2 * count * sequence.part_tokens();
    for (std::int64_t s = 0; s < count; ++s) {
      const std::vector<std::int32_t> all = begins_of(first + static_cast<std::uint64_t>(s));
      for (std::int64_t row = 0; row < sequence.part_tokens(); ++row)
        begins[s * sequence.part_tokens() + row] =
            all[static_cast<std::size_t>(sequence.position(part.index, row))];
    }
  }

 private:
  std::vector<std::int32_t> begins_of(std::uint64_t index) const {
    std::vector<std::int32_t> begins;
    std::mt19937_64 random(index);
    const std::int64_t tokens = length() - 1, lengths[] = {1, 1, 3, 9, 20, 70};
    while (static_cast<std::int64_t>(begins.size()) < tokens) {
      const auto begin = static_cast<std::int64_t>(begins.size());
      const std::int64_t some = index % 4 == 3 ? tokens : lengths[random() % std::size(lengths)];
      begins.insert(begins.end(), static_cast<std::size_t>(std::min(some, tokens - begin)),
                    static_cast<std::int32_t>(begin));
    }
    return begins;
  }

  std::unique_ptr<data::Dataset> of_;
};

}  // namespace ostrakon::tests
