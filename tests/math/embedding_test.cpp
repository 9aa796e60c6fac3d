// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/math/embedding.hpp>

#include "math/check_gradient.hpp"
#include "support/device_array.hpp"

namespace ostrakon::math {
namespace {

using test::DeviceArray;
using test::random_values;

struct Case {
  std::int64_t batch, tokens, vocabulary, width, first_position;
  bool positions;
  std::int64_t rows() const { return batch * tokens; }
  std::int64_t table_rows() const { return first_position + tokens; }
};

const Case all_cases[] = {
    {1, 1, 1, 1, 0, true},  {2, 3, 5, 7, 0, true},   {2, 3, 5, 7, 0, false},
    {1, 9, 4, 65, 2, true}, {3, 5, 2, 130, 0, true},
};

std::vector<std::int32_t> ids(const Case& c) {
  std::vector<std::int32_t> values(c.rows());
  for (std::int64_t r = 0; r < c.rows(); ++r)
    values[r] = static_cast<std::int32_t>((r * r + 3 * r + 1) % c.vocabulary);
  return values;
}

template <class T>
std::vector<T> forward(const Case& c, const std::vector<T>& token_table,
                       const std::vector<T>& position_table) {
  const DeviceArray<std::int32_t> id(ids(c));
  const DeviceArray<T> token(token_table);
  const DeviceArray<T> position(position_table);
  const DeviceArray<T> out(c.rows() * c.width);
  embedding_forward<T>(Exec(), id, c.tokens, c.first_position,
                       {token.data(), c.vocabulary, c.width},
                       {c.positions ? position.data() : nullptr, c.table_rows(), c.width},
                       {out.data(), c.rows(), c.width});
  return out.host();
}

template <class T>
void check_forward() {
  for (const Case& c : all_cases) {
    const std::vector<T> token = random_values<T>(c.vocabulary * c.width, 1);
    const std::vector<T> position = random_values<T>(c.table_rows() * c.width, 2);
    const std::vector<T> out = forward(c, token, position);
    const std::vector<std::int32_t> id = ids(c);
    for (std::int64_t r = 0; r < c.rows(); ++r)
      for (std::int64_t i = 0; i < c.width; ++i) {
        T expected = token[id[r] * c.width + i];
        if (c.positions) expected += position[(c.first_position + r % c.tokens) * c.width + i];
        ASSERT_EQ(out[r * c.width + i], expected);
      }
  }
}

TEST(Embedding, ForwardAgreesWithPlainLoops) {
  check_forward<double>();
  check_forward<float>();
}

template <class T>
void check_backward() {
  for (const Case& c : all_cases) {
    if (c.first_position != 0) continue;
    const std::vector<T> dout = random_values<T>(c.rows() * c.width, 3);
    std::vector<T> token = random_values<T>(c.vocabulary * c.width, 1);
    std::vector<T> position = random_values<T>(c.tokens * c.width, 2);
    const DeviceArray<std::int32_t> id(ids(c));
    const DeviceArray<T> dy(dout);
    const DeviceArray<T> dtoken(token);
    const DeviceArray<T> dposition(position);
    embedding_backward<T>(Exec(), id, c.tokens, {dy.data(), c.rows(), c.width},
                          {dtoken.data(), c.vocabulary, c.width},
                          {c.positions ? dposition.data() : nullptr, c.tokens, c.width});
    const std::vector<std::int32_t> host_ids = ids(c);
    for (std::int64_t r = 0; r < c.rows(); ++r)
      for (std::int64_t i = 0; i < c.width; ++i) {
        token[host_ids[r] * c.width + i] += dout[r * c.width + i];
        if (c.positions) position[r % c.tokens * c.width + i] += dout[r * c.width + i];
      }
    // To the bit: rows are added in order.
    ASSERT_EQ(dtoken.host(), token);
    ASSERT_EQ(dposition.host(), position);
  }
}

TEST(Embedding, BackwardAddsRowsInOrder) {
  check_backward<double>();
  check_backward<float>();
}

/// The gradient of either table is the same where the other's is not wanted.
TEST(Embedding, LeavesOutGradientsThatAreNotWanted) {
  for (const Case& c : all_cases) {
    if (c.first_position != 0) continue;
    const std::vector<float> token = random_values<float>(c.vocabulary * c.width, 1);
    const std::vector<float> position = random_values<float>(c.tokens * c.width, 2);
    const DeviceArray<std::int32_t> id(ids(c));
    const DeviceArray<float> dy(random_values<float>(c.rows() * c.width, 3));
    const DeviceArray<float> dtoken(token), dposition(position), token_alone(token),
        position_alone(position);
    const auto backward = [&](float* token_gradient, float* position_gradient) {
      embedding_backward<float>(Exec(), id, c.tokens, {dy.data(), c.rows(), c.width},
                                {token_gradient, c.vocabulary, c.width},
                                {position_gradient, c.tokens, c.width});
    };
    backward(dtoken.data(), dposition.data());
    backward(token_alone.data(), nullptr);
    backward(nullptr, position_alone.data());
    backward(nullptr, nullptr);
    ASSERT_NE(dtoken.host(), token);
    ASSERT_EQ(token_alone.host(), dtoken.host());
    ASSERT_EQ(position_alone.host(), dposition.host());
  }
}

TEST(Embedding, BackwardAgreesWithFiniteDifferences) {
  const Case c = {2, 3, 5, 7, 0, true};
  std::vector<double> token = random_values<double>(c.vocabulary * c.width, 1);
  std::vector<double> position = random_values<double>(c.tokens * c.width, 2);
  const std::vector<double> dout = random_values<double>(c.rows() * c.width, 3);
  const DeviceArray<std::int32_t> id(ids(c));
  const DeviceArray<double> dy(dout);
  const DeviceArray<double> dtoken(token.size(), 0.0);
  const DeviceArray<double> dposition(position.size(), 0.0);
  embedding_backward<double>(Exec(), id, c.tokens, {dy.data(), c.rows(), c.width},
                             {dtoken.data(), c.vocabulary, c.width},
                             {dposition.data(), c.tokens, c.width});
  const auto loss = [&] { return test::weighted_sum(forward(c, token, position), dout); };
  EXPECT_TRUE(test::gradient_agrees("token", token, dtoken.host(), loss));
  EXPECT_TRUE(test::gradient_agrees("position", position, dposition.host(), loss));
}

}  // namespace
}  // namespace ostrakon::math
