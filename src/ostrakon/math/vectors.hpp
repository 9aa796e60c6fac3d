// SPDX-License-Identifier: Apache-2.0
#pragma once

// Vectors of neighbouring elements, for kernels on a device: there a thread reaches the rate of the
// memory with loads and stores of 8 or 16 bytes, not with those of single 16-bit elements.

#include <cstring>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/work_items.hpp>

namespace ostrakon::math {

/// n neighbouring elements, one load or store where they are no more than 16 bytes.
template <class T, int n>
struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) Vector {
  T at[n];
};

/// Elements of a vector of several arrays: as many as 16 bytes hold of the widest type.
template <class... T>
KOKKOS_INLINE_FUNCTION constexpr int vector_elements() {
  std::size_t widest = 1;
  ((widest = sizeof(T) > widest ? sizeof(T) : widest), ...);
  return static_cast<int>(16 / widest);
}

template <int n, class T>
KOKKOS_INLINE_FUNCTION Vector<T, n> load_vector(const T* x) {
  return *reinterpret_cast<const Vector<T, n>*>(x);
}
template <int n, class T>
KOKKOS_INLINE_FUNCTION void store_vector(T* x, const Vector<T, n>& values) {
#if defined(__CUDA_ARCH__)
  // In words of the instruction: where single elements are stored on another path, CUDA's compiler
  // else merges both into stores of single elements.
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

/// Elements from the last place where a vector may begin to x.
template <int n, class T>
KOKKOS_INLINE_FUNCTION int elements_past_vector(const T* x) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(x) / sizeof(T) % n);
}

/// Whether vectors of n elements may begin at all of x.
template <int n, class... T>
KOKKOS_INLINE_FUNCTION bool begin_vectors(const T*... x) {
  return ((elements_past_vector<n>(x) == 0) && ...);
}

/// Elements [begin, begin + n) of an array of `count`; zeros where there are none. They become one
/// vector in any case, so that what is computed from them has one piece of machine code: compilers
/// may fuse a product and a sum in one copy of an expression and not in another.
template <int n, class T>
KOKKOS_INLINE_FUNCTION Vector<T, n> load_lanes(const T* x, std::int64_t begin, std::int64_t count) {
  if (begin >= 0 && begin + n <= count && begin_vectors<n>(x + begin))
    return load_vector<n>(x + begin);
  Vector<T, n> values;
  for (int j = 0; j < n; ++j)
    values.at[j] = begin + j >= 0 && begin + j < count ? x[begin + j] : T(0);
  return values;
}
template <int n, class T>
KOKKOS_INLINE_FUNCTION void store_lanes(T* x, std::int64_t begin, std::int64_t count,
                                        const Vector<T, n>& values) {
  if (begin >= 0 && begin + n <= count && begin_vectors<n>(x + begin))
    return store_vector<n>(x + begin, values);
  for (int j = 0; j < n; ++j)
    if (begin + j >= 0 && begin + j < count) x[begin + j] = values.at[j];
}

/// Where the first vector of x begins: at 0, or before that in a part of a vector.
template <int n, class T>
KOKKOS_INLINE_FUNCTION std::int64_t first_vector(const T* x) {
  return -elements_past_vector<n>(x);
}

/// What a kernel computes for two arrays at once.
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

/// out[i] = f(i, in[i]...) for those i in [begin, begin + n) that arrays of `count` elements have;
/// f is called for the others, too, with zeros.
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

/// Maps with an f that returns a Two: one for a and one for b.
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

/// f(i, in[i]...) for i in [begin, begin + n), as above.
template <class T, int n, class F, class... In>
KOKKOS_INLINE_FUNCTION Vector<T, n> values_of_lanes(std::int64_t begin, std::int64_t count,
                                                    const F& f, const In*... in) {
  return values_of_loaded<T, n>(begin, f, load_lanes<n>(in, begin, count)...);
}

/// out[i] = f(i, in[i]...) for i < count, on the calling thread: of a device, as a vector where
/// they are no more than n.
template <int n, class F, class Out, class... In>
KOKKOS_INLINE_FUNCTION void map_run(std::int64_t count, const F& f, Out* out, const In*... in) {
  if constexpr (on_device)
    if (count <= n) return map_lanes<n>(0, count, f, out, in...);
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<Out>(f(i, in[i]...));
}

}  // namespace ostrakon::math
