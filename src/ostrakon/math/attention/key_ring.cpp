// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/attention/key_ring.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/attention/attention_blocks.hpp>
#include <ostrakon/math/attention/sequence_parts.hpp>
#include <ostrakon/math/elementwise.hpp>

namespace ostrakon::math {
namespace {

/// body(rows of the ring, first row behind `begin`) for the runs of neighbours that positions
/// [begin, end) have there: one, or two where they cross its end.
template <class A, class Body>
void for_each_run(const View<A**>& ring, std::int64_t begin, std::int64_t end, const Body& body) {
  require(end - begin <= ring.rows(), "a ring of ", ring.rows(), " rows, for ", end - begin,
          "; expected as many at least");
  for (std::int64_t position = begin; position < end;) {
    const std::int64_t row = position % ring.rows();
    const std::int64_t count = std::min(end - position, ring.rows() - row);
    body(ring.row_range(row, row + count), position - begin);
    position += count;
  }
}

}  // namespace

template <class T>
void put_in_ring(const Exec& exec, std::int64_t begin, View<const T**> x, View<T**> ring) {
  for_each_run(ring, begin, begin + x.rows(), [&](const View<T**>& to, std::int64_t first) {
    copy_rows<T, T>(exec, x.row_range(first, first + to.rows()), to);
  });
}

std::int64_t first_ordered_key(std::int64_t begin, std::int64_t window) {
  return first_key_tile(begin, window, attention_key_step);
}

std::int64_t most_ordered_keys(std::int64_t queries, std::int64_t window) {
  return attention_key_step - 1 + window - 1 + queries;
}

template <class T>
void take_in_order(const Exec& exec, View<const T**> ring, std::int64_t window, std::int64_t begin,
                   std::int64_t end, View<T**> in_order) {
  const std::int64_t seen = first_key_of(begin, window);
  const std::int64_t unseen = seen - first_ordered_key(begin, window);
  fill<T>(exec, in_order.row_range(0, unseen).flat(), T(0));
  for_each_run(ring, seen, end, [&](const View<const T**>& from, std::int64_t first) {
    copy_rows<T, T>(exec, from, in_order.row_range(unseen + first, unseen + first + from.rows()));
  });
}

#define OSTRAKON_INSTANTIATE(T)                                                            \
  template void put_in_ring<T>(const Exec&, std::int64_t, View<const T**>, View<T**>);     \
  template void take_in_order<T>(const Exec&, View<const T**>, std::int64_t, std::int64_t, \
                                 std::int64_t, View<T**>);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
