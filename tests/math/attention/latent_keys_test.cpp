// SPDX-License-Identifier: Apache-2.0
// Keys that are made of parts of each head and a part of all: copies have their bits, and sums are
// those of plain loops in the order of heads.
#include <gtest/gtest.h>

#include <ostrakon/base/error.hpp>
#include <ostrakon/math/attention/latent_keys.hpp>
#include <type_traits>

#include "math/half_kernels.hpp"

namespace ostrakon::math {
namespace {

using namespace halves;

/// The column of kv, in which all keys come before all values, of element i of a head's key.
std::int64_t key_column(const LatentHeads& heads, std::int64_t head, std::int64_t i) {
  return head * (heads.shared_width + heads.own_width) + i;
}

template <class T>
void check_latent_keys(const LatentHeads& h, std::int64_t rows) {
  SCOPED_TRACE(::testing::Message()
               << h.heads << " heads of " << h.shared_width << " + " << h.own_width << " and "
               << h.value_width << ", " << rows << " rows");
  const std::int64_t own = h.heads * (h.own_width + h.value_width), shared = h.shared_width;
  const std::int64_t keys = h.heads * (h.shared_width + h.own_width);
  const std::int64_t kv = keys + h.heads * h.value_width;
  const Doubles x = inputs<T>(rows * own, 1), first = inputs<T>(rows * shared, 2);
  const Doubles dkv = inputs<T>(rows * kv, 3);
  // The column of `own` of each column of kv, or where all heads share it, -1 - that of `shared`.
  std::vector<std::int64_t> from(static_cast<std::size_t>(kv));
  for (std::int64_t head = 0; head < h.heads; ++head) {
    for (std::int64_t i = 0; i < shared; ++i) from[key_column(h, head, i)] = -1 - i;
    for (std::int64_t i = 0; i < h.own_width; ++i)
      from[key_column(h, head, shared + i)] = head * h.own_width + i;
    for (std::int64_t i = 0; i < h.value_width; ++i)
      from[keys + head * h.value_width + i] = h.heads * h.own_width + head * h.value_width + i;
  }
  Doubles joined, parts(static_cast<std::size_t>(rows * own));
  std::vector<compute_t<T>> sums(static_cast<std::size_t>(rows * shared), compute_t<T>(0));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t j = 0; j < kv; ++j) {
      const std::int64_t of = from[j];
      joined.push_back(of < 0 ? first[r * shared - 1 - of] : x[r * own + of]);
      if (of >= 0) parts[r * own + of] = dkv[r * kv + j];
      if (of < 0) sums[r * shared - 1 - of] += static_cast<compute_t<T>>(dkv[r * kv + j]);
    }

  const auto in_x = device<T>(x), in_first = device<T>(first), in_dkv = device<T>(dkv);
  const auto out = unwritten<T>(rows * kv), dx = unwritten<T>(rows * own);
  join_keys<T>(Exec(), h, matrix(in_x, own), matrix(in_first, shared), matrix(out, kv));
  split_keys<T>(Exec(), h, matrix(in_dkv, kv), matrix(dx, own));
  EXPECT_EQ(doubles(out), joined);
  EXPECT_EQ(doubles(dx), parts);

  const auto in_number = unwritten<T>(rows * shared);
  const auto in_sum = unwritten<compute_t<T>>(rows * shared);
  const View<const T**> dkeys = View<const T**>(matrix(in_dkv, kv)).column_range(0, keys);
  sum_shared_keys<T, T>(Exec(), h, dkeys, matrix(in_number, shared));
  sum_shared_keys<T, compute_t<T>>(Exec(), h, dkeys, matrix(in_sum, shared));
  EXPECT_EQ(in_sum.host(), sums);
  EXPECT_EQ(doubles(in_number), converted<double>(converted<T>(sums)));
}

template <class T>
class LatentKeys : public ::testing::Test {};
using LatentKeyTypes = ::testing::Types<float, double, bf16, fp16>;
TYPED_TEST_SUITE(LatentKeys, LatentKeyTypes);

TYPED_TEST(LatentKeys, AgreeWithPlainLoops) {
  for (const LatentHeads& heads : {LatentHeads{1, 1, 1, 1}, {3, 2, 5, 4}, {8, 64, 128, 128}})
    for (const std::int64_t rows : {1, 7}) check_latent_keys<TypeParam>(heads, rows);
}

TEST(LatentKeysShapes, AreChecked) {
  const auto x = unwritten<double>(24), shared = unwritten<double>(4), kv = unwritten<double>(28);
  const LatentHeads heads{2, 2, 3, 3};  // own (2, 12), shared (2, 2), keys (2, 10), values (2, 6)
  const auto wrong = [&] {
    join_keys<double>(Exec(), heads, matrix(x, 12), matrix(shared, 2), matrix(kv, 14));
  };
  EXPECT_THROW(wrong(), Error);
  EXPECT_THROW((split_keys<double>(Exec(), heads, matrix(kv, 14), matrix(x, 12))), Error);
  EXPECT_THROW((sum_shared_keys<double, double>(Exec(), heads, matrix(x, 12), matrix(shared, 2))),
               Error);
}

}  // namespace
}  // namespace ostrakon::math
