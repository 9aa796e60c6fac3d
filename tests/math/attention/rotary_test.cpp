// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <ostrakon/math/attention/rotary.hpp>
#include <ostrakon/math/attention/sine_cosine.hpp>

#include "math/check_gradient.hpp"
#include "support/device_array.hpp"
#include "support/messages.hpp"

namespace ostrakon::math {
namespace {

using test::DeviceArray;
using test::random_values;

struct Case {
  std::int64_t rows, heads, head_width, tokens, first_position;
  double base;
  double share = 1.0, factor = 1.0;
  std::int64_t gap = 0;  // between rows
};

// All elements of heads and some of them, an odd head width, more pairs than a kernel takes.
const Case all_cases[] = {
    {1, 1, 2, 1, 0, 10000.0},
    {5, 1, 6, 5, 0, 10000.0},
    {6, 3, 14, 3, 2, 500000.0},
    {70, 2, 64, 35, 0, 10000.0},
    {3, 2, 130, 3, 1000, 10000.0},
    {40, 1, 8, 40, 131040, 500000.0},
    {6, 3, 13, 3, 2, 500.0, 0.5, 1.25},
    {9, 2, 64, 9, 7, 10000.0, 0.25, 1.0, 3},
    {34, 2, 64, 17, 0, 10000.0, 0.5, 0.75},
    {3, 2, 600, 3, 1000, 10000.0, 1.0, 1.5},
    {3, 1, 700, 3, 5, 10000.0, 0.5},
};

RotaryFrequencies frequencies_of(const Case& c) {
  RotarySettings settings = {c.base};
  settings.share = c.share;
  RotaryFrequencies frequencies = make_rotary_frequencies(settings, c.head_width, c.tokens);
  frequencies.factor = c.factor;
  return frequencies;
}

std::int64_t stride(const Case& c) { return c.heads * c.head_width + c.gap; }

template <class T>
std::vector<T> rotated(const Case& c, Rotation rotation, const std::vector<T>& x) {
  const DeviceArray<T> device(x);
  rotate<T>(Exec(), rotation, frequencies_of(c),
            {device.data(), c.rows, c.heads * c.head_width, stride(c)}, c.head_width, c.tokens,
            c.first_position);
  return device.host();
}

template <class T>
std::vector<T> input(const Case& c, std::uint32_t seed) {
  return random_values<T>(c.rows * stride(c), seed);
}

template <class T>
void check_rotate(Rotation rotation, double tolerance) {
  for (const Case& c : all_cases) {
    const std::vector<T> x = input<T>(c, 1);
    const std::vector<T> y = rotated(c, rotation, x);
    std::vector<bool> is_rotated(x.size());
    const auto half = static_cast<std::int64_t>(c.share * c.head_width) / 2;
    for (std::int64_t r = 0; r < c.rows; ++r)
      for (std::int64_t head = 0; head < c.heads; ++head)
        for (std::int64_t i = 0; i < half; ++i) {
          const long double angle = (rotation == Rotation::forward ? 1 : -1) *
                                    (c.first_position + r % c.tokens) *
                                    std::pow(static_cast<long double>(c.base), -1.0L * i / half);
          const std::int64_t low = r * stride(c) + head * c.head_width + i;
          const long double a = c.factor * x[low];
          const long double b = c.factor * x[low + half];
          ASSERT_NEAR(y[low], a * std::cos(angle) - b * std::sin(angle), tolerance);
          ASSERT_NEAR(y[low + half], b * std::cos(angle) + a * std::sin(angle), tolerance);
          is_rotated[low] = is_rotated[low + half] = true;
        }
    for (std::size_t i = 0; i < x.size(); ++i)
      if (!is_rotated[i]) {
        ASSERT_EQ(y[i], x[i]) << "element " << i;
      }
  }
}

template <class T>
std::vector<T> rotated_in_documents(const Case& c, const std::vector<T>& x,
                                    const std::vector<std::int32_t>& begins) {
  const DeviceArray<T> device(x);
  const DeviceArray<std::int32_t> documents(begins);
  rotate<T>(Exec(), Rotation::forward, frequencies_of(c),
            {device.data(), c.rows, c.heads * c.head_width, stride(c)}, c.head_width, c.tokens,
            c.first_position, documents);
  return device.host();
}

// A row has the bits that it has at its document's position in a sequence of that document alone.
template <class T>
void check_documents() {
  for (const Case& c : all_cases) {
    const std::vector<T> x = input<T>(c, 1);
    std::vector<std::int32_t> begins;
    for (std::int64_t r = 0; r < c.rows; ++r) {
      const std::int64_t token = r % c.tokens, document = r / c.tokens + 3;
      begins.push_back(static_cast<std::int32_t>(c.first_position + token - token % document));
    }
    const std::vector<T> y = rotated_in_documents(c, x, begins);
    for (std::int64_t r = 0; r < c.rows; ++r) {
      Case alone = c;
      alone.rows = 1;
      alone.first_position = c.first_position + r % c.tokens - begins[r];
      const std::vector<T> row(x.begin() + r * stride(c), x.begin() + (r + 1) * stride(c));
      const std::vector<T> expected = rotated(alone, Rotation::forward, row);
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), y.begin() + r * stride(c)));
    }
  }
}

