// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/fp8/quantized_parts.hpp>

#include <ostrakon/math/convert_run.hpp>
#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/fp8/formats.hpp>
#include <ostrakon/math/fp8/packed_elements.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>
#include <ostrakon/math/unrolled.hpp>

namespace ostrakon::math {
namespace {

using plan::QuantizedFlat;

constexpr int granule = static_cast<int>(QuantizedFlat::granule);
constexpr int block_elements = static_cast<int>(QuantizedFlat::block);
static_assert(block_elements == mx_block, "blocks are those of products in 8 bits");
constexpr int blocks_of_granule = granule / block_elements;

/// Whether a granule of a flat parameter has codes, and how many before it have.
struct Codes {
  std::int32_t before = 0;
  bool here = false;

  KOKKOS_INLINE_FUNCTION Codes(const QuantizedFlat& flat, std::int32_t index) {
    for (int run = 0; run < flat.runs && flat.begin[run] <= index; ++run) {
      here = index < flat.end[run];
      before += (here ? index : flat.end[run]) - flat.begin[run];
    }
  }
};

/// Where a part begins, and where what among its bytes. It is found once for many granules.
struct PartPlace {
  std::int32_t first;          ///< granule of the flat parameter
  std::int32_t before;         ///< granules with codes before it
  std::int64_t codes, scales;  ///< the first byte of its codes, and that of its scales

  KOKKOS_INLINE_FUNCTION PartPlace(const QuantizedFlat& flat, std::int64_t part) {
    const auto granules = static_cast<std::int32_t>(flat.part_elements / granule);
    first = static_cast<std::int32_t>(part) * granules;
    before = Codes(flat, first).before;
    const std::int64_t all = Codes(flat, first + granules).before - before;
    codes = (granules - all) * granule * std::int64_t{sizeof(bf16)};
    scales = codes + all * granule;
  }
};

/// Where a granule is among the bytes of its part.
struct GranulePlace {
  bool has_codes;
  std::int64_t at;      ///< of its codes, or of its elements of 16 bits
  std::int64_t scales;  ///< of its scales

  /// `index`: number of the granule in the part.
  KOKKOS_INLINE_FUNCTION GranulePlace(const QuantizedFlat& flat, const PartPlace& part,
                                      std::int64_t index) {
    const Codes codes(flat, part.first + static_cast<std::int32_t>(index));
    const std::int64_t before = codes.before - part.before;
    has_codes = codes.here;
    at = has_codes ? part.codes + before * granule
                   : (index - before) * granule * std::int64_t{sizeof(bf16)};
    scales = part.scales + before * blocks_of_granule;
  }
};

/// Returns the scale of a block by its exponent. 255, NaN in e8m0, makes an infinity here: all
/// codes of such a block are NaN, and so are their products with it.
KOKKOS_INLINE_FUNCTION float scale_of(std::uint8_t exponent) {
  return half_bits::to_float(static_cast<std::uint32_t>(exponent) << 23);
}

KOKKOS_INLINE_FUNCTION bf16 element_of(std::uint8_t code, float scale) {
  return bf16(float_of_fp8(Fp8Format::e4m3, code) * scale);
}

KOKKOS_INLINE_FUNCTION void quantize_block(const float* x, std::uint8_t* codes,
                                           std::uint8_t& scale) {
  std::uint32_t largest = 0;
  for (int i = 0; i < block_elements; ++i) largest = larger(largest, magnitude_bits(x[i]));
  const Fp8Scale shared(Fp8Format::e4m3, largest);
  scale = shared.exponent();
  for (int i = 0; i < block_elements; ++i)
    codes[i] = fp8_of(Fp8Format::e4m3, x[i] * shared.inverse);
}

template <class Where>
void quantize(const Where& where, const QuantizedFlat& flat, std::int64_t part, const float* x,
              std::uint8_t* to) {
  const QuantizedFlat parts = flat;
  const PartPlace of_part(flat, part);
  for_each_item(
      where, "quantize_part", flat.part_elements / granule, KOKKOS_LAMBDA(std::int64_t item) {
        const GranulePlace place(parts, of_part, item);
        const float* const from = x + item * granule;
        std::uint8_t* const target = to + place.at;
        if (!place.has_codes) {
          convert_run(from, reinterpret_cast<bf16*>(target), granule);
          return;
        }
        for (std::ptrdiff_t b = 0; b < blocks_of_granule; ++b)
          quantize_block(from + b * block_elements, target + b * block_elements,
                         to[place.scales + b]);
      });
}

template <class Where>
void dequantize(const Where& where, const QuantizedFlat& flat, std::int64_t first,
                std::int64_t parts, const std::uint8_t* x, bf16* y) {
  const QuantizedFlat all = flat;
  const std::int64_t granules = flat.part_elements / granule;
  for_each_item(
      where, "dequantize", parts * granules, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t part = item / granules;
        const GranulePlace place(all, PartPlace(all, first + part), item % granules);
        const std::uint8_t* const bytes = x + part * all.part_bytes;
        bf16* const target = y + item * granule;
        if (!place.has_codes) {
          convert_run(reinterpret_cast<const bf16*>(bytes + place.at), target, granule);
          return;
        }
        for (int i = 0; i < granule; ++i)
          target[i] =
              element_of(bytes[place.at + i], scale_of(bytes[place.scales + i / block_elements]));
      });
}

#if OSTRAKON_ON_DEVICE

// A thread begins to load all its vectors before it uses the first of them.
constexpr int vectors = 4, threads_of_team = 128;

/// Runs body(team) for teams whose threads have `lanes` lanes each.
template <class Body>
void for_each_lane_team(const Exec& exec, const char* name, std::int64_t teams, int threads,
                        int lanes, const Body& body) {
  if (teams == 0 || LaunchCount::takes_one(name)) return;
  const ObservedKernel observed(name);
  Kokkos::parallel_for(name, TeamPolicy(exec, static_cast<int>(teams), threads, lanes), body);
}

/// The masters of a block. The lanes that share it are adjacent ones of a warp, with a vector each;
/// in tests on a host one thread has the vectors of all.
class HeldBlock {
 public:
  static constexpr int n = vector_elements<float>(), lanes = block_elements / n;

