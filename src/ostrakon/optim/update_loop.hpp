// SPDX-License-Identifier: Apache-2.0
#pragma once

// The loop over elements that all optimizer rules share. A rule is a struct with
//   moments                            the number of its moments: 0, 1 or 2
//   in_place                           whether it reads no gradients, but updates `x` itself
//   T operator()(x, gradient, first, second) const
//                                      returns the new x; updates the moments that it has

#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/vectors.hpp>
#include <ostrakon/math/work_items.hpp>
#include <ostrakon/optim/rounding.hpp>

namespace ostrakon::optim {

template <class Moment, class T>
KOKKOS_INLINE_FUNCTION Moment stored(T value, [[maybe_unused]] std::uint32_t random_bits) {
  if constexpr (is_16bit<Moment>)
    return math::round_stochastically(value, static_cast<std::uint16_t>(random_bits));
  else
    return value;
}

template <class Rule, class T, class Moment>
KOKKOS_INLINE_FUNCTION void update_element(const Rule& rule, T* x, const T* gradients,
                                           Moment* first_moment, Moment* second_moment,
                                           std::int64_t i, std::uint32_t random_bits) {
  T first = 0;
  T second = 0;
  if constexpr (Rule::moments > 0) first = static_cast<T>(first_moment[i]);
  if constexpr (Rule::moments > 1) second = static_cast<T>(second_moment[i]);
  T gradient = 0;
  if constexpr (!Rule::in_place) gradient = gradients[i];
  x[i] = rule(x[i], gradient, first, second);
  if constexpr (Rule::moments > 0) first_moment[i] = stored<Moment>(first, random_bits & 0xFFFFu);
  if constexpr (Rule::moments > 1) second_moment[i] = stored<Moment>(second, random_bits >> 16);
}

/// Elements per item of work on a device: one vector.
template <class T>
constexpr int update_vector_elements = math::vector_elements<T>();

/// Updates `count` elements, at most one vector.
template <class Rule, class T, class Moment>
KOKKOS_INLINE_FUNCTION void update_vector(const Rule& rule,
                                          [[maybe_unused]] const Rounding& rounding,
                                          [[maybe_unused]] std::int64_t first_element, T* x,
                                          [[maybe_unused]] const T* gradients,
                                          [[maybe_unused]] Moment* first_moment,
                                          [[maybe_unused]] Moment* second_moment,
                                          std::int64_t count) {
  constexpr int n = update_vector_elements<T>;
  math::Vector<T, n> values = math::load_lanes<n>(x, 0, count), terms = {};
  math::Vector<Moment, n> first = {}, second = {};
  if constexpr (!Rule::in_place) terms = math::load_lanes<n>(gradients, 0, count);
  if constexpr (Rule::moments > 0)
    first = math::load_lanes<n>(static_cast<const Moment*>(first_moment), 0, count);
  if constexpr (Rule::moments > 1)
    second = math::load_lanes<n>(static_cast<const Moment*>(second_moment), 0, count);
  for (int i = 0; i < n; ++i) {
    std::uint32_t random_bits = 0;
    if constexpr (Rule::moments > 0 && is_16bit<Moment>)
      random_bits = rounding.bits(first_element + i);
    update_element(rule, values.at, terms.at, first.at, second.at, i, random_bits);
  }
  math::store_lanes<n>(x, 0, count, values);
  if constexpr (Rule::moments > 0) math::store_lanes<n>(first_moment, 0, count, first);
  if constexpr (Rule::moments > 1) math::store_lanes<n>(second_moment, 0, count, second);
}

/// Updates a run of elements; `first_element` is the index of the first one for the rounding. The
/// arrays do not overlap. They are `__restrict__` parameters, as compilers ignore it elsewhere.
template <class Rule, class T, class Moment>
KOKKOS_INLINE_FUNCTION void update_run(const Rule& rule, [[maybe_unused]] const Rounding& rounding,
                                       [[maybe_unused]] std::int64_t first_element,
                                       T* __restrict__ x, const T* __restrict__ gradients,
                                       Moment* __restrict__ first_moment,
                                       Moment* __restrict__ second_moment, std::int64_t count) {
  if constexpr (on_device)
    if (count <= update_vector_elements<T>)
      return update_vector(rule, rounding, first_element, x, gradients, first_moment, second_moment,
                           count);
  if constexpr (Rule::moments == 0 || !is_16bit<Moment>) {
    for (std::int64_t i = 0; i < count; ++i)
      update_element(rule, x, gradients, first_moment, second_moment, i, 0);
  } else if constexpr (on_device) {
    for (std::int64_t i = 0; i < count; ++i)
      update_element(rule, x, gradients, first_moment, second_moment, i,
                     rounding.bits(first_element + i));
  } else {
    std::int64_t end = 0;
    for (std::int64_t begin = 0; begin < count; begin = end) {
      const std::int64_t place = (first_element + begin) % rounding_block;
      std::uint32_t bits[rounding_block];
      rounding.bits_of_block((first_element + begin) / rounding_block, bits);
      end = math::smaller(count, begin + rounding_block - place);
      for (std::int64_t i = begin; i < end; ++i)
        update_element(rule, x, gradients, first_moment, second_moment, i, bits[place + i - begin]);
    }
  }
}

/// Updates all elements of x, as a kernel or on the calling thread. Throws Error if an array that
/// the rule reads has another size.
template <class Where, class Rule, class T, class Moment, class Space>
static void update_all(const Where& where, const char* name, const Rule& rule,
                       const Rounding& rounding, std::int64_t first_element, View<T*, Space> x,
                       View<const T*, Space> gradients, View<Moment*, Space> first_moment,
                       View<Moment*, Space> second_moment) {
  static_assert(std::is_same<Where, math::ExecutorFor<Space>>::value,
                "does not work on that memory");
  if (!Rule::in_place) math::require_equal_sizes(name, x.size(), gradients.size());
  if (Rule::moments > 0) math::require_equal_sizes(name, x.size(), first_moment.size());
  if (Rule::moments > 1) math::require_equal_sizes(name, x.size(), second_moment.size());
  // Arrays that the rule does not use stay null.
  if (Rule::in_place) gradients = {};
  if (Rule::moments < 1) first_moment = {};
  if (Rule::moments < 2) second_moment = {};
  constexpr std::int64_t elements_per_item =
      math::per_item_on<Where>(4096, update_vector_elements<T>);
  math::for_each_item(
      where, name, math::items_for(x.size(), elements_per_item), KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t begin = item * elements_per_item;
        const std::int64_t end = math::smaller(begin + elements_per_item, x.size());
        update_run(rule, rounding, first_element + begin, x.range(begin, end).data(),
                   gradients.range(begin, end).data(), first_moment.range(begin, end).data(),
                   second_moment.range(begin, end).data(), end - begin);
      });
}

// Types of updates, as OSTRAKON_FOR_ALL_NUMBERS has those of kernels: M(T, Moment, Space).
#define OSTRAKON_FOR_UPDATES_ON(Space, M) \
  M(float, float, Space) M(float, bf16, Space) M(double, double, Space)
#define OSTRAKON_FOR_ALL_UPDATES(M) \
  OSTRAKON_FOR_UPDATES_ON(OnDevice, M) OSTRAKON_FOR_UPDATES_ON(OnHost, M)

}  // namespace ostrakon::optim
