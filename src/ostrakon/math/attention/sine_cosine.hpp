// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sine and cosine for inner loops: no calls or branches, so that compilers vectorise them, and the
// same bits for any C library.

#include <ostrakon/math/portability.hpp>

namespace ostrakon::math {

struct SineCosine {
  double sine;
  double cosine;
};

/// Returns sin(2h) and cos(2h) within 1e-15, for |h| <= pi/2: Taylor series of sin h and cos h,
/// then the double-angle formulas, which avoid the usual branch by quadrant.
KOKKOS_INLINE_FUNCTION SineCosine sine_cosine_of_twice(double h) {
  const double z = h * h;
  double s = 1.0 / 51090942171709440000.0;  // 21!
  s = multiply_add(s, z, -1.0 / 121645100408832000.0);
  s = multiply_add(s, z, 1.0 / 355687428096000.0);
  s = multiply_add(s, z, -1.0 / 1307674368000.0);
  s = multiply_add(s, z, 1.0 / 6227020800.0);
  s = multiply_add(s, z, -1.0 / 39916800.0);
  s = multiply_add(s, z, 1.0 / 362880.0);
  s = multiply_add(s, z, -1.0 / 5040.0);
  s = multiply_add(s, z, 1.0 / 120.0);
  s = multiply_add(s, z, -1.0 / 6.0);
  s = multiply_add(s, z * h, h);
  double c = 1.0 / 2432902008176640000.0;  // 20!
  c = multiply_add(c, z, -1.0 / 6402373705728000.0);
  c = multiply_add(c, z, 1.0 / 20922789888000.0);
  c = multiply_add(c, z, -1.0 / 87178291200.0);
  c = multiply_add(c, z, 1.0 / 479001600.0);
  c = multiply_add(c, z, -1.0 / 3628800.0);
  c = multiply_add(c, z, 1.0 / 40320.0);
  c = multiply_add(c, z, -1.0 / 720.0);
  c = multiply_add(c, z, 1.0 / 24.0);
  c = multiply_add(c, z, -0.5);
  c = multiply_add(c, z, 1.0);
  return {2.0 * s * c, multiply_add(-2.0 * s, s, 1.0)};
}

/// Returns sin and cos of an angle in radians, |angle| <= 2^23.
KOKKOS_INLINE_FUNCTION SineCosine sine_cosine(double angle) {
  // Adding 1.5 * 2^52 rounds to whole turns. The high part of 2 pi has 29 bits, so its product with
  // them is exact (Cody & Waite 1980).
  constexpr double shifter = 6755399441055744.0;
  const double turns = multiply_add(angle, 0.15915494309189535, shifter) - shifter;
  const double rest =
      multiply_add(-turns, 0x1.10b4611a62633p-28, multiply_add(-turns, 0x1.921fb54p+2, angle));
  return sine_cosine_of_twice(0.5 * rest);
}

struct SineCosineFloat {
  float sine;
  float cosine;
};

/// Returns sin and cos, within 2^-23, of an angle of turns * 2^-64 whole turns, by Cephes'
/// polynomials for the eighths of a turn around a whole quarter.
KOKKOS_INLINE_FUNCTION SineCosineFloat sine_cosine_of_turns(std::uint64_t turns) {
  const auto angle = static_cast<std::uint32_t>(turns >> 32);
  const std::uint32_t quarter = (angle + 0x20000000u) >> 30;
  const auto rest = static_cast<std::int32_t>(angle - (quarter << 30));  // to +- 2^29
  const float x = static_cast<float>(rest) * 1.46291808e-9f;             // 2 pi / 2^32
  const float z = x * x;
  const float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * x + x;
  const float c =
      ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z -
      0.5f * z + 1.0f;
  const bool odd = (quarter & 1) != 0;
  const float sine = odd ? c : s, cosine = odd ? s : c;
  return {(quarter & 2) != 0 ? -sine : sine, ((quarter + 1) & 2) != 0 ? -cosine : cosine};
}

}  // namespace ostrakon::math
