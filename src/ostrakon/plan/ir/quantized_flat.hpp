// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace ostrakon::plan {

/// Elements of a flat parameter: [begin, end).
struct FlatElements {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// A flat parameter as it is gathered in 8 bits. It is made of granules of 64 elements. A granule
/// of weights that multiply in 8 bits is sent as 64 codes and two scales, each for 32 of them; any
/// other granule as 64 elements of 16 bits. The owner of a part has whole granules, and so whole
/// blocks that share a scale: no rank needs another one's maximum, and the codes don't depend on
/// how many parts there are. All parts take as many bytes as the largest one, as an all-gather asks
/// for: first the elements of 16 bits, then all codes, then all scales.
struct QuantizedFlat {
  static constexpr std::int64_t granule = 64;  ///< divides shard_alignment
  static constexpr std::int64_t block = 32;    ///< elements that share a scale
  static constexpr int most_runs = 128;

  std::int64_t part_elements = 0;  ///< a multiple of `granule`
  std::int64_t part_bytes = 0;     ///< a multiple of 64; 0: not gathered so
  int runs = 0;                    ///< of granules with codes, in order, none adjacent
  std::int32_t begin[most_runs] = {}, end[most_runs] = {};

  bool empty() const { return part_bytes == 0; }

  QuantizedFlat() = default;
  /// `coded`: elements that are sent as codes, in order; granules that they share count as theirs.
  /// `padded`: elements of the flat parameter, which is divided into `parts`. Throws Error if these
  /// are more than `most_runs` runs.
  QuantizedFlat(const std::vector<FlatElements>& coded, std::int64_t padded, std::int64_t parts);
};

}  // namespace ostrakon::plan
