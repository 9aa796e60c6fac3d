// SPDX-License-Identifier: Apache-2.0
#pragma once

// What kernels of a mixture of experts read of its routes.

#include <ostrakon/model/arrays.hpp>
#include <ostrakon/model/graph/kernel.hpp>
#include <ostrakon/model/graph/operations.hpp>
#include <ostrakon/model/moe_dispatch_layout.hpp>

namespace ostrakon::model::graph {

/// Routes of `rows` rows in the bytes of Experts::lists, without weights.
template <class T>
struct ListedRoutes {
  math::Routes<compute_t<T>> routes;
  std::int64_t bytes;

  ListedRoutes(const Experts& experts, std::int64_t rows, View<std::byte*> lists) {
    const std::int64_t all = rows * experts.router.per_token, count = experts.router.experts;
    // Some rows that are decoded are of one leaf.
    const std::int64_t leaves = rows == experts.rows ? experts.leaves : 1;
    Arrays<T> arrays(lists);
    routes.scores = arrays.template take<compute_t<T>>(rows * count).matrix(rows, count);
    routes.chosen = arrays.template take<std::int32_t>(all);
    routes.slots = arrays.template take<std::int32_t>(all);
    routes.assignments = arrays.template take<std::int32_t>(all);
    routes.offsets = arrays.template take<std::int64_t>(count * leaves + 1);
    bytes = arrays.size();
  }
};

/// The routes of so many rows that a call reads as value `lists`, with weights as value `weights`
/// if it reads these.
template <class T>
math::Routes<compute_t<T>> routes_read(const Arguments& a, const Experts& experts,
                                       std::int64_t rows, int lists, int weights = -1) {
  auto routes = ListedRoutes<T>(experts, rows, a.bytes(a.place_read(lists))).routes;
  if (weights >= 0) routes.weights = to_read(a.template read<compute_t<T>>(weights).flat());
  return routes;
}

/// What a call adds to, which it reads last; none where it does not.
template <class T>
View<const T**> added_to(const Arguments& a) {
  return a.adds() ? a.template read<T>(a.reads() - 1) : View<const T**>();
}

/// Returns the gradients that experts which are a unit of their own have handed back, which the
/// call reads as value i. Their size differs from that of what was handed over.
template <class T>
MoeDispatchLayout::Gradients<T> handed_back(const Arguments& a, const MoeDispatchLayout& dispatch,
                                            int i) {
  const Place& place = a.place_read(i);
  const std::int64_t bytes = dispatch.gradients_in<T>({}).bytes;
  return dispatch.gradients_in<T>(
      a.buffers().in(place.home).range(place.offset, place.offset + bytes));
}

}  // namespace ostrakon::model::graph