TEST(Rotary, PositionsRestartInDocuments) {
  check_documents<double>();
  check_documents<float>();
  check_documents<bf16>();
  const Case c = all_cases[1];
  EXPECT_EQ(testing::error_of([&] {
              rotated_in_documents(c, input<float>(c, 1), {0, 0});
            }),
            "rotate: begins of the documents of 2 rows of 5; expected as many, or none");
}

TEST(Rotary, AgreesWithPlainLoops) {
  for (const Rotation rotation : {Rotation::forward, Rotation::inverse}) {
    check_rotate<double>(rotation, 1e-10);
    check_rotate<float>(rotation, 4e-7);
    check_rotate<fp16>(rotation, 0x1p-10);
    check_rotate<bf16>(rotation, 0x1p-7);
  }
}

TEST(Rotary, StaysAccurateFarFromTheBeginning) {
  // The rotation of x = (1, 0) gives cosine and sine.
  for (const double base : {10000.0, 500000.0, 1e7})
    for (const std::int64_t head_width : {64, 128, 600}) {
      const Case c = {40, 1, head_width, 40, 1000000, base};
      const std::int64_t half = head_width / 2;
      std::vector<float> x(c.rows * head_width, 0.0f);
      for (std::int64_t r = 0; r < c.rows; ++r) std::fill_n(&x[r * head_width], half, 1.0f);
      const std::vector<float> y = rotated(c, Rotation::forward, x);
      for (std::int64_t r = 0; r < c.rows; ++r)
        for (std::int64_t i = 0; i < half; ++i) {
          const long double angle =
              (c.first_position + r) *
              std::pow(static_cast<long double>(base), -2.0L * i / head_width);
          ASSERT_NEAR(y[r * head_width + i], std::cos(angle), 1.5e-7);
          ASSERT_NEAR(y[r * head_width + half + i], std::sin(angle), 1.5e-7);
        }
    }
}

TEST(Rotary, InverseTurnsBack) {
  for (Case c : all_cases) {
    c.factor = 1.0;
    const std::vector<double> x = input<double>(c, 1);
    const std::vector<double> back =
        rotated(c, Rotation::inverse, rotated(c, Rotation::forward, x));
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(back[i], x[i], 2e-15);
  }
}

TEST(Rotary, InverseIsTheGradient) {
  const Case c = {6, 3, 14, 3, 2, 500000.0, 0.6, 1.25};
  std::vector<double> x = input<double>(c, 1);
  const std::vector<double> dy = input<double>(c, 2);
  const std::vector<double> gradient = rotated(c, Rotation::inverse, dy);
  EXPECT_TRUE(test::gradient_agrees("rotate", x, gradient, [&] {
    return test::weighted_sum(rotated(c, Rotation::forward, x), dy);
  }));
}

TEST(Rotary, ARowAloneHasTheSameBits) {
  const Case c = {70, 2, 64, 35, 3, 10000.0, 0.75};
  const std::vector<float> x = input<float>(c, 1);
  const std::vector<float> y = rotated(c, Rotation::forward, x);
  const std::int64_t width = c.heads * c.head_width;
  for (std::int64_t r = 0; r < c.rows; ++r) {
    const Case one = {1,      c.heads, c.head_width, 1, c.first_position + r % c.tokens,
                      c.base, c.share};
    const std::vector<float> row(x.begin() + r * width, x.begin() + (r + 1) * width);
    ASSERT_EQ(rotated(one, Rotation::forward, row),
              std::vector<float>(y.begin() + r * width, y.begin() + (r + 1) * width));
  }
}

