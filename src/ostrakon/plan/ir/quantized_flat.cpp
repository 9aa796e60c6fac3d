// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/ir/quantized_flat.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>

namespace ostrakon::plan {
namespace {

constexpr std::int64_t bytes_of_elements = 2 * QuantizedFlat::granule;
constexpr std::int64_t bytes_of_codes =
    QuantizedFlat::granule + QuantizedFlat::granule / QuantizedFlat::block;
constexpr std::int64_t part_alignment = 64;

}  // namespace

QuantizedFlat::QuantizedFlat(const std::vector<FlatElements>& coded, std::int64_t padded,
                             std::int64_t parts) {
  for (const FlatElements& weights : coded) {
    const auto first = static_cast<std::int32_t>(weights.begin / granule);
    const auto last = static_cast<std::int32_t>((weights.end + granule - 1) / granule);
    if (runs > 0 && first <= end[runs - 1]) {
      end[runs - 1] = std::max(end[runs - 1], last);
      continue;
    }
    require(runs < most_runs, "precision.gather = fp8: a unit has more than ", most_runs,
            " runs of weights with other parameters between them; expected fewer blocks in a unit, "
            "or a smaller model.tensor_grain");
    begin[runs] = first;
    end[runs++] = last;
  }
  part_elements = padded / parts;
  const std::int64_t granules = part_elements / granule;
  for (std::int64_t part = 0; part < parts; ++part) {
    std::int64_t codes = 0;
    for (int run = 0; run < runs; ++run)
      codes += std::max<std::int64_t>(0, std::min<std::int64_t>(end[run], (part + 1) * granules) -
                                             std::max<std::int64_t>(begin[run], part * granules));
    const std::int64_t bytes = codes * bytes_of_codes + (granules - codes) * bytes_of_elements;
    part_bytes =
        std::max(part_bytes, (bytes + part_alignment - 1) / part_alignment * part_alignment);
  }
}

}  // namespace ostrakon::plan
