// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <ostrakon/math/attention_tiles.hpp>
#include <ostrakon/math/portability.hpp>
#include <random>
#include <string>
#include <vector>

// Kernels for all processors give the same bits: on one of them, those that it can run.

namespace ostrakon::math {
namespace {

struct NamedTiles {
  std::string name;
  AttentionTileKernel kernel;
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

/// `size` floats before memory that nobody may touch.
class GuardedFloats {
 public:
  explicit GuardedFloats(std::int64_t size) : size_(size) {
    const std::int64_t page = sysconf(_SC_PAGESIZE);
    const std::int64_t used = (size * 4 + page - 1) / page * page;
    bytes_ = static_cast<std::size_t>(used + page);
    void* const memory =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<char*>(memory);
    mprotect(memory_ + used, static_cast<std::size_t>(page), PROT_NONE);
    first_ = reinterpret_cast<float*>(memory_ + used) - size;
  }
  GuardedFloats(const GuardedFloats&) = delete;
  GuardedFloats& operator=(const GuardedFloats&) = delete;
  ~GuardedFloats() { munmap(memory_, bytes_); }

  float* data() { return first_; }
  void fill(float value) { std::fill_n(first_, size_, value); }
  void fill_random(std::uint64_t seed) {
    std::mt19937 random(static_cast<std::mt19937::result_type>(seed));
    std::uniform_real_distribution<float> between(-2, 2);
    for (std::int64_t i = 0; i < size_; ++i) first_[i] = between(random);
  }
  std::vector<float> values() const { return {first_, first_ + size_}; }

 private:
  std::int64_t size_;
  std::size_t bytes_ = 0;
  char* memory_ = nullptr;
  float* first_ = nullptr;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// One head of a sequence between others: its columns of rows that are `row` elements apart, the
/// last of which ends with it.
struct Head {
  std::int64_t tokens, width;
  std::int64_t row = width + 3;

