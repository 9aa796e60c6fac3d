// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <ostrakon/data/dataset.hpp>
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
  bool has_documents() const override { return true; }
  void read_rows(std::uint64_t index, const data::SampleRows& rows) override {
    of_->read_rows(index, {rows.tokens, rows.targets, nullptr});
    const std::vector<std::int32_t> begins = begins_of(index);
    std::copy(begins.begin(), begins.end(), rows.document_begins);
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
