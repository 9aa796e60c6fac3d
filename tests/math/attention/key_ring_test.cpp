// SPDX-License-Identifier: Apache-2.0
// Attention to keys and values in a ring: runs of queries, one after the other, have the bits that
// they have with the rows of all tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/attention/attention.hpp>
#include <ostrakon/math/attention/key_ring.hpp>
#include <string>
#include <type_traits>

#include "math/attention/attention_reference.hpp"
#include "math/compare.hpp"
#include "support/device_array.hpp"
#include "support/messages.hpp"

namespace {

using namespace ostrakon;
using math::AttentionShape;
using test::converted;
using test::DeviceArray;
using test::largest_difference;
using test::random_values;
using test::same_bits;

/// Outputs of queries, run by run, over keys and values that `kv_of(begin, end)` returns, with the
/// position of the first.
template <class T>
class Queries {
 public:
  explicit Queries(const AttentionShape& shape)
      : shape_(shape),
        q_(random_values<T>(shape.tokens * shape.query_columns(), 1)),
        sinks_(random_values<T>(shape.heads, 2)) {}

  void attend(const AttentionShape& shape, std::int64_t first, std::int64_t begin, std::int64_t end,
              View<const T**> kv) {
    const DeviceArray<T> workspace(math::attention_forward_workspace<T>(shape));
    const DeviceArray<T> out((end - begin) * shape.out_columns());
    const DeviceArray<compute_t<T>> log_sum_exp((end - begin) * shape.heads);
    const View<T**> q(q_.data(), shape_.tokens, shape.query_columns());
    math::attention_forward<T>(Exec(), shape, begin - first, q.row_range(begin, end), kv,
                               View<T**>(out.data(), end - begin, shape.out_columns()), log_sum_exp,
                               workspace, View<const T*>(sinks_));
    Exec().fence();
    const std::vector<T> values = out.host();
    results.insert(results.end(), values.begin(), values.end());
  }

  std::vector<T> results;

 private:
  AttentionShape shape_;
  DeviceArray<T> q_, sinks_;
};

/// Whether sums are in an order of positions, so that bits are those of all rows: in tiles, and on
/// chip. Libraries' products depend on how many keys they have.
template <class T>
bool is_ordered(const AttentionShape& shape) {
  if (std::is_same<T, float>::value) return true;
  if (std::is_same<T, double>::value) return false;
  return math::kernel_form == math::KernelForm::host
             ? shape.head_width <= 256
             : math::kernel_form == math::KernelForm::device_on_chip && shape.head_width == 64;
}

/// `most`: queries at a time, for which the ring has room.
template <class T>
void expect_same_as_all_rows(const AttentionShape& shape, std::int64_t most) {
  const std::int64_t window = shape.scores.window, columns = shape.kv_columns();
  SCOPED_TRACE(text("window ", window, ", ", most, " at a time, head width ", shape.head_width,
                    ", ", sizeof(T), " bytes"));
  const DeviceArray<T> kv(random_values<T>(shape.tokens * columns, 3));
  const View<const T**> all(kv.data(), shape.tokens, columns);
  const std::int64_t rows = window - 1 + most;
  const DeviceArray<T> ring(rows * columns);  // begins as NaN
  const View<T**> in_ring(ring.data(), rows, columns);
  AttentionShape of_window = shape;
  of_window.tokens = math::most_ordered_keys(most, window);
  Queries<T> with_all(shape), with_ring(shape);
  // Runs of all lengths, so that the ring's end cuts some of them.
  for (std::int64_t begin = 0, run = 0; begin < shape.tokens; ++run) {
    const std::int64_t end = std::min(shape.tokens, begin + 1 + run % most);
    with_all.attend(shape, 0, begin, end, all);
    const DeviceArray<T> ordered(of_window.tokens * columns);
    const View<T**> in_order(ordered.data(), of_window.tokens, columns);
    math::put_in_ring<T>(Exec(), begin, all.row_range(begin, end), in_ring);
    math::take_in_order<T>(Exec(), View<const T**>(in_ring), window, begin, end, in_order);
    with_ring.attend(of_window, math::first_ordered_key(begin, window), begin, end, in_order);
    begin = end;
  }
  if (is_ordered<T>(shape)) {
    EXPECT_TRUE(same_bits(with_ring.results, with_all.results));
    return;
  }
  const auto difference =
      largest_difference(converted<double>(with_ring.results), converted<double>(with_all.results));
  EXPECT_LE(difference, (std::is_same<T, double>::value ? 1e-12 : 2e-2));
}

template <class T>
void expect_all_same() {
  // Heads for tiles and for products, and for those on chip; scores of all kinds.
  for (AttentionShape shape :
       {AttentionShape{1, 260, 4, 2, 16, {0.3, 2.0, 0, 4}},
        AttentionShape{1, 240, 2, 1, 260, {}, 5}, AttentionShape{1, 240, 2, 1, 64}})
    for (const std::int64_t window : {1, 2, 63, 65, 130})
      for (const std::int64_t most : {1, 7, 100}) {
        if (window > 2 && most == 1) continue;
        shape.scores.window = window;
        expect_same_as_all_rows<T>(shape, most);
      }
}

TEST(KeyRing, HasTheBitsOfAllRows) {
  expect_all_same<float>();
  expect_all_same<double>();
  expect_all_same<bf16>();
}

TEST(KeyRing, RefusesMoreRowsThanItHas) {
  const DeviceArray<float> x(12), ring(8);
  const auto put = [&] {
    math::put_in_ring<float>(Exec(), 0, View<const float**>(x.data(), 3, 4),
                             View<float**>(ring.data(), 2, 4));
  };
  EXPECT_EQ(ostrakon::testing::error_of(put), "a ring of 2 rows, for 3; expected as many at least");
}

}  // namespace
