// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/huggingface/small_floats.hpp>

#include <cmath>
#include <limits>
#include <ostrakon/math/half.hpp>

namespace ostrakon::checkpoint {

float float_of_e4m3(std::uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                             : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  // The mantissa keeps its bits, as in torch.
  if ((code & 0x7F) == 0x7F) size = half_bits::to_float(0x7FF00000u);
  return (code & 0x80) != 0 ? -size : size;
}

float float_of_e5m2(std::uint8_t code) {
  return fp16::from_bits(static_cast<std::uint16_t>(code << 8));
}

float float_of_e2m1(std::uint8_t code) {
  const int exponent = code >> 1 & 3, mantissa = code & 1;
  const float size = exponent == 0 ? 0.5f * static_cast<float>(mantissa)
                                   : std::ldexp(static_cast<float>(2 + mantissa), exponent - 2);
  return (code & 8) != 0 ? -size : size;
}

float float_of_e8m0(std::uint8_t code) {
  if (code == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0f, code - 127);
}

}  // namespace ostrakon::checkpoint
