// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/attention/sequence_parts.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/fast_divide.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>

namespace ostrakon::math {
namespace {

template <class A, class B>
void check_sizes(const SequenceParts& sequence, const View<A**>& by_part,
                 const View<B**>& in_order) {
  require(sequence.parts >= 1 && sequence.pieces >= 1 && sequence.tokens % sequence.cuts() == 0 &&
              (sequence.cuts() == 1 || sequence.piece_tokens() % 2 == 0),
          "sequences of ", sequence.tokens, " tokens in ", sequence.cuts(),
          " pieces; expected a multiple of twice the pieces");
  require(by_part.rows() == in_order.rows() && by_part.columns() == in_order.columns() &&
              in_order.rows() % sequence.tokens == 0,
          "rows by part (", by_part.rows(), ", ", by_part.columns(), ") and in order (",
          in_order.rows(), ", ", in_order.columns(), "), expected equal sizes and whole sequences");
}

/// Maps a row ordered by part to its row in sequence order.
class RowInOrder {
 public:
  RowInOrder(const SequenceParts& sequence, std::int64_t rows)
      : sequence_(sequence),
        length_(sequence.run(0, 0).count),
        by_part_(std::max<std::int64_t>(1, rows / sequence.parts)),
        by_sequence_(sequence.part_tokens()),
        by_run_(length_) {}

  KOKKOS_INLINE_FUNCTION std::int64_t operator()(std::int64_t row) const {
    const std::int64_t of_part = by_part_.rest(row), token = by_sequence_.rest(of_part);
    const std::int64_t run = by_run_.quotient(token);
    const std::int64_t piece = by_part_.quotient(row) * sequence_.pieces + run / 2;
    const std::int64_t place = run % 2 == 0 ? piece : 2 * sequence_.cuts() - 1 - piece;
    return by_sequence_.quotient(of_part) * sequence_.tokens + place * length_ +
           by_run_.rest(token);
  }

 private:
  SequenceParts sequence_;
  std::int64_t length_;  ///< length of a run
  FastDivide by_part_, by_sequence_, by_run_;
};

}  // namespace

template <class T>
void put_in_order(const Exec& exec, const SequenceParts& sequence, View<const T**> by_part,
                  View<T**> in_order) {
  check_sizes<const T, T>(sequence, by_part, in_order);
  const RowInOrder row_in_order(sequence, by_part.rows());
  for_each_row(
      exec, "put_in_order", by_part.rows(), by_part.columns(),
      KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        row.map([](std::int64_t, T element) { return element; }, in_order.row(row_in_order(index)),
                by_part.row(index));
      });
}

template <class A, class B>
void put_by_part(const Exec& exec, const SequenceParts& sequence, View<const A**> in_order,
                 View<B**> by_part) {
  check_sizes<B, const A>(sequence, by_part, in_order);
  const RowInOrder row_in_order(sequence, by_part.rows());
  for_each_row(
      exec, "put_by_part", by_part.rows(), by_part.columns(),
      KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        row.map([](std::int64_t, A element) { return static_cast<B>(element); }, by_part.row(index),
                in_order.row(row_in_order(index)));
      });
}

template <class A, class B>
void copy_rows(const Exec& exec, View<const A**> x, View<B**> y) {
  require(x.rows() == y.rows() && x.columns() == y.columns(), "copy_rows: x (", x.rows(), ", ",
          x.columns(), ") and y (", y.rows(), ", ", y.columns(), "), expected equal sizes");
  for_each_row(
      exec, "copy_rows", x.rows(), x.columns(), KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        row.map([](std::int64_t, A element) { return static_cast<B>(element); }, y.row(index),
                x.row(index));
      });
}

#define OSTRAKON_INSTANTIATE(T)                                                                   \
  template void put_in_order<T>(const Exec&, const SequenceParts&, View<const T**>, View<T**>);   \
  template void put_by_part<T, T>(const Exec&, const SequenceParts&, View<const T**>, View<T**>); \
  template void copy_rows<T, T>(const Exec&, View<const T**>, View<T**>);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE
template void put_by_part<float, bf16>(const Exec&, const SequenceParts&, View<const float**>,
                                       View<bf16**>);
template void put_by_part<float, fp16>(const Exec&, const SequenceParts&, View<const float**>,
                                       View<fp16**>);
template void copy_rows<float, bf16>(const Exec&, View<const float**>, View<bf16**>);
template void copy_rows<float, fp16>(const Exec&, View<const float**>, View<fp16**>);

}  // namespace ostrakon::math
