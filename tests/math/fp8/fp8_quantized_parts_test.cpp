// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>
#include <ostrakon/math/fp8/quantized_parts.hpp>

#include "math/fp8/fp8_matrices.hpp"
#include "support/device_array.hpp"

namespace ostrakon::math {
namespace {

using plan::FlatElements;
using plan::QuantizedFlat;
using test::DeviceArray;
using test::Matrix;

/// Weights at the begin, in the middle, in parts of granules, and at the end.
const std::vector<FlatElements> weights = {{0, 640}, {640, 650}, {1024, 1100}, {1984, 2048}};
constexpr std::int64_t elements = 2048;

bool has_code(std::int64_t granule) {
  for (const FlatElements& run : weights)
    if (granule * 64 < run.end && run.begin < (granule + 1) * 64) return true;
  return false;
}

/// What the elements are to become, in `values`: by a search among the numbers of e4m3, or bf16.
std::vector<float> expected(const std::vector<float>& values) {
  Matrix blocks{elements / 32, 32, {values.begin(), values.end()}};
  blocks = test::rounded(Fp8Format::e4m3, blocks, false);
  std::vector<float> result;
  for (std::int64_t i = 0; i < elements; ++i)
    result.push_back(has_code(i / 64) ? static_cast<float>(blocks.values[i])
                                      : static_cast<float>(bf16(values[i])));
  return result;
}

std::vector<float> given() {
  std::vector<float> values = test::spread_values<float>(elements / 32, 32, 5);
  std::fill_n(values.begin() + 64, 32, 0.0F);
  values[200] = std::numeric_limits<float>::infinity();
  values[1050] = std::numeric_limits<float>::quiet_NaN();
  return values;
}

void expect_equal(const std::vector<bf16>& found, const std::vector<float>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    if (std::isnan(wanted[i]))
      EXPECT_TRUE(std::isnan(static_cast<float>(found[i]))) << i;
    else
      EXPECT_EQ(static_cast<float>(found[i]), wanted[i]) << i;
}

TEST(QuantizedParts, AreRoundedAlikeHoweverManyThereAre) {
  const std::vector<float> values = given(), wanted = expected(values);
  const DeviceArray<float> x(values);
  for (const std::int64_t parts : {1, 2, 4, 8, 32}) {
    SCOPED_TRACE(parts);
    const QuantizedFlat flat(weights, elements, parts);
    const std::int64_t of_part = elements / parts;
    const DeviceArray<std::uint8_t> sent(parts * flat.part_bytes, 0xAB);
    for (std::int64_t part = 0; part < parts; ++part)
      quantize_part<OnDevice>(
          Exec(), flat, part, x.view().range(part * of_part, (part + 1) * of_part),
          sent.view().range(part * flat.part_bytes, (part + 1) * flat.part_bytes));
    const DeviceArray<bf16> y(elements);
    dequantize_parts<OnDevice>(Exec(), flat, 0, sent, y);
    expect_equal(y.host(), wanted);
    // Some of the parts, as where tensor ranks have the others.
    const std::int64_t first = parts / 2;
    const DeviceArray<bf16> last((parts - first) * of_part);
    dequantize_parts<OnDevice>(Exec(), flat, first,
                               sent.view().range(first * flat.part_bytes, parts * flat.part_bytes),
                               last);
    expect_equal(last.host(), {wanted.begin() + first * of_part, wanted.end()});
  }
}

TEST(QuantizedParts, HaveTheBitsOfTheDeviceOnTheCallingThread) {
  std::vector<float> values = given();
  const QuantizedFlat flat(weights, elements, 2);
  const DeviceArray<float> x(values);
  const DeviceArray<std::uint8_t> sent(flat.part_bytes, 0);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(flat.part_bytes), 0);
  const std::int64_t half = elements / 2;
  quantize_part<OnDevice>(Exec(), flat, 1, x.view().range(half, elements), sent);
  quantize_part<OnHost>(CallingThread(), flat, 1, host_view(values).range(half, elements),
                        host_view(bytes));
  EXPECT_EQ(sent.host(), bytes);
  std::vector<bf16> y(static_cast<std::size_t>(half));
  dequantize_parts<OnHost>(CallingThread(), flat, 1, host_view(bytes), host_view(y));
  const std::vector<float> wanted = expected(values);
  expect_equal(y, {wanted.begin() + half, wanted.end()});
}

TEST(QuantizedParts, RoundedTwiceAreAsOnce) {
  const QuantizedFlat flat({{0, elements}}, elements, 1);
  std::vector<float> values = test::spread_values<float>(elements / 32, 32, 6);
  std::vector<std::vector<bf16>> rounded;
  for (int times = 0; times < 2; ++times) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(flat.part_bytes));
    std::vector<bf16> y(values.size());
    quantize_part<OnHost>(CallingThread(), flat, 0, host_view(values), host_view(bytes));
    dequantize_parts<OnHost>(CallingThread(), flat, 0, host_view(bytes), host_view(y));
    rounded.push_back(y);
    values.assign(y.begin(), y.end());
  }
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(static_cast<float>(rounded[0][i]), static_cast<float>(rounded[1][i]));
}

TEST(QuantizedParts, RefuseOtherSizes) {
  std::vector<float> x(1024);
  const QuantizedFlat flat(weights, elements, 2);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(flat.part_bytes - 1));
  EXPECT_THROW(quantize_part<OnHost>(CallingThread(), flat, 0, host_view(x), host_view(bytes)),
               Error);
}

}  // namespace
}  // namespace ostrakon::math