  std::int64_t elements() const { return (tokens - 1) * row + width; }
  AttentionRows rows(GuardedFloats& x, std::int64_t token = 0) const {
    return {x.data() + token * row, row};
  }
};

struct Results {
  std::vector<float> out, largest, total, dqueries, dkeys, dvalues;
};

/// Forward and backward, the queries in tiles that end before `cut` and begin again there.
Results attend(const AttentionTileKernel& kernel, const Head& head, std::int64_t cut) {
  GuardedFloats q(head.elements()), k(head.elements()), v(head.elements()), dout(head.elements()),
      out(head.elements()), dq(head.elements()), largest(head.tokens), total(head.tokens),
      log_sum_exp(head.tokens), delta(head.tokens);
  q.fill_random(1), k.fill_random(2), v.fill_random(3), dout.fill_random(4);
  out.fill(NAN), dq.fill(NAN);
  const std::int64_t padded = attention_row(head.width), tile = attention_tile;
  const std::unique_ptr<float, void (*)(void*)> memory(
      static_cast<float*>(
          std::aligned_alloc(64, static_cast<std::size_t>(attention_tile_room) * sizeof(float))),
      std::free);
  float* const room = memory.get();
  std::fill_n(room, attention_tile_room, NAN);
  const float scale = 1.0f / std::sqrt(static_cast<float>(head.width));
  const auto for_queries = [&](const auto& body) {
    for (std::int64_t begin = 0; begin < head.tokens;) {
      std::int64_t end = std::min((begin / tile + 1) * tile, head.tokens);
      if (begin < cut) end = std::min(end, cut);
      body(begin, end);
      begin = end;
    }
  };
  for_queries([&](std::int64_t begin, std::int64_t end) {
    kernel.forward({{begin, end, head.width, scale, nullptr},
                    head.rows(q, begin),
                    head.rows(k),
                    head.rows(v),
                    out.data() + begin * head.row,
                    head.row,
                    largest.data() + begin,
                    total.data() + begin},
                   room);
  });
  for (std::int64_t i = 0; i < head.tokens; ++i) {
    log_sum_exp.data()[i] = largest.data()[i] + std::log(total.data()[i]);
    float sum = 0;
    for (std::int64_t j = 0; j < head.width; ++j)
      sum = std::fma(out.data()[i * head.row + j], dout.data()[i * head.row + j], sum);
    delta.data()[i] = sum;
  }
  Results results;
  for (std::int64_t key = 0; key < head.tokens; key += tile) {
    const std::int64_t key_end = std::min(key + tile, head.tokens);
    float* const dkeys = attention_sums(head.width, room);
    float* const dvalues = dkeys + tile * padded;
    std::fill_n(dkeys, 2 * tile * padded, 0.0f);
    kernel.pack_keys({key, key_end, head.width, scale, head.rows(k, key), head.rows(v, key)}, room);
    for_queries([&](std::int64_t begin, std::int64_t end) {
      if (end <= key) return;
      kernel.backward({{begin, end, head.width, scale, nullptr},
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
    for (std::int64_t i = 0; i < key_end - key; ++i)
      for (std::int64_t j = 0; j < head.width; ++j) {
        results.dkeys.push_back(dkeys[i * padded + j]);
        results.dvalues.push_back(dvalues[i * padded + j]);
      }
  }
  const auto used = [&](GuardedFloats& x) {
    std::vector<float> all;
    for (std::int64_t i = 0; i < head.tokens; ++i)
      for (std::int64_t j = 0; j < head.row && i * head.row + j < head.elements(); ++j) {
        const float value = x.data()[i * head.row + j];
        if (j < head.width)
          all.push_back(value);
        else
          EXPECT_TRUE(std::isnan(value)) << "written beside a head";
      }
    return all;
  };
  results.out = used(out);
  results.dqueries = used(dq);
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
                           {65, 256}})
    for (const std::int64_t cut : {std::int64_t{0}, head.tokens / 3}) {
      SCOPED_TRACE(std::to_string(head.tokens) + " tokens, width " + std::to_string(head.width) +
                   ", cut at " + std::to_string(cut));
      const std::vector<NamedTiles> kernels = tiles_here();
      const Results expected = attend(kernels.front().kernel, head, cut);
      for (float value : expected.out) ASSERT_TRUE(std::isfinite(value));
      for (float value : expected.dqueries) ASSERT_TRUE(std::isfinite(value));
      for (const NamedTiles& other : kernels) {
        const Results results = attend(other.kernel, head, cut);
        EXPECT_TRUE(same_bits(results.out, expected.out)) << other.name;
        EXPECT_TRUE(same_bits(results.largest, expected.largest)) << other.name;
        EXPECT_TRUE(same_bits(results.total, expected.total)) << other.name;
        EXPECT_TRUE(same_bits(results.dqueries, expected.dqueries)) << other.name;
        EXPECT_TRUE(same_bits(results.dkeys, expected.dkeys)) << other.name;
        EXPECT_TRUE(same_bits(results.dvalues, expected.dvalues)) << other.name;
      }
    }
}

// What queries are computed together does not change their bits.
TEST(AttentionTiles, BitsOfAQueryDependOnNoOther) {
  for (const Head& head : {Head{130, 32}, {100, 48}, {64, 64}})
    for (const NamedTiles& one : tiles_here()) {
      const Results whole = attend(one.kernel, head, 0);
      for (const std::int64_t cut : {1, 17, 63}) {
        const Results parts = attend(one.kernel, head, cut);
        EXPECT_TRUE(same_bits(parts.out, whole.out)) << one.name << ", cut at " << cut;
        EXPECT_TRUE(same_bits(parts.total, whole.total)) << one.name << ", cut at " << cut;
        EXPECT_TRUE(same_bits(parts.dqueries, whole.dqueries)) << one.name << ", cut at " << cut;
      }
    }
}

// Exponentials over the range of a float: against those of the C library, by one score and one key.
TEST(AttentionTiles, LargeAndSmallScores) {
  for (const NamedTiles& one : tiles_here())
    for (const float other : {-1e30f, -200.0f, -87.0f, -3.0f, 0.0f, 5.0f, 90.0f, 1e30f}) {
      GuardedFloats q(2), k(2), v(2), out(2), largest(2), total(2);
      q.fill(1.0f);
      k.data()[0] = other, k.data()[1] = 0.0f;
      v.data()[0] = 1.0f, v.data()[1] = 0.0f;
      std::vector<float> room(static_cast<std::size_t>(attention_tile_room), NAN);
      one.kernel.forward({{0, 2, 1, 1.0f, nullptr},
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