TEST(Rotary, HasTheBitsOfThePower) {
  for (const double base : {10000.0, 500000.0})
    for (const std::int64_t width : {2, 6, 64, 130}) {
      const RotaryFrequencies made = make_rotary_frequencies({base}, width, 4096);
      ASSERT_EQ(made.pairs(), width / 2);
      EXPECT_EQ(made.factor, 1.0);
      for (std::int64_t i = 0; i < width / 2; ++i)
        EXPECT_EQ(made.radians[i],
                  std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(width)));
    }
}

/// Scaled frequencies over those that are not.
std::vector<double> scales(const RotarySettings& settings, std::int64_t head_width,
                           std::int64_t tokens = 100) {
  RotarySettings plain = {settings.base};
  plain.share = settings.share;
  std::vector<double> ratios = make_rotary_frequencies(settings, head_width, tokens).radians;
  const std::vector<double> own = make_rotary_frequencies(plain, head_width, tokens).radians;
  for (std::size_t i = 0; i < ratios.size(); ++i) ratios[i] /= own[i];
  return ratios;
}

TEST(Rotary, ScalesLinearly) {
  RotarySettings settings = {10000.0, 0.5, RotaryScaling::linear, 4.0};
  EXPECT_EQ(scales(settings, 16), std::vector<double>(4, 0.25));
}

TEST(Rotary, ScalesAsLlama3) {
  // Llama 3.1: 1 for wavelengths up to 8192 / 4, 1 / 8 from 8192 on, between them a straight line
  // in 1 / wavelength.
  const RotarySettings settings = {500000.0, 1.0, RotaryScaling::llama3, 8.0, 8192};
  const std::vector<double> found = scales(settings, 128);
  int between = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double turns = 8192 * std::pow(500000.0, -2.0 * i / 128) / 6.283185307179586;
    const double expected = turns > 4 ? 1.0 : turns < 1 ? 0.125 : 0.125 + 0.875 * (turns - 1) / 3;
    EXPECT_NEAR(found[i], expected, 1e-14) << "pair " << i;
    between += turns > 1 && turns < 4 ? 1 : 0;
  }
  EXPECT_GT(between, 3);
}

TEST(Rotary, ScalesAsYarn) {
  // gpt-oss: pairs 8.09 and 17.40 turn 32 times and once in 4,096 tokens.
  RotarySettings settings = {150000.0, 1.0, RotaryScaling::yarn, 32.0, 4096};
  const auto expected = [](double first, double last) {
    std::vector<double> values;
    for (int i = 0; i < 32; ++i) {
      const double part = std::min(std::max((i - first) / (last - first), 0.0), 1.0);
      values.push_back(1.0 - part + part / 32.0);
    }
    return values;
  };
  const auto pair = [](double turns) {
    return 64 * std::log(4096 / (turns * 6.283185307179586)) / (2 * std::log(150000.0));
  };
  EXPECT_NEAR(pair(32), 8.09, 0.01);
  EXPECT_NEAR(pair(1), 17.40, 0.01);
  for (const bool truncate : {false, true}) {
    settings.truncate = truncate;
    const std::vector<double> found = scales(settings, 64);
    const std::vector<double> values = truncate ? expected(8, 18) : expected(pair(32), pair(1));
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], values[i], 1e-14);
  }
  EXPECT_NEAR(make_rotary_frequencies(settings, 64, 1).factor, 1.3465735902799727, 1e-15);
  settings.attention_factor = 1.5;
  EXPECT_EQ(make_rotary_frequencies(settings, 64, 1).factor, 1.5);
  settings.attention_factor = 0.0;
  settings.factor = 0.5;
  EXPECT_EQ(make_rotary_frequencies(settings, 64, 1).factor, 1.0);
}

TEST(Rotary, ScalesAsLongRope) {
  RotarySettings settings = {10000.0, 0.75, RotaryScaling::longrope, 32.0, 4096};
  settings.short_factors = {1.0, 2.0, 4.0};
  settings.long_factors = {8.0, 16.0, 32.0};
  for (const std::int64_t tokens : {1, 4096, 4097}) {
    const std::vector<double> found = scales(settings, 8, tokens);
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(found[i] * (tokens > 4096 ? settings.long_factors : settings.short_factors)[i],
                  1.0, 1e-15);
  }
  // Phi-4-mini: sqrt(1 + ln 32 / ln 4096) = sqrt(1 + 5 / 12).
  EXPECT_NEAR(make_rotary_frequencies(settings, 8, 1).factor, std::sqrt(17.0 / 12.0), 1e-15);
  settings.attention_factor = 1.25;
  EXPECT_EQ(make_rotary_frequencies(settings, 8, 1).factor, 1.25);
}

