// SPDX-License-Identifier: Apache-2.0
#pragma once

// How the rows (tokens) of a mixture of experts are brought to their experts and back. Assignments
// and slots are those of routing.hpp: row r is computed in slots[r * per_token] and those after it.

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/routing.hpp>

namespace ostrakon::math {

/// copies(slot) = the row of x whose assignment is in the slot. x (rows, columns), copies (slots,
/// columns).
template <class T>
void gather_rows(const Exec& exec, View<const T**> x, View<const std::int32_t*> assignments,
                 View<T**> copies);

/// y(r) = x(r) + (base(r) + the sum of weight * outputs over the assignments of r, in their order),
/// in compute_t<T>, rounded once. x, base (which need not exist) and y are (rows, columns), outputs
/// (slots, columns).
template <class T>
void combine_outputs(const Exec& exec, View<const T**> x, View<const T**> base,
                     const Routes<compute_t<T>>& routes, View<const T**> outputs, View<T**> y);

/// dx(r) = first(r) + (base(r) + the sum of `copies` over the assignments of r), in compute_t<T>,
/// rounded once; the backward of gather_rows. Shapes as above.
template <class T>
void combine_gradients(const Exec& exec, View<const compute_t<T>**> first, View<const T**> base,
                       const Routes<compute_t<T>>& routes, View<const T**> copies, View<T**> dx);

// combine_gradients in two steps, with the same bits: sums(r) = the sum of `copies` over the
// assignments of r, and dx = first + (base + sums), all (rows, columns).

template <class T>
void sum_copies(const Exec& exec, View<const std::int32_t*> slots, View<const T**> copies,
                View<compute_t<T>**> sums);
template <class T>
void combine_sums(const Exec& exec, View<const compute_t<T>**> first, View<const T**> base,
                  View<const compute_t<T>**> sums, View<T**> dx);

/// gather_rows, of rows times the weights of the assignments.
template <class T>
void gather_weighed_rows(const Exec& exec, View<const T**> x, const Routes<compute_t<T>>& routes,
                         View<T**> copies);

/// The backward of weights for the slots [begin, begin + rows of the arrays): dweights(a) =
/// activated . dactivated + bias . dy. Then multiplies dactivated by the weights. Before,
/// dactivated (rows, inner) is the gradient by `activated` with a weight of 1, and dy (rows,
/// columns) that by the combined output. `bias` (columns) of the expert's output need not exist.
template <class T>
void weigh_gradients(const Exec& exec, const Routes<compute_t<T>>& routes, std::int64_t begin,
                     View<const T**> activated, View<const T*> bias, View<T**> dactivated,
                     View<const T**> dy, View<compute_t<T>*> dweights);

// These work on rows of some slots that are computed elsewhere: what belongs to a slot comes with
// its row.

/// copies(i) = the row of x whose assignment is assignments(i), of `per_token` for each row of x.
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

/// count += 1; (1).
void count_one(const Exec& exec, View<std::int64_t*> count);

/// weigh_gradients with weights and dweights (rows); the weighted dy is written to `weighted`.
template <class T>
void weigh_rows(const Exec& exec, View<const compute_t<T>*> weights, View<const T**> activated,
                View<const T*> bias, View<T**> dactivated, View<const T**> dy, View<T**> weighted,
                View<compute_t<T>*> dweights);

}  // namespace ostrakon::math
