// SPDX-License-Identifier: Apache-2.0
#pragma once

// Vectors of adjacent elements, for kernels on a device: a thread reaches the memory bandwidth with
// loads and stores of 8 or 16 bytes, not of single 16-bit elements.

#include <cstring>
#include <ostrakon/math/byte_count.hpp>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/work_items.hpp>

namespace ostrakon::math {

/// n adjacent elements, loaded or stored by one instruction if they are at most 16 bytes.
template <class T, int n>
struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) Vector {
  T at[n];
};

/// Number of elements of vectors of several arrays: 16 bytes of the widest type.
template <class... T>
KOKKOS_INLINE_FUNCTION constexpr int vector_elements() {
  std::size_t widest = 1;
  ((widest = sizeof(T) > widest ? sizeof(T) : widest), ...);
  return static_cast<int>(16 / widest);
}

template <int n, class T>
KOKKOS_INLINE_FUNCTION Vector<T, n> load_vector(const T* x) {
  count_read(x, sizeof(Vector<T, n>));
  return *reinterpret_cast<const Vector<T, n>*>(x);
}
template <int n, class T>
KOKKOS_INLINE_FUNCTION void store_vector(T* x, const Vector<T, n>& values) {
  count_written(x, sizeof(Vector<T, n>));
#if defined(__CUDA_ARCH__)
  // The copy is in words of the instruction: if another path stores single elements, CUDA's
  // compiler would merge both into stores of single elements.
  constexpr int bytes = sizeof(Vector<T, n>);
  if constexpr (bytes == 16 || bytes == 8) {
    std::uint32_t word[bytes / 4];
    std::memcpy(word, &values, bytes);
    if constexpr (bytes == 16)
      asm volatile("st.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(x), "r"(word[0]), "r"(word[1]),
                   "r"(word[2]), "r"(word[3])
                   : "memory");
    else
      asm volatile("st.v2.b32 [%0], {%1, %2};" ::"l"(x), "r"(word[0]), "r"(word[1]) : "memory");
    return;
  }
#endif
  *reinterpret_cast<Vector<T, n>*>(x) = values;
}

/// Returns the number of elements from the last aligned vector position to x.
template <int n, class T>
KOKKOS_INLINE_FUNCTION int elements_past_vector(const T* x) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(x) / sizeof(T) % n);
}

/// Whether all of x are aligned to vectors of n elements.
template <int n, class... T>
KOKKOS_INLINE_FUNCTION bool begin_vectors(const T*... x) {
  return ((elements_past_vector<n>(x) == 0) && ...);
}

/// Returns elements [begin, begin + n) of an array of `count`, with zeros for those outside. They
/// are always one vector, so that computations with them have one instance: compilers may fuse a
/// product and a sum in one instance of an expression and not in another.
template <int n, class T>
KOKKOS_INLINE_FUNCTION Vector<T, n> load_lanes(const T* x, std::int64_t begin, std::int64_t count) {
  if (begin >= 0 && begin + n <= count && begin_vectors<n>(x + begin))
    return load_vector<n>(x + begin);
  Vector<T, n> values;
  for (int j = 0; j < n; ++j) {
    const bool is_inside = begin + j >= 0 && begin + j < count;
    if (is_inside) count_read(x + begin + j, sizeof(T));
    values.at[j] = is_inside ? x[begin + j] : T(0);
  }
  return values;
}
template <int n, class T>
KOKKOS_INLINE_FUNCTION void store_lanes(T* x, std::int64_t begin, std::int64_t count,
                                        const Vector<T, n>& values) {
  if (begin >= 0 && begin + n <= count && begin_vectors<n>(x + begin))
    return store_vector<n>(x + begin, values);
  for (int j = 0; j < n; ++j)
    if (begin + j >= 0 && begin + j < count) {
      count_written(x + begin + j, sizeof(T));
      x[begin + j] = values.at[j];
    }
}

/// Returns where the first vector of x begins: at 0, or before it if x begins inside a vector.
template <int n, class T>
KOKKOS_INLINE_FUNCTION std::int64_t first_vector(const T* x) {
  return -elements_past_vector<n>(x);
}

/// The results of a kernel with two outputs.
template <class A, class B>
struct Two {
  A first;
  B second;
};

template <int n, class F, class Out, class... In>
KOKKOS_INLINE_FUNCTION void map_loaded(std::int64_t begin, std::int64_t count, const F& f, Out* out,
                                       const Vector<In, n>&... in) {
  Vector<Out, n> values;
  for (int j = 0; j < n; ++j) values.at[j] = static_cast<Out>(f(begin + j, in.at[j]...));
  store_lanes<n>(out, begin, count, values);
}

/// out[i] = f(i, in[i]...) for those i in [begin, begin + n) that are inside of arrays of `count`
/// elements; f is also called for the others, with zeros.
template <int n, class F, class Out, class... In>
KOKKOS_INLINE_FUNCTION void map_lanes(std::int64_t begin, std::int64_t count, const F& f, Out* out,
                                      const In*... in) {
  map_loaded<n>(begin, count, f, out, load_lanes<n>(in, begin, count)...);
}

template <int n, class F, class A, class B, class... In>
KOKKOS_INLINE_FUNCTION void map_two_loaded(std::int64_t begin, std::int64_t count, const F& f, A* a,
                                           B* b, const Vector<In, n>&... in) {
  Vector<A, n> first;
  Vector<B, n> second;
  for (int j = 0; j < n; ++j) {
    const auto two = f(begin + j, in.at[j]...);
    first.at[j] = static_cast<A>(two.first);
    second.at[j] = static_cast<B>(two.second);
  }
  store_lanes<n>(a, begin, count, first);
  store_lanes<n>(b, begin, count, second);
}

/// Does what map_lanes does with an f that returns a Two: one element for a and one for b.
template <int n, class F, class A, class B, class... In>
KOKKOS_INLINE_FUNCTION void map_two_lanes(std::int64_t begin, std::int64_t count, const F& f, A* a,
                                          B* b, const In*... in) {
  map_two_loaded<n>(begin, count, f, a, b, load_lanes<n>(in, begin, count)...);
}

template <class T, int n, class F, class... In>
KOKKOS_INLINE_FUNCTION Vector<T, n> values_of_loaded(std::int64_t begin, const F& f,
                                                     const Vector<In, n>&... in) {
  Vector<T, n> values;
  for (int j = 0; j < n; ++j) values.at[j] = f(begin + j, in.at[j]...);
  return values;
}

/// Returns f(i, in[i]...) for i in [begin, begin + n), with zeros for elements outside of `count`.
template <class T, int n, class F, class... In>
KOKKOS_INLINE_FUNCTION Vector<T, n> values_of_lanes(std::int64_t begin, std::int64_t count,
                                                    const F& f, const In*... in) {
  return values_of_loaded<T, n>(begin, f, load_lanes<n>(in, begin, count)...);
}

/// out[i] = f(i, in[i]...) for i < count, on the calling thread; on a device as one vector if count
/// <= n.
template <int n, class F, class Out, class... In>
KOKKOS_INLINE_FUNCTION void map_run(std::int64_t count, const F& f, Out* out, const In*... in) {
  if constexpr (on_device)
    if (count <= n) return map_lanes<n>(0, count, f, out, in...);
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<Out>(f(i, in[i]...));
}

}  // namespace ostrakon::math