TEST(Rotary, RefusesSettings) {
  const auto refused = [](const auto& change) {
    RotarySettings settings = {10000.0, 1.0, RotaryScaling::none, 2.0, 64};
    change(settings);
    return testing::error_of([&] { require_possible(settings, 8, "x: ", "rotary."); });
  };
  EXPECT_EQ(refused([](auto& s) { s.share = 0.4; }),
            "x: rotary.share = 0.4 of heads of width 8 rotates 3 elements; expected an even number "
            "of at least 2, as positions turn pairs");
  EXPECT_EQ(refused([](auto& s) { s.share = 0.1; }).find("x: rotary.share = 0.1 of heads"), 0u);
  EXPECT_EQ(refused([](auto& s) { s.base = 0.5; }), "x: rotary.base = 0.5; expected at least 1");
  const auto scaled = [&](RotaryScaling scaling, const auto& change) {
    return refused([&](auto& s) {
      s.scaling = scaling;
      s.short_factors = s.long_factors = std::vector<double>(4, 1.0);
      change(s);
    });
  };
  for (const RotaryScaling scaling :
       {RotaryScaling::llama3, RotaryScaling::yarn, RotaryScaling::longrope}) {
    EXPECT_EQ(scaled(scaling, [](auto&) {}), "no error");
    EXPECT_EQ(scaled(scaling, [](auto& s) { s.original_length = 0; })
                  .find(std::string("x: rotary.original_length = 0 with rotary.scaling = ") +
                        name(scaling)),
              0u);
    EXPECT_EQ(scaled(scaling, [](auto& s) { s.factor = 0.0; }).find("x: rotary.factor = 0"), 0u);
  }
  EXPECT_EQ(scaled(RotaryScaling::llama3, [](auto& s) { s.low_factor = 4.0; }),
            "x: rotary.high_factor = 4 with rotary.scaling = llama3; expected more than "
            "rotary.low_factor = 4");
  EXPECT_EQ(scaled(RotaryScaling::yarn, [](auto& s) { s.beta_slow = 33.0; }),
            "x: rotary.beta_fast = 32 with rotary.scaling = yarn; expected at least "
            "rotary.beta_slow = 33");
  EXPECT_EQ(scaled(RotaryScaling::longrope, [](auto& s) { s.long_factors.pop_back(); }),
            "x: rotary.long_factors has 3 numbers with rotary.scaling = longrope; expected 4, one "
            "for each pair of the 8 elements of a head that are rotated");
}

TEST(SineCosine, AgreesWithTheLibrary) {
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const double angle = (i - 100000) * 1.3107;
    const SineCosine turned = sine_cosine(angle);
    worst = std::max(worst, static_cast<double>(
                                std::abs(turned.sine - std::sin(static_cast<long double>(angle)))));
    worst = std::max(
        worst,
        static_cast<double>(std::abs(turned.cosine - std::cos(static_cast<long double>(angle)))));
  }
  EXPECT_LT(worst, 1e-15);
}

TEST(SineCosine, OfTurnsAgreesWithTheLibrary) {
  double worst = 0;
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const std::uint64_t turns = i * 0x9E3779B97F4A7C15u;
    const SineCosineFloat turned = sine_cosine_of_turns(turns);
    const double angle = static_cast<double>(turns) * 0x1p-64 * 6.283185307179586;
    worst = std::max({worst, std::abs(turned.sine - std::sin(angle)),
                      std::abs(turned.cosine - std::cos(angle))});
  }
  EXPECT_LT(worst, 0x1p-23);
  EXPECT_EQ(sine_cosine_of_turns(0).sine, 0.0f);
  EXPECT_EQ(sine_cosine_of_turns(0).cosine, 1.0f);
  EXPECT_EQ(sine_cosine_of_turns(std::uint64_t{1} << 63).cosine, -1.0f);
}

}  // namespace
}  // namespace ostrakon::math
