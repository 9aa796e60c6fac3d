// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace ostrakon::data {

/// Whole documents packed into samples of a fixed number of places, a function of the documents'
/// lengths and of that number.
///
/// A document of n tokens takes n - 1 places, one for each token that is predicted; one of a single
/// token takes none and is left out. A document that takes more places than a sample has is cut
/// into pieces that begin `places` tokens apart, each a document of its own, so that each of its
/// tokens but the first is predicted once. Pieces are packed by best-fit decreasing: from the
/// longest to the shortest, each into the sample with the least room that is left for it, or into a
/// new one.
class Packing {
 public:
  /// `offsets`: where each document begins in the file, and where the last one ends. `places`: at
  /// least 1. Takes N log(places) time and, while it lasts, 40 bytes for each of N pieces.
  Packing(const std::vector<std::int64_t>& offsets, std::int64_t places);

  /// A document, or a piece of one: `places` + 1 tokens of the file from `begin` on.
  struct Piece {
    std::int64_t begin = 0;
    std::int64_t places = 0;
  };

  std::uint64_t samples() const { return first_.size() - 1; }
  /// Returns the pieces of a sample, the longest first.
  std::vector<Piece> pieces(std::uint64_t sample) const;
  /// Number of pieces in all samples, and of places that they take.
  std::int64_t piece_count() const { return static_cast<std::int64_t>(begins_.size()); }
  std::int64_t used_places() const { return used_places_; }

 private:
  // Pieces, sorted by sample.
  std::vector<std::int64_t> begins_;
  std::vector<std::int32_t> places_;
  std::vector<std::uint64_t> first_;  ///< the first piece of each sample; at the end all
  std::int64_t used_places_ = 0;
};

}  // namespace ostrakon::data
