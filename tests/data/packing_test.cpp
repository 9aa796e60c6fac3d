// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/data/packing.hpp>
#include <random>
#include <tuple>
#include <vector>

#include "../support/messages.hpp"

namespace ostrakon::data {
namespace {

using Pieces = std::vector<std::pair<std::int64_t, std::int64_t>>;  // first token, places

/// Best-fit decreasing by its definition, in quadratic time. Of several samples with the least room
/// it takes the one that got that room last.
std::vector<Pieces> packed_slowly(const std::vector<std::int64_t>& offsets, std::int64_t places) {
  Pieces pieces;
  for (std::size_t d = 0; d + 1 < offsets.size(); ++d) {
    std::int64_t left = offsets[d + 1] - offsets[d] - 1;
    for (std::int64_t begin = offsets[d]; left > 0; begin += places, left -= places)
      pieces.emplace_back(begin, std::min(left, places));
  }
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  struct Sample {
    Pieces pieces;
    std::int64_t room;
    std::size_t changed;
  };
  std::vector<Sample> samples;
  std::size_t now = 0;
  for (const auto& piece : pieces) {
    Sample* best = nullptr;
    for (Sample& sample : samples) {
      if (sample.room < piece.second) continue;
      if (best == nullptr || sample.room < best->room ||
          (sample.room == best->room && sample.changed > best->changed))
        best = &sample;
    }
    if (best == nullptr) best = &samples.emplace_back(Sample{{}, places, 0});
    best->pieces.push_back(piece);
    best->room -= piece.second;
    best->changed = ++now;
  }
  std::vector<Pieces> all;
  for (const Sample& sample : samples) all.push_back(sample.pieces);
  return all;
}

TEST(Packing, IsBestFitDecreasing) {
  constexpr int documents = 150;
  std::mt19937 generator(1);
  for (int run = 0; run < 60; ++run) {
    const std::int64_t places =
        1 + static_cast<std::int64_t>(generator() % (run % 2 == 0 ? 8 : 200));
    const int longest = run % 3 == 0 && places > 50 ? 500 : 30;
    std::vector<std::int64_t> offsets = {0};
    for (int d = 0; d < documents; ++d)
      offsets.push_back(offsets.back() + 1 + static_cast<std::int64_t>(generator() % longest));
    const std::vector<Pieces> expected = packed_slowly(offsets, places);
    const Packing packing(offsets, places);
    ASSERT_EQ(packing.samples(), expected.size());
    std::int64_t used = 0;
    for (std::uint64_t s = 0; s < packing.samples(); ++s) {
      Pieces found;
      for (const Packing::Piece& piece : packing.pieces(s)) {
        found.emplace_back(piece.begin, piece.places);
        used += piece.places;
      }
      ASSERT_EQ(found, expected[s]) << "sample " << s;
    }
    // Each token but the first of a document is predicted once.
    EXPECT_EQ(used, offsets.back() - documents);
    EXPECT_EQ(used, packing.used_places());
  }
}

TEST(Packing, LeavesOutDocumentsOfOneToken) {
  EXPECT_EQ(Packing({0, 1, 2}, 4).samples(), 0u);
  const Packing packing({0, 1, 3, 4}, 4);
  ASSERT_EQ(packing.samples(), 1u);
  ASSERT_EQ(packing.pieces(0).size(), 1u);
  EXPECT_EQ(packing.pieces(0)[0].begin, 1);
  EXPECT_EQ(packing.piece_count(), 1);
  EXPECT_HAS(testing::error_of([] { Packing({0, 5}, 0); }), "samples of 0 places");
}

TEST(Packing, FillsSamplesOfManyShortDocuments) {
  std::mt19937 generator(2);
  std::vector<std::int64_t> offsets = {0};
  for (int d = 0; d < 200'000; ++d)
    offsets.push_back(offsets.back() + 2 + static_cast<std::int64_t>(generator() % 1000));
  const Packing packing(offsets, 1024);
  const double places = 1024.0 * static_cast<double>(packing.samples());
  EXPECT_GT(static_cast<double>(packing.used_places()) / places, 0.99);
}

}  // namespace
}  // namespace ostrakon::data