  KOKKOS_FUNCTION void load(const TeamMember& team, const float* from) {
    for_each_lane(team, [&](int lane) { of(lane) = load_vector<n>(from + lane * n); });
  }
  KOKKOS_FUNCTION void store_elements(const TeamMember& team, bf16* to) const {
    for_each_lane(team, [&](int lane) {
      Vector<bf16, n> out;
      for (int k = 0; k < n; ++k) out.at[k] = bf16(of(lane).at[k]);
      store_vector<n>(to + lane * n, out);
    });
  }
  KOKKOS_FUNCTION void store_codes(const TeamMember& team, std::uint8_t* codes,
                                   std::uint8_t* exponent) const {
    std::uint32_t largest = 0;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(team, lanes),
        [&](int lane, std::uint32_t& own) {
          for (int k = 0; k < n; ++k) own = larger(own, magnitude_bits(of(lane).at[k]));
        },
        Kokkos::Max<std::uint32_t>(largest));
    const Fp8Scale scale(Fp8Format::e4m3, largest);
    auto* const words = reinterpret_cast<std::uint32_t*>(codes);
    for_each_lane(team, [&](int lane) {
      const auto scaled = [&](int k) { return of(lane).at[k] * scale.inverse; };
      store_vector<1>(words + lane,
                      {{fp8_word_of(Fp8Format::e4m3, scaled(0), scaled(1), scaled(2), scaled(3))}});
      if (lane == 0) store_vector<1>(exponent, {{scale.exponent()}});
    });
  }

 private:
  template <class Body>
  KOKKOS_FUNCTION static void for_each_lane(const TeamMember& team, const Body& body) {
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, lanes), body);
  }

#if OSTRAKON_IN_DEVICE_CODE
  static constexpr int held = 1;
#else
  static constexpr int held = lanes;
#endif
  KOKKOS_FUNCTION Vector<float, n>& of(int lane) { return values_[lane % held]; }
  KOKKOS_FUNCTION const Vector<float, n>& of(int lane) const { return values_[lane % held]; }

  Vector<float, n> values_[held];
};

void quantize(const Exec& exec, const QuantizedFlat& flat, std::int64_t part, const float* x,
              std::uint8_t* to) {
  constexpr int lanes = HeldBlock::lanes;
  constexpr int threads = products_on_device ? threads_of_team / lanes : 1;
  require(begin_vectors<HeldBlock::n>(x) && begin_vectors<16>(to),
          "quantize_part: arrays do not begin at multiples of 16 bytes");
  const QuantizedFlat parts = flat;
  const PartPlace of_part(flat, part);
  const std::int64_t blocks = flat.part_elements / block_elements;
  for_each_lane_team(
      exec, "quantize_part", items_for(blocks, std::int64_t{threads} * vectors), threads, lanes,
      KOKKOS_LAMBDA(const TeamMember& team) {
        const std::int64_t first =
            static_cast<std::int64_t>(team.league_rank()) * threads * vectors + team.team_rank();
        HeldBlock held[vectors];
        const auto for_each_block = [&](const auto& body) {
          unrolled<vectors>([&](int v) {
            const std::int64_t b = first + static_cast<std::int64_t>(v * threads);
            if (b < blocks) body(held[v], b);
          });
        };
        for_each_block(
            [&](HeldBlock& own, std::int64_t b) { own.load(team, x + b * block_elements); });
        for_each_block([&](const HeldBlock& own, std::int64_t b) {
          const GranulePlace place(parts, of_part, b / blocks_of_granule);
          const std::int64_t in_granule = b % blocks_of_granule;
          std::uint8_t* const target = to + place.at;
          if (place.has_codes)
            own.store_codes(team, target + in_granule * block_elements,
                            to + place.scales + in_granule);
          else
            own.store_elements(team, reinterpret_cast<bf16*>(target) + in_granule * block_elements);
        });
      });
}

