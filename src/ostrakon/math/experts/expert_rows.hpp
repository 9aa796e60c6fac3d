// SPDX-License-Identifier: Apache-2.0
#pragma once

// Dispatches the rows (tokens) of a mixture of experts to slots, and combines the results.
// Assignments and slots are as in routing.hpp: row r is computed in `per_token` slots from slots[r
// * per_token] on.

#include <ostrakon/math/experts/routing.hpp>
#include <ostrakon/math/half.hpp>

namespace ostrakon::math {

/// copies(slot) = the row of x whose assignment is in the slot. x (rows, columns), copies (slots,
/// columns).
template <class T>
void gather_rows(const Exec& exec, View<const T**> x, View<const std::int32_t*> assignments,
                 View<T**> copies);

/// y(r) = x(r) + (base(r) + the sum of weight * outputs over the assignments of r, in their order),
/// in compute_t<T>, rounded once. x, base (each may be empty) and y are (rows, columns), outputs
/// (slots, columns).
template <class T>
void combine_outputs(const Exec& exec, View<const T**> x, View<const T**> base,
                     const Routes<compute_t<T>>& routes, View<const T**> outputs, View<T**> y);

/// dx(r) = first(r) + (base(r) + the sum of `copies` over the assignments of r), in compute_t<T>,
/// rounded once; the backward of gather_rows. Shapes as in combine_outputs.
template <class T>
void combine_gradients(const Exec& exec, View<const compute_t<T>**> first, View<const T**> base,
                       const Routes<compute_t<T>>& routes, View<const T**> copies, View<T**> dx);

// The next two functions are combine_gradients in two steps, with the same bits: sums(r) = the sum
// of `copies` over the assignments of r, and dx = first + (base + sums), all (rows, columns).

template <class T>
void sum_copies(const Exec& exec, View<const std::int32_t*> slots, View<const T**> copies,
                View<compute_t<T>**> sums);
template <class T>
void combine_sums(const Exec& exec, View<const compute_t<T>**> first, View<const T**> base,
                  View<const compute_t<T>**> sums, View<T**> dx);

/// Does what gather_rows does, with rows multiplied by the weights of their assignments.
template <class T>
void gather_weighed_rows(const Exec& exec, View<const T**> x, const Routes<compute_t<T>>& routes,
                         View<T**> copies);

/// Backward of the weights for the slots [begin, begin + rows of the arrays): dweights(a) =
/// activated . dactivated + bias . dy; then dactivated is multiplied by the weights. Before the
/// call, dactivated (rows, inner) is the gradient of `activated` for a weight of 1, and dy (rows,
/// columns) the gradient of the combined output. `bias` (columns) of the expert's output may be
/// empty.
template <class T>
void weigh_gradients(const Exec& exec, const Routes<compute_t<T>>& routes, std::int64_t begin,
                     View<const T**> activated, View<const T*> bias, View<T**> dactivated,
                     View<const T**> dy, View<compute_t<T>*> dweights);

// The next functions are for rows of slots that are computed on other ranks: the data of a slot
// travels with its row.

/// copies(i) = the row of x whose assignment is assignments(i), with `per_token` assignments per
/// row of x.
template <class T>
void gather_rows_of(const Exec& exec, std::int64_t per_token, View<const T**> x,
                    View<const std::int32_t*> assignments, View<T**> copies);

/// to(i) = from(assignments(i)).
template <class C>
void gather_weights(const Exec& exec, View<const C*> from, View<const std::int32_t*> assignments,
                    View<C*> to);
/// to(assignments(i)) = from(i).
template <class C>
void scatter_weights(const Exec& exec, View<const C*> from, View<const std::int32_t*> assignments,
                     View<C*> to);

/// count(0) += 1; `count` has one element.
void count_one(const Exec& exec, View<std::int64_t*> count);

/// Does what weigh_gradients does, with weights and dweights (rows); dy times the weights is
/// written to `weighted`.
template <class T>
void weigh_rows(const Exec& exec, View<const compute_t<T>*> weights, View<const T**> activated,
                View<const T*> bias, View<T**> dactivated, View<const T**> dy, View<T**> weighted,
                View<compute_t<T>*> dweights);

}  // namespace ostrakon::math
