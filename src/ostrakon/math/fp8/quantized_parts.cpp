// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/fp8/quantized_parts.hpp>

#include <ostrakon/math/convert_run.hpp>
#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/fp8/formats.hpp>
#include <ostrakon/math/row_kernel.hpp>

namespace ostrakon::math {
namespace {

using plan::QuantizedFlat;

constexpr int granule = static_cast<int>(QuantizedFlat::granule);
constexpr int block = static_cast<int>(QuantizedFlat::block);
static_assert(block == mx_block, "blocks are those of products in 8 bits");
constexpr int blocks_of_granule = granule / block;

/// Granules with codes among the first `granules` of a flat parameter.
KOKKOS_INLINE_FUNCTION std::int64_t codes_before(const QuantizedFlat& flat, std::int64_t granules) {
  std::int64_t count = 0;
  for (int run = 0; run < flat.runs && flat.begin[run] < granules; ++run)
    count += smaller(flat.end[run], granules) - flat.begin[run];
  return count;
}

/// Where a granule is among the bytes of its part.
struct GranulePlace {
  bool has_codes;
  std::int64_t at;      ///< of its codes, or of its elements of 16 bits
  std::int64_t scales;  ///< of its scales

  /// `index`: number of the granule in the part.
  KOKKOS_INLINE_FUNCTION GranulePlace(const QuantizedFlat& flat, std::int64_t part,
                                      std::int64_t index) {
    const std::int64_t granules = flat.part_elements / granule, first = part * granules;
    const std::int64_t before = codes_before(flat, first);
    const std::int64_t codes = codes_before(flat, first + index) - before;
    const std::int64_t all = codes_before(flat, first + granules) - before;
    const std::int64_t elements = (granules - all) * granule * std::int64_t{sizeof(bf16)};
    has_codes = codes_before(flat, first + index + 1) - before > codes;
    at = has_codes ? elements + codes * granule
                   : (index - codes) * granule * std::int64_t{sizeof(bf16)};
    scales = elements + all * granule + codes * blocks_of_granule;
  }
};

KOKKOS_INLINE_FUNCTION void quantize_block(const float* x, std::uint8_t* codes,
                                           std::uint8_t& scale) {
  std::uint32_t largest = 0;
  for (int i = 0; i < block; ++i) {
    const std::uint32_t size = half_bits::of_float(x[i]) & ~half_bits::float_sign;
    largest = size > largest ? size : largest;
  }
  const Fp8Scale shared(Fp8Format::e4m3, largest);
  scale = static_cast<std::uint8_t>(half_bits::of_float(shared.scale) >> 23);
  for (int i = 0; i < block; ++i) codes[i] = fp8_of(Fp8Format::e4m3, x[i] * shared.inverse);
}

KOKKOS_INLINE_FUNCTION void dequantize_block(const std::uint8_t* codes, std::uint8_t scale,
                                             bf16* y) {
  // The exponent 255, NaN in e8m0, makes an infinity here. All codes of such a block are NaN, and
  // so are the products.
  const float shared = half_bits::to_float(static_cast<std::uint32_t>(scale) << 23);
  for (int i = 0; i < block; ++i) y[i] = bf16(float_of_fp8(Fp8Format::e4m3, codes[i]) * shared);
}

}  // namespace

template <class Space>
void quantize_part(const ExecutorFor<Space>& where, const plan::QuantizedFlat& flat,
                   std::int64_t part, View<const float*, Space> x, View<std::uint8_t*, Space> to) {
  require_equal_sizes("quantize_part", x.size(), flat.part_elements);
  require_equal_sizes("quantize_part", to.size(), flat.part_bytes);
  const QuantizedFlat parts = flat;
  for_each_item(
      where, "quantize_part", flat.part_elements / granule, KOKKOS_LAMBDA(std::int64_t item) {
        const GranulePlace place(parts, part, item);
        const float* const from = x.data() + item * granule;
        std::uint8_t* const target = to.data() + place.at;
        if (!place.has_codes) {
          convert_run(from, reinterpret_cast<bf16*>(target), granule);
          return;
        }
        for (std::ptrdiff_t b = 0; b < blocks_of_granule; ++b)
          quantize_block(from + b * block, target + b * block, to[place.scales + b]);
      });
}

template <class Space>
void dequantize_parts(const ExecutorFor<Space>& where, const plan::QuantizedFlat& flat,
                      std::int64_t first, View<const std::uint8_t*, Space> x,
                      View<bf16*, Space> y) {
  const std::int64_t parts = y.size() / flat.part_elements;
  require_equal_sizes("dequantize_parts", y.size(), parts * flat.part_elements);
  require_equal_sizes("dequantize_parts", x.size(), parts * flat.part_bytes);
  const QuantizedFlat all = flat;
  const std::int64_t granules = flat.part_elements / granule;
  for_each_item(
      where, "dequantize", y.size() / granule, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t part = item / granules;
        const GranulePlace place(all, first + part, item % granules);
        const std::uint8_t* const of_part = x.data() + part * all.part_bytes;
        bf16* const target = y.data() + item * granule;
        if (!place.has_codes) {
          convert_run(reinterpret_cast<const bf16*>(of_part + place.at), target, granule);
          return;
        }
        for (std::ptrdiff_t b = 0; b < blocks_of_granule; ++b)
          dequantize_block(of_part + place.at + b * block, of_part[place.scales + b],
                           target + b * block);
      });
}

#define OSTRAKON_INSTANTIATE(Where, Space)                                                      \
  template void quantize_part<Space>(const Where&, const plan::QuantizedFlat&, std::int64_t,    \
                                     View<const float*, Space>, View<std::uint8_t*, Space>);    \
  template void dequantize_parts<Space>(const Where&, const plan::QuantizedFlat&, std::int64_t, \
                                        View<const std::uint8_t*, Space>, View<bf16*, Space>);
OSTRAKON_INSTANTIATE(Exec, OnDevice)
OSTRAKON_INSTANTIATE(CallingThread, OnHost)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