/// A vector of elements of 16 bits as it was sent: these, or codes in the first half.
struct SentVector {
  static constexpr int n = vector_elements<bf16>(), of_granule = granule / n,
                       of_block = block_elements / n;

  Vector<std::uint32_t, 4> words;
  std::uint8_t exponent;
  bool has_codes;

  /// `index`: number of the vector in its granule.
  KOKKOS_FUNCTION void load(const std::uint8_t* part, const GranulePlace& place, int index) {
    const auto* const from = reinterpret_cast<const std::uint32_t*>(part + place.at);
    has_codes = place.has_codes;
    if (!has_codes) {
      words = load_vector<4>(from + std::ptrdiff_t{4} * index);
      return;
    }
    const auto codes = load_vector<2>(from + std::ptrdiff_t{2} * index);
    for (int w = 0; w < 2; ++w) words.at[w] = codes.at[w];
    exponent = load_vector<1>(part + place.scales + index / of_block).at[0];
  }
  /// Returns the elements in bf16, as words.
  KOKKOS_FUNCTION Vector<std::uint32_t, 4> elements() const {
    if (!has_codes) return words;
    const float scale = scale_of(exponent);
    const auto bits = [&](int k) {
      const auto code = static_cast<std::uint8_t>(words.at[k / 4] >> (k % 4 * 8));
      return std::uint32_t{element_of(code, scale).bits};
    };
    Vector<std::uint32_t, 4> out;
    for (int w = 0; w < 4; ++w) out.at[w] = bits(2 * w) | bits(2 * w + 1) << 16;
    return out;
  }
};

void dequantize(const Exec& exec, const QuantizedFlat& flat, std::int64_t first, std::int64_t parts,
                const std::uint8_t* x, bf16* y) {
  constexpr int threads = products_on_device ? threads_of_team : 1;
  require(begin_vectors<16>(x) && begin_vectors<SentVector::n>(y),
          "dequantize_parts: arrays do not begin at multiples of 16 bytes");
  const QuantizedFlat all = flat;
  const auto of_part = static_cast<int>(flat.part_elements / SentVector::n);
  const auto teams = static_cast<int>(items_for(of_part, threads * vectors));
  for_each_lane_team(
      exec, "dequantize", parts * teams, threads, 1, KOKKOS_LAMBDA(const TeamMember& team) {
        const int part = team.league_rank() / teams;
        const int begin = team.league_rank() % teams * threads * vectors + team.team_rank();
        const PartPlace place_of_part(all, first + part);
        const std::uint8_t* const bytes = x + part * all.part_bytes;
        auto* const target = reinterpret_cast<std::uint32_t*>(y + part * all.part_elements);
        SentVector sent[vectors];
        const auto for_each_vector = [&](const auto& body) {
          unrolled<vectors>([&](int v) {
            const int index = begin + v * threads;
            if (index < of_part) body(sent[v], index);
          });
        };
        for_each_vector([&](SentVector& own, int index) {
          constexpr int of_granule = SentVector::of_granule;
          own.load(bytes, GranulePlace(all, place_of_part, index / of_granule), index % of_granule);
        });
        for_each_vector([&](const SentVector& own, int index) {
          store_vector<4>(target + std::ptrdiff_t{4} * index, own.elements());
        });
      });
}

#endif

}  // namespace

template <class Space>
void quantize_part(const ExecutorFor<Space>& where, const plan::QuantizedFlat& flat,
                   std::int64_t part, View<const float*, Space> x, View<std::uint8_t*, Space> to) {
  require_equal_sizes("quantize_part", x.size(), flat.part_elements);
  require_equal_sizes("quantize_part", to.size(), flat.part_bytes);
  quantize(where, flat, part, x.data(), to.data());
}

template <class Space>
void dequantize_parts(const ExecutorFor<Space>& where, const plan::QuantizedFlat& flat,
                      std::int64_t first, View<const std::uint8_t*, Space> x,
                      View<bf16*, Space> y) {
  const std::int64_t parts = y.size() / flat.part_elements;
  require_equal_sizes("dequantize_parts", y.size(), parts * flat.part_elements);
  require_equal_sizes("dequantize_parts", x.size(), parts * flat.part_bytes);
  dequantize(where, flat, first, parts, x.data(), y.data());
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
