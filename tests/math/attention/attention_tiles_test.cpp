// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <ostrakon/math/attention/attention_tiles.hpp>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/portability.hpp>
#include <random>
#include <string>
#include <vector>

#include "math/compare.hpp"
#include "math/guarded.hpp"

// All kernels that this processor can run must give the same bits.

namespace ostrakon::math {
namespace {

struct NamedTiles {
  std::string name;
  AttentionTileKernels kernels;
};

std::vector<NamedTiles> tiles_here() {
  std::vector<NamedTiles> kernels = {{"plain", attention_tiles_plain()}};
#if defined(__x86_64__) && !OSTRAKON_ON_DEVICE
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    kernels.push_back({"AVX2", attention_tiles_avx2()});
  if (__builtin_cpu_supports("avx512f")) kernels.push_back({"AVX-512", attention_tiles_avx512()});
#endif
  return kernels;
}

const AttentionTileKernel<float>& of(float, const AttentionTileKernels& all) {
  return all.of_float;
}
const AttentionTileKernel<Bf16Bits>& of(Bf16Bits, const AttentionTileKernels& all) {
  return all.of_bf16;
}
const AttentionTileKernel<Fp16Bits>& of(Fp16Bits, const AttentionTileKernels& all) {
  return all.of_fp16;
}

float value_of(float x) { return x; }
float value_of(Bf16Bits x) { return half_bits::to_float(std::uint32_t{x.bits} << 16); }
float value_of(Fp16Bits x) { return half_bits::float_of_fp16(x.bits); }
void round_to(float& to, float x) { to = x; }
void round_to(Bf16Bits& to, float x) { to.bits = half_bits::bf16_of(x); }
void round_to(Fp16Bits& to, float x) { to.bits = half_bits::fp16_of(x); }

/// Numbers of a kernel's type in front of inaccessible memory.
template <class T>
class Guarded : public test::Guarded<T> {
 public:
  using test::Guarded<T>::Guarded;

  void fill(float value) {
    for (T& x : *this) round_to(x, value);
  }
  /// Fills it with values that both T and `As` hold exactly.
  template <class As>
  void fill_random(std::uint64_t seed) {
    std::mt19937 random(static_cast<std::mt19937::result_type>(seed));
    std::uniform_real_distribution<float> between(-2, 2);
    for (T& x : *this) {
      As rounded{};
      round_to(rounded, between(random));
      round_to(x, value_of(rounded));
    }
  }
  std::vector<float> values() const {
    std::vector<float> all;
    for (const T& x : *this) all.push_back(value_of(x));
    return all;
  }
};
using GuardedFloats = Guarded<float>;
using test::same_bits;

/// One head of a sequence among others: its columns in rows that are `row` elements apart, the last
/// row ending with the head.
struct Head {
  std::int64_t tokens, width;
  std::int64_t value_width = width;
  std::int64_t row = std::max(width, value_width) + 3;

