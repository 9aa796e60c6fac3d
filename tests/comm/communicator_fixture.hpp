// SPDX-License-Identifier: Apache-2.0
#pragma once

// Arrays for collectives, and their exact expected sums.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/comm/mpi_transport.hpp>
#include <random>
#include <type_traits>
#include <vector>

#include "support/device_array.hpp"

namespace ostrakon::tests {

/// An array of floats in the memory that the collectives use.
class Array {
 public:
  explicit Array(std::int64_t count) : values_(count) {}
  explicit Array(const std::vector<float>& values) : values_(values) {}
  View<float*> view() const { return values_.view(); }
  operator View<float*>() const { return view(); }
  operator View<const float*>() const { return view(); }
  /// Returns `count` elements from `begin` on.
  View<float*> part(std::int64_t begin, std::int64_t count) const {
    return view().range(begin, begin + count);
  }
  std::vector<float> values() const { return values_.host(); }

 private:
  test::DeviceArray<float> values_;
};

/// Returns values that depend on `seed` alone. Their magnitudes differ so much that the order of
/// additions changes the bits of sums.
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

/// Returns the sum of element i of arrays [begin, end) by the tree whose left half is the largest
/// power of two below the number of arrays.
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

/// Checks sums of the library's order: they must be near the exact sum, and send the same number of
/// bytes.
template <class T>
void expect_library_sums(comm::Communicator& world, std::int64_t count, double epsilon) {
  const auto arrays = random_arrays(world.size(), count * world.size());
  std::vector<T> own;
  for (const float value : arrays[static_cast<std::size_t>(world.rank())])
    own.push_back(static_cast<T>(value));
  const test::DeviceArray<T> full(own);
  const Array shard(count);
  const std::int64_t before = world.bytes_sent();
  world.library_reduce_scatter<T, OnDevice>(Exec(), full, shard);
  EXPECT_EQ(world.bytes_sent() - before,
            (world.size() - 1) * count * static_cast<std::int64_t>(sizeof(T)));
  const std::vector<float> sums = shard.values();
  for (std::int64_t i = 0; i < count; ++i) {
    double sum = 0.0, size = 0.0;
    for (const std::vector<float>& array : arrays) {
      const auto value = static_cast<float>(
          static_cast<T>(array[static_cast<std::size_t>(world.rank() * count + i)]));
      sum += static_cast<double>(value);
      size += std::fabs(static_cast<double>(value));
    }
    ASSERT_NEAR(static_cast<double>(sums[static_cast<std::size_t>(i)]), sum,
                epsilon * size * world.size() + 1e-7)
        << count << ", element " << i;
  }
  if (std::is_same<T, float>::value) {
    const std::vector<T> after = full.host();
    EXPECT_EQ(std::memcmp(after.data(), own.data(), own.size() * sizeof(T)), 0);
  }
}

inline void expect_library_sums(comm::Communicator& world,
                                const std::vector<std::int64_t>& counts) {
  for (const std::int64_t count : counts) {
    expect_library_sums<float>(world, count, 0x1p-24);
    expect_library_sums<bf16>(world, count, 0x1p-8);
    expect_library_sums<fp16>(world, count, 0x1p-11);
  }
}

class CommunicatorTest : public ::testing::Test {
 protected:
  /// Duplicates `parent`; MPI moves arrays on a device.
  static comm::Communicator duplicate(MPI_Comm parent) {
    comm::Communicator made = comm::Communicator::duplicate(parent);
#if OSTRAKON_HAS_DEVICE
    made.set_transport(std::make_unique<comm::MpiTransport>(made.mpi(), true));
#endif
    return made;
  }

  comm::Communicator world = duplicate(MPI_COMM_WORLD);
};

}  // namespace ostrakon::tests
