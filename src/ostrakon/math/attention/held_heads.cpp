// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/attention/held_heads_kernels.hpp>
#include <ostrakon/math/attention/rotary.hpp>
#include <ostrakon/math/attention/rotated_norms.hpp>

namespace ostrakon::math {

#if OSTRAKON_ON_DEVICE

template <class T>
void held_heads_forward(const Exec& exec, const char* name, const HeadNorm& norm,
                        const HeldArrays<T>& arrays, int count, const RowRotation* rotation) {
  with_gain(norm.gain, [&](auto gain) {
    HeldHeadsForward<gain(), T> kernel(norm, arrays, count,
                                       RowBlocks(arrays[0].in.rows(), 1, rows_of_norm_block));
    if (rotation != nullptr) kernel.rotate_by(*rotation);
    kernel.run(exec, name, kernel);
  });
}

template <class T>
void held_heads_backward(const Exec& exec, const char* name, const HeadNorm& norm,
                         const HeldArrays<T>& arrays, int count, std::int64_t leaves,
                         const RowRotation* rotation) {
  using C = compute_t<T>;
  const RowBlocks blocks(arrays[0].in.rows(), leaves, rows_of_norm_block);
  Kokkos::Array<View<C**>, 2> sums;
  for (int i = 0; i < count; ++i)
    if (arrays[i].dweight)
      sums[i] = sums_of_blocks<C>(name, {leaves, arrays[i].workspace}, blocks, norm.head_width);
  with_gain(norm.gain, [&](auto gain) {
    HeldHeadsBackward<gain(), T> kernel(norm, arrays, count, blocks);
    if (rotation != nullptr) kernel.rotate_by(*rotation);
    kernel.sum_into(sums);
    kernel.run(exec, name, kernel);
  });
  for (int i = 0; i < count; ++i)
    if (sums[i])
      add_blocks<C, 1>(exec, "add_blocks", sums[i], RowSums<C>{leaves}, {{arrays[i].dweight}});
}

template <class T>
void held_heads_statistics(const Exec& exec, const char* name, const HeadNorm& norm,
                           View<const T**> x, View<compute_t<T>**> rstd,
                           View<compute_t<T>**> mean) {
  HeldArrays<T> arrays;
  arrays[0].in = x;
  HeldHeadsStatistics<T> kernel(norm, arrays, 1, RowBlocks(x.rows(), 1, rows_of_norm_block));
  kernel.rstd = rstd;
  kernel.mean = mean;
  kernel.run(exec, name, kernel);
}

#define OSTRAKON_INSTANTIATE(T)                                                       \
  template void held_heads_forward<T>(const Exec&, const char*, const HeadNorm&,      \
                                      const HeldArrays<T>&, int, const RowRotation*); \
  template void held_heads_backward<T>(const Exec&, const char*, const HeadNorm&,     \
                                       const HeldArrays<T>&, int, std::int64_t,       \
                                       const RowRotation*);                           \
  template void held_heads_statistics<T>(const Exec&, const char*, const HeadNorm&,   \
                                         View<const T**>, View<compute_t<T>**>,       \
                                         View<compute_t<T>**>);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
#undef OSTRAKON_INSTANTIATE

namespace {

RowRotation rotation_of(const RotaryRows& rows, Rotation rotation) {
  const std::int64_t pairs = rows.frequencies.pairs();
  return {Turns(rows.frequencies, {0, pairs, pairs}, rotation == Rotation::inverse),
          {FastDivide(rows.tokens), rows.first_position, rows.document_begins}};
}

}  // namespace

#endif

template <class T>
bool can_norm_and_rotate(const HeadNorm& norm, const RotaryFrequencies& frequencies) {
  return can_hold_heads<T>(norm.head_width) && 2 * frequencies.pairs() == norm.head_width;
}

template <class T>
bool norm_and_rotate([[maybe_unused]] const Exec& exec, const HeadNorm& norm,
                     const RotaryRows& rows, const std::vector<NormedHeads<T>>& heads) {
  require(heads.size() == 1 || heads.size() == 2, "norm_and_rotate: ", heads.size(),
          " arrays of heads; expected 1 or 2");
  if (!on_device || !can_norm_and_rotate<T>(norm, rows.frequencies)) return false;
#if OSTRAKON_ON_DEVICE
  if constexpr (!std::is_same_v<T, double>) {
    HeldArrays<T> arrays;
    for (std::size_t i = 0; i < heads.size(); ++i) {
      if (!hold_heads<T>(norm.head_width, heads[i].x, heads[i].kept)) return false;
      arrays[i].weight = heads[i].weight;
      arrays[i].in = arrays[i].out = heads[i].x;
      arrays[i].kept = heads[i].kept;
    }
    const RowRotation rotation = rotation_of(rows, Rotation::forward);
    held_heads_forward<T>(exec, "norm_rotate", norm, arrays, static_cast<int>(heads.size()),
                          &rotation);
  }
#endif
  return true;
}

template <class T>
bool rotate_and_norm_backward([[maybe_unused]] const Exec& exec, const HeadNorm& norm,
                              const RotaryRows& rows,
                              const std::vector<NormedHeadGradients<T>>& heads,
                              [[maybe_unused]] std::int64_t leaves) {
  require(heads.size() == 1 || heads.size() == 2, "rotate_and_norm_backward: ", heads.size(),
          " arrays of heads; expected 1 or 2");
  for (const NormedHeadGradients<T>& own : heads) {
    if (own.weight && own.weight.size() != norm.head_width) return false;
    require(!own.dweight || own.dweight.size() == norm.head_width,
            "rotate_and_norm_backward: gradient of a weight of ", own.dweight.size(),
            " elements; expected ", norm.head_width);
  }
  if (!on_device || !can_norm_and_rotate<T>(norm, rows.frequencies)) return false;
#if OSTRAKON_ON_DEVICE
  if constexpr (!std::is_same_v<T, double>) {
    HeldArrays<T> arrays;
    for (std::size_t i = 0; i < heads.size(); ++i) {
      if (!hold_heads<T>(norm.head_width, heads[i].kept, heads[i].gradient)) return false;
      arrays[i].weight = heads[i].weight;
      arrays[i].in = heads[i].kept;
      arrays[i].dout = arrays[i].out = heads[i].gradient;
      arrays[i].dweight = heads[i].dweight;
      arrays[i].workspace = heads[i].workspace;
    }
    const RowRotation rotation = rotation_of(rows, Rotation::inverse);
    held_heads_backward<T>(exec, "norm_rotate_dx", norm, arrays, static_cast<int>(heads.size()),
                           leaves, &rotation);
  }
#endif
  return true;
}

#define OSTRAKON_INSTANTIATE(T)                                                              \
  template bool can_norm_and_rotate<T>(const HeadNorm&, const RotaryFrequencies&);           \
  template bool norm_and_rotate<T>(const Exec&, const HeadNorm&, const RotaryRows&,          \
                                   const std::vector<NormedHeads<T>>&);                      \
  template bool rotate_and_norm_backward<T>(const Exec&, const HeadNorm&, const RotaryRows&, \
                                            const std::vector<NormedHeadGradients<T>>&,      \
                                            std::int64_t);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