  std::int64_t elements() const { return (tokens - 1) * row + width; }
  std::int64_t value_elements() const { return (tokens - 1) * row + value_width; }
  template <class T>
  AttentionRows<T> rows(Guarded<T>& x, std::int64_t token = 0) const {
    return {x.data() + token * row, row};
  }
};

template <class As, class T>
float rounded(T x) {
  As as{};
  round_to(as, value_of(x));
  return value_of(as);
}

struct Results {
  std::vector<float> out, largest, total, dqueries, dkeys, dvalues;
};

/// What scores are besides scaled products, see AttentionQueryTile.
struct Scores {
  std::int64_t window = 0;
  float soft_cap = 0, slope = 0, sink = 0;
  std::int64_t document = 0;  ///< tokens of a document; 0: there are none
};
/// Windows of less than a tile, of one and of more, each with something else; documents of less
/// than a tile, and of more.
const std::vector<Scores> all_scores = {{},
                                        {1},
                                        {17, 0, 0, 2},
                                        {64, 1.5f},
                                        {70, 0, 0.25f},
                                        {0, 2, 0.5f},
                                        {100, 1, 0.7f, -1},
                                        {0, 0, 0, 0, 1},
                                        {0, 0, 0, 2, 23},
                                        {0, 0, 0, 0, 70},
                                        {40, 1, 0.7f, -1, 75}};

/// Runs forward and backward, with tiles of queries that end and begin at `cut`. Inputs are rounded
/// to As.
template <class T = float, class As = T>
Results attend(const AttentionTileKernels& kernels, const Head& head, std::int64_t cut,
               const Scores& scores = {}) {
  const AttentionTileKernel<T>& kernel = of(T{}, kernels);
  Guarded<T> q(head.elements()), k(head.elements()), v(head.value_elements()),
      dout(head.value_elements()), out(head.value_elements());
  GuardedFloats dq(head.elements()), largest(head.tokens), total(head.tokens),
      log_sum_exp(head.tokens), delta(head.tokens);
  q.template fill_random<As>(1), k.template fill_random<As>(2);
  v.template fill_random<As>(3), dout.template fill_random<As>(4);
  out.fill(NAN), dq.fill(NAN);
  const std::int64_t padded = attention_row(head.width), tile = attention_tile;
  const std::int64_t padded_value = attention_row(head.value_width);
  const std::unique_ptr<float, void (*)(void*)> memory(
      static_cast<float*>(
          std::aligned_alloc(64, static_cast<std::size_t>(attention_tile_room) * sizeof(float))),
      std::free);
  float* const room = memory.get();
  std::fill_n(room, attention_tile_room, NAN);
  const float scale = 1.0f / std::sqrt(static_cast<float>(head.width));
  std::vector<std::int32_t> documents;
  for (std::int64_t i = 0; i < head.tokens && scores.document > 0; ++i)
    documents.push_back(static_cast<std::int32_t>(i - i % scores.document));
  const auto document_of = [&](std::int64_t i) { return documents.empty() ? 0 : documents[i]; };
  const auto documents_from = [&](std::int64_t i) {
    return documents.empty() ? nullptr : &documents[i];
  };
  const auto for_queries = [&](const auto& body) {
    for (std::int64_t begin = 0; begin < head.tokens;) {
      std::int64_t end = std::min((begin / tile + 1) * tile, head.tokens);
      if (begin < cut) end = std::min(end, cut);
      body(begin, end);
      begin = end;
    }
  };
  for_queries([&](std::int64_t begin, std::int64_t end) {
    kernel.forward({{begin, end, head.width, scale, nullptr, scores.window, scores.soft_cap,
                     scores.slope, head.value_width, documents_from(begin)},
                    head.rows(q, begin),
                    head.rows(k),
                    head.rows(v),
                    out.data() + begin * head.row,
                    head.row,
                    largest.data() + begin,
                    total.data() + begin,
                    scores.sink != 0 ? &scores.sink : nullptr},
                   room);
  });
  for (std::int64_t i = 0; i < head.tokens; ++i) {
    log_sum_exp.data()[i] = largest.data()[i] + std::log(total.data()[i]);
    float sum = 0;
    for (std::int64_t j = 0; j < head.value_width; ++j)
      sum = std::fma(rounded<As>(out.data()[i * head.row + j]),
                     value_of(dout.data()[i * head.row + j]), sum);
    delta.data()[i] = sum;
  }
  Results results;
  for (std::int64_t key = 0; key < head.tokens; key += tile) {
    const std::int64_t key_end = std::min(key + tile, head.tokens);
    float* const dkeys = attention_sums(head.width, head.value_width, room);
    float* const dvalues = dkeys + tile * padded;
    std::fill_n(dkeys, tile * (padded + padded_value), 0.0f);
    kernel.pack_keys(
        {key, key_end, head.width, scale, head.rows(k, key), head.rows(v, key), head.value_width},
        room);
    for_queries([&](std::int64_t begin, std::int64_t end) {
      if (end <= key || (scores.window > 0 && key_end + scores.window <= begin + 1) ||
          key_end <= document_of(begin))
        return;
      kernel.backward({{begin, end, head.width, scale, nullptr, scores.window, scores.soft_cap,
                        scores.slope, head.value_width, documents_from(begin)},
                       key,
                       key_end,
                       head.rows(q, begin),
                       head.rows(dout, begin),
                       log_sum_exp.data() + begin,
                       delta.data() + begin,
                       dq.data() + begin * head.row,
                       head.row,
                       dkeys,
                       dvalues},
                      room);
    });
    for (std::int64_t i = 0; i < key_end - key; ++i) {
      const float *const dkey = dkeys + i * padded, *const dvalue = dvalues + i * padded_value;
      results.dkeys.insert(results.dkeys.end(), dkey, dkey + head.width);
      results.dvalues.insert(results.dvalues.end(), dvalue, dvalue + head.value_width);
    }
  }
  const auto used = [&](auto& x, std::int64_t width) {
    const std::int64_t elements = (head.tokens - 1) * head.row + width;
    std::vector<float> all;
    for (std::int64_t i = 0; i < head.tokens; ++i)
      for (std::int64_t j = 0; j < head.row && i * head.row + j < elements; ++j) {
        const float value = value_of(x.data()[i * head.row + j]);
        if (j < width)
          all.push_back(value);
        else
          EXPECT_TRUE(std::isnan(value)) << "written beside a head";
      }
    return all;
  };
  results.out = used(out, head.value_width);
  results.dqueries = used(dq, head.width);
  results.largest = largest.values();
  results.total = total.values();
  return results;
}

TEST(AttentionTiles, BitsDependOnNoProcessor) {
  for (const Head& head : {Head{1, 1},
                           {5, 3},
                           {64, 16},
                           {70, 8},
                           {130, 32},
                           {150, 20},
                           {100, 64},
                           {90, 72},
                           {67, 128},
                           {65, 256},
                           {70, 24, 16},
                           {67, 192, 128},
                           {65, 5, 11},
                           {65, 256, 255},
                           {66, 3, 256}})
    for (const std::int64_t cut : {std::int64_t{0}, head.tokens / 3})
      for (const Scores& scores : all_scores) {
        SCOPED_TRACE(std::to_string(head.tokens) + " tokens, width " + std::to_string(head.width) +
                     ", cut at " + std::to_string(cut) + ", window " +
                     std::to_string(scores.window) + ", documents of " +
                     std::to_string(scores.document));
        const std::vector<NamedTiles> kernels = tiles_here();
        const Results expected = attend(kernels.front().kernels, head, cut, scores);
        for (float value : expected.out) ASSERT_TRUE(std::isfinite(value));
        for (float value : expected.dqueries) ASSERT_TRUE(std::isfinite(value));
        for (const NamedTiles& other : kernels) {
          const Results results = attend(other.kernels, head, cut, scores);
          EXPECT_TRUE(same_bits(results.out, expected.out)) << other.name;
          EXPECT_TRUE(same_bits(results.largest, expected.largest)) << other.name;
          EXPECT_TRUE(same_bits(results.total, expected.total)) << other.name;
          EXPECT_TRUE(same_bits(results.dqueries, expected.dqueries)) << other.name;
          EXPECT_TRUE(same_bits(results.dkeys, expected.dkeys)) << other.name;
          EXPECT_TRUE(same_bits(results.dvalues, expected.dvalues)) << other.name;
        }
      }
}

/// Checks that 16-bit kernels give the results of float tiles for the same values, on every
/// processor; 16-bit outputs are these results, rounded.
template <class T>
void expect_rounded_results(const Head& head, std::int64_t cut) {
  const Scores scores = cut > 0 ? Scores{30, 1.5f, 0.25f, 1} : Scores{};
  for (const NamedTiles& one : tiles_here()) {
    const Results expected = attend<float, T>(one.kernels, head, cut, scores);
    const Results results = attend<T>(one.kernels, head, cut, scores);
    std::vector<float> out;
    for (const float value : expected.out) out.push_back(rounded<T>(value));
    EXPECT_TRUE(same_bits(results.out, out)) << one.name;
    EXPECT_TRUE(same_bits(results.largest, expected.largest)) << one.name;
    EXPECT_TRUE(same_bits(results.total, expected.total)) << one.name;
    EXPECT_TRUE(same_bits(results.dqueries, expected.dqueries)) << one.name;
    EXPECT_TRUE(same_bits(results.dkeys, expected.dkeys)) << one.name;
    EXPECT_TRUE(same_bits(results.dvalues, expected.dvalues)) << one.name;
  }
}

TEST(AttentionTiles, SixteenBitsAreReadAsFloatAndRoundedOnce) {
  for (const Head& head : {Head{1, 1},
                           {5, 3},
                           {70, 8},
                           {130, 32},
                           {150, 20},
                           {100, 64},
                           {67, 128},
                           {65, 256},
                           {70, 24, 16},
                           {67, 20, 37}})
    for (const std::int64_t cut : {std::int64_t{0}, head.tokens / 3}) {
      SCOPED_TRACE(std::to_string(head.tokens) + " tokens, width " + std::to_string(head.width) +
                   ", cut at " + std::to_string(cut));
      expect_rounded_results<Bf16Bits>(head, cut);
      expect_rounded_results<Fp16Bits>(head, cut);
    }
}

// The bits of a query do not depend on which queries are computed with it.
TEST(AttentionTiles, BitsOfAQueryDependOnNoOther) {
  for (const Head& head : {Head{130, 32}, {100, 48}, {64, 64}, {200, 16}, {130, 24, 20}})
    for (const NamedTiles& one : tiles_here())
      for (const Scores& scores : all_scores) {
        const Results whole = attend(one.kernels, head, 0, scores);
        for (const std::int64_t cut : {1, 17, 63, 190}) {
          const Results parts = attend(one.kernels, head, cut, scores);
          EXPECT_TRUE(same_bits(parts.out, whole.out)) << one.name << ", cut at " << cut;
          EXPECT_TRUE(same_bits(parts.total, whole.total)) << one.name << ", cut at " << cut;
          EXPECT_TRUE(same_bits(parts.dqueries, whole.dqueries)) << one.name << ", cut at " << cut;
        }
      }
}

// Exponentials over the range of a float, compared with those of the C library, by one score and
// one key.
TEST(AttentionTiles, LargeAndSmallScores) {
  for (const NamedTiles& one : tiles_here())
    for (const float other : {-1e30f, -200.0f, -87.0f, -3.0f, 0.0f, 5.0f, 90.0f, 1e30f}) {
      GuardedFloats q(2), k(2), v(2), out(2), largest(2), total(2);
      q.fill(1.0f);
      k.data()[0] = other, k.data()[1] = 0.0f;
      v.data()[0] = 1.0f, v.data()[1] = 0.0f;
      std::vector<float> room(static_cast<std::size_t>(attention_tile_room), NAN);
      one.kernels.of_float.forward({{0, 2, 1, 1.0f, nullptr},
                                    {q.data(), 1},
                                    {k.data(), 1},
                                    {v.data(), 1},
                                    out.data(),
                                    1,
                                    largest.data(),
                                    total.data()},
                                   room.data());
      const double expected = 1.0 / (1.0 + std::exp(-static_cast<double>(other)));
      EXPECT_NEAR(out.data()[1], expected, 3e-7 * expected + 1e-37) << one.name << ", " << other;
      EXPECT_EQ(out.data()[0], 1.0f);
      EXPECT_EQ(largest.data()[1], std::max(other, 0.0f));
    }
}

}  // namespace
}  // namespace ostrakon::math
