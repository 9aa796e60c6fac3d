// SPDX-License-Identifier: Apache-2.0
#pragma once

// Arrays for collectives, and what their sums must be to the bit.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/comm/mpi_transport.hpp>
#include <random>
#include <vector>

#include "support/device_array.hpp"

namespace ostrakon::tests {

/// Floats in the memory that the collectives work on.
class Array {
 public:
  explicit Array(std::int64_t count) : values_(count) {}
  explicit Array(const std::vector<float>& values) : values_(values) {}
  View<float*> view() const { return values_.view(); }
  operator View<float*>() const { return view(); }
  operator View<const float*>() const { return view(); }
  /// `count` elements from `begin` on.
  View<float*> part(std::int64_t begin, std::int64_t count) const {
    return view().range(begin, begin + count);
  }
  std::vector<float> values() const { return values_.host(); }

 private:
  test::DeviceArray<float> values_;
};

/// The same values for the same `seed` on every rank; magnitudes so different that the order of
/// additions shows in the bits.
inline std::vector<float> random_values(unsigned seed, std::int64_t count) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> mantissa(-1.0F, 1.0F);
  std::uniform_int_distribution<int> exponent(-12, 12);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = std::ldexp(mantissa(generator), exponent(generator));
  return values;
}

inline std::vector<std::vector<float>> random_arrays(int arrays, std::int64_t count) {
  std::vector<std::vector<float>> all;
  for (int array = 0; array < arrays; ++array)
    all.push_back(random_values(1000U + static_cast<unsigned>(array), count));
  return all;
}

/// The sum of element i of arrays [begin, end) by the tree whose left half is the largest power of
/// two below the number of arrays.
inline float tree(const std::vector<std::vector<float>>& arrays, int begin, int end,
                  std::size_t i) {
  if (end - begin == 1) return arrays[static_cast<std::size_t>(begin)][i];
  int left = 1;
  while (2 * left < end - begin) left *= 2;
  return tree(arrays, begin, begin + left, i) + tree(arrays, begin + left, end, i);
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
           return std::memcmp(&x, &y, sizeof x) == 0;
         });
}

inline std::vector<float> part(const std::vector<float>& values, std::int64_t begin,
                               std::int64_t count) {
  return std::vector<float>(values.begin() + begin, values.begin() + begin + count);
}

class CommunicatorTest : public ::testing::Test {
 protected:
  /// A group as large, whose arrays on a device are moved by MPI.
  static comm::Communicator duplicate(MPI_Comm parent) {
    comm::Communicator made = comm::Communicator::duplicate(parent);
#if OSTRAKON_HAS_DEVICE
    made.carry(std::make_unique<comm::MpiTransport>(made.mpi(), true));
#endif
    return made;
  }

  comm::Communicator world = duplicate(MPI_COMM_WORLD);
};

}  // namespace ostrakon::tests
