// SPDX-License-Identifier: Apache-2.0
// Kernels of a gated delta net: forward against the recurrence in plain loops, gradients in double
// against finite differences.
#include <gtest/gtest.h>

#include <cmath>
#include <ostrakon/math/attention/head_norm.hpp>
#include <ostrakon/math/delta_net/convolution.hpp>
#include <ostrakon/math/delta_net/delta_rule.hpp>
#include <ostrakon/math/delta_net/gated_norm.hpp>

#include "math/check_gradient.hpp"
#include "math/compare.hpp"
#include "math/half_kernels.hpp"

namespace ostrakon::math {
namespace {

using namespace halves;

/// The largest error, relative to the largest number.
double error_of(const Doubles& values, const Doubles& expected) {
  return row_error(values, expected, static_cast<std::int64_t>(expected.size()));
}

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

/// What the delta rule reads.
struct DeltaRuleInputs {
  DeltaRuleShape shape;
  Doubles x, gates, decay, bias;
};

template <class T>
DeltaRuleInputs inputs_of(const DeltaRuleShape& s) {
  DeltaRuleInputs in{s, inputs<T>(s.rows() * s.columns(), 1),
                     inputs<T>(s.rows() * 2 * s.value_heads, 2), inputs<T>(s.value_heads, 3),
                     inputs<T>(s.value_heads, 4)};
  for (double& one : in.decay) one -= 2.0;  // so that states live longer than a chunk
  return in;
}

/// By token, as the recurrence says it.
Doubles recurrence(const DeltaRuleInputs& in) {
  const DeltaRuleShape& s = in.shape;
  const std::int64_t group = s.value_heads / s.key_heads, width = s.key_width;
  Doubles out(s.rows() * s.value_columns());
  for (std::int64_t sequence = 0; sequence < s.sequences; ++sequence)
    for (std::int64_t h = 0; h < s.value_heads; ++h) {
      std::vector<Doubles> state(width, Doubles(s.value_width, 0.0));
      for (std::int64_t t = 0; t < s.tokens; ++t) {
        const std::int64_t r = sequence * s.tokens + t;
        const double* const row = &in.x[r * s.columns()];
        const auto normed = [&](const double* of) {
          double squares = 1e-6;
          for (std::int64_t i = 0; i < width; ++i) squares += of[i] * of[i];
          Doubles values(of, of + width);
          for (double& value : values) value /= std::sqrt(squares);
          return values;
        };
        const Doubles q = normed(row + h / group * width);
        const Doubles k = normed(row + s.key_columns() + h / group * width);
        const double* const v = row + 2 * s.key_columns() + h * s.value_width;
        const double* const gate = &in.gates[r * 2 * s.value_heads];
        const double beta = sigmoid_of(gate[h]);
        const double decay = std::exp(-std::exp(in.decay[h]) *
                                      std::log1p(std::exp(gate[s.value_heads + h] + in.bias[h])));
        for (std::int64_t j = 0; j < s.value_width; ++j) {
          double found = 0.0, sum = 0.0;
          for (std::int64_t i = 0; i < width; ++i) found += (state[i][j] *= decay) * k[i];
          for (std::int64_t i = 0; i < width; ++i)
            sum += (state[i][j] += k[i] * beta * (v[j] - found)) * q[i];
          out[r * s.value_columns() + h * s.value_width + j] = sum / std::sqrt(width);
        }
      }
    }
  return out;
}

/// Forward, in runs of so many tokens of the only sequence, or at once with `states` for backward.
template <class T>
Doubles delta_rule(const DeltaRuleInputs& in, std::int64_t run = 0,
                   const DeviceArray<compute_t<T>>* states = nullptr) {
  using C = compute_t<T>;
  const DeltaRuleShape& s = in.shape;
  const auto x = device<T>(in.x), gates = device<T>(in.gates), decay = device<T>(in.decay);
  const auto bias = device<T>(in.bias), out = unwritten<T>(s.rows() * s.value_columns());
  const auto state = unwritten<C>(s.sequences * s.state_columns());
  const auto workspace = unwritten<C>(delta_rule_forward_workspace(s));
  for (std::int64_t begin = 0; begin<s.tokens; begin += run> 0 ? run : s.tokens) {
    DeltaRuleShape some = s;
    if (run > 0) some.tokens = std::min(run, s.tokens - begin);
    const std::int64_t end = begin + some.rows();
    delta_rule_forward<T>(Exec(), some, begin > 0,
                          View<const T**>(matrix(x, s.columns())).row_range(begin, end),
                          View<const T**>(matrix(gates, 2 * s.value_heads)).row_range(begin, end),
                          decay.view(), bias.view(), matrix(state, s.state_columns()),
                          states != nullptr ? matrix(*states, s.state_columns()) : View<C**>(),
                          matrix(out, s.value_columns()).row_range(begin, end), workspace.view());
  }
  return doubles(out);
}

/// Tokens of less than a chunk, of one and of several, the last one not whole; heads of values as
/// many as those of keys and more; widths of less than a tile of products and of more.
const DeltaRuleShape shapes[] = {{2, 5, 2, 2, 3, 5},
                                 {1, 64, 1, 3, 7, 4},
                                 {2, 150, 2, 4, 9, 37},
                                 {1, 1, 2, 2, 4, 4},
                                 {1, 131, 1, 1, 40, 70}};

template <class T>
void check_delta_rule(double tolerance) {
  for (const DeltaRuleShape& s : shapes) {
    SCOPED_TRACE(::testing::Message() << s.tokens << " tokens, heads of " << s.key_width);
    const DeltaRuleInputs in = inputs_of<T>(s);
    const Doubles expected = recurrence(in);
    EXPECT_LE(error_of(delta_rule<T>(in), expected), tolerance);
    for (const std::int64_t run : {1, 7, 70}) {
      if (s.sequences > 1) continue;
      EXPECT_LE(error_of(delta_rule<T>(in, run), expected), tolerance) << run;
    }
  }
}

TEST(DeltaRule, IsTheRecurrence) {
  check_delta_rule<double>(1e-13);
  check_delta_rule<float>(3e-6);
  check_delta_rule<bf16>(6e-3);
  check_delta_rule<fp16>(1e-3);
}

TEST(DeltaRule, HasTheGradientsOfFiniteDifferences) {
  for (const DeltaRuleShape& s :
       {shapes[0], shapes[3], DeltaRuleShape{1, 64, 1, 3, 4, 3}, DeltaRuleShape{2, 70, 2, 4, 3, 2},
        DeltaRuleShape{1, 130, 1, 1, 3, 3}}) {
    SCOPED_TRACE(::testing::Message() << s.tokens << " tokens, heads of " << s.key_width);
    DeltaRuleInputs in = inputs_of<double>(s);
    const Doubles dy = inputs<double>(s.rows() * s.value_columns(), 5);
    const auto states = unwritten<double>(s.sequences * s.chunks() * s.state_columns());
    delta_rule<double>(in, 0, &states);
    const auto x = device<double>(in.x), gates = device<double>(in.gates);
    const auto decay = device<double>(in.decay), bias = device<double>(in.bias);
    const auto dout = device<double>(dy), dx = unwritten<double>(in.x.size());
    const auto dgates = unwritten<double>(in.gates.size());
    const auto terms = unwritten<double>(in.gates.size());
    const auto workspace = unwritten<double>(delta_rule_backward_workspace(s));
    delta_rule_backward<double>(Exec(), s, matrix(x, s.columns()), matrix(gates, 2 * s.value_heads),
                                decay.view(), bias.view(), matrix(states, s.state_columns()),
                                matrix(dout, s.value_columns()), matrix(dx, s.columns()),
                                matrix(dgates, 2 * s.value_heads), matrix(terms, 2 * s.value_heads),
                                workspace.view());
    Doubles ddecay(s.value_heads, 0.0), dbias = ddecay;
    const Doubles all = doubles(terms);
    for (std::int64_t i = 0; i < terms.size(); ++i) {
      const std::int64_t at = i % (2 * s.value_heads);
      (at < s.value_heads ? ddecay : dbias)[at % s.value_heads] += all[i];
    }
    const auto sum = [&] { return test::weighted_sum(recurrence(in), dy); };
    EXPECT_TRUE(test::gradient_agrees("x", in.x, doubles(dx), sum));
    EXPECT_TRUE(test::gradient_agrees("gates", in.gates, doubles(dgates), sum));
    EXPECT_TRUE(test::gradient_agrees("decay", in.decay, ddecay, sum));
    EXPECT_TRUE(test::gradient_agrees("bias", in.bias, dbias, sum));
  }
}

TEST(Convolution, AgreesWithPlainLoopsAndFiniteDifferences) {
  constexpr std::int64_t tokens = 7, rows = 2 * tokens;
  for (const std::int64_t channels : {1, 5, 130})
    for (const std::int64_t taps : {1, 2, 4, 9}) {
      SCOPED_TRACE(::testing::Message() << channels << " channels, " << taps << " taps");
      Doubles x = inputs<double>(rows * channels, 1), w = inputs<double>(channels * taps, 2);
      const Doubles dy = inputs<double>(rows * channels, 3);
      const auto expected = [&] {
        Doubles y;
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t c = 0; c < channels; ++c) {
            double sum = 0.0;
            for (std::int64_t back = 0; back < taps && back <= r % tokens; ++back)
              sum += w[c * taps + taps - 1 - back] * x[(r - back) * channels + c];
            y.push_back(sum * sigmoid_of(sum));
          }
        return y;
      };
      const auto in = device<double>(x), weight = device<double>(w), dout = device<double>(dy);
      const auto y = unwritten<double>(x.size()), dp = unwritten<double>(x.size());
      const auto dx = unwritten<double>(x.size()), dw = unwritten<double>(w.size());
      convolution_forward<double>(Exec(), tokens, {}, matrix(in, channels), matrix(weight, taps),
                                  matrix(y, channels));
      EXPECT_LE(error_of(doubles(y), expected()), 1e-14);
      // The first sequence again, in runs of rows.
      const DeviceArray<double> before((taps - 1) * channels, 0.0), some(tokens * channels);
      const View<const double**> all = matrix(in, channels);
      for (const auto& [begin, end] : {std::pair{0, 3}, std::pair{3, 4}, std::pair{4, 7}}) {
        const View<const double**> run = all.row_range(begin, end);
        const View<double**> last(before.data(), taps - 1, channels);
        convolution_forward<double>(Exec(), run.rows(), last, run, matrix(weight, taps),
                                    matrix(some, channels).row_range(begin, end));
        keep_last_rows<double>(Exec(), run, last);
      }
      Doubles first = doubles(y);
      first.resize(static_cast<std::size_t>(tokens * channels));
      EXPECT_EQ(doubles(some), first);
      convolution_backward_sums<double>(Exec(), tokens, matrix(in, channels), matrix(weight, taps),
                                        matrix(dout, channels), matrix(dp, channels));
      convolution_backward_input<double>(Exec(), tokens, matrix(weight, taps), matrix(dp, channels),
                                         matrix(dx, channels));
      convolution_backward_weight<double>(Exec(), tokens, matrix(in, channels),
                                          matrix(dp, channels), matrix(dw, taps));
      const auto sum = [&] { return test::weighted_sum(expected(), dy); };
      if (channels > 5) continue;
      EXPECT_TRUE(test::gradient_agrees("x", x, doubles(dx), sum));
      EXPECT_TRUE(test::gradient_agrees("weight", w, doubles(dw), sum));
    }
}

TEST(GatedNorm, AgreesWithPlainLoopsAndFiniteDifferences) {
  constexpr std::int64_t rows = 3, heads = 2;
  for (const std::int64_t width : {1, 4, 37}) {
    const std::int64_t columns = heads * width;
    Doubles x = inputs<double>(rows * columns, 1), z = inputs<double>(rows * columns, 2);
    Doubles w = inputs<double>(width, 3);
    const Doubles dy = inputs<double>(rows * columns, 4);
    constexpr double epsilon = 0.01;
    const auto expected = [&] {
      Doubles y;
      for (std::int64_t i = 0; i < rows * columns; ++i) {
        double squares = 0.0;
        for (std::int64_t j = i / width * width; j < (i / width + 1) * width; ++j)
          squares += x[j] * x[j];
        y.push_back(x[i] / std::sqrt(squares / static_cast<double>(width) + epsilon) *
                    w[i % width] * z[i] * sigmoid_of(z[i]));
      }
      return y;
    };
    const auto in = device<double>(x), gate = device<double>(z), weight = device<double>(w);
    const auto y = unwritten<double>(x.size()), rstd = unwritten<double>(rows * heads);
    gated_norm_forward<double>(Exec(), epsilon, matrix(in, columns), matrix(gate, columns),
                               weight.view(), matrix(y, columns));
    EXPECT_LE(error_of(doubles(y), expected()), 1e-14);
    const auto d = device<double>(dy), dz = unwritten<double>(x.size());
    const auto dw = unwritten<double>(width);
    const HeadNorm norm{width, NormKind::rmsnorm, NormWeight::plain, epsilon};
    head_norm_statistics<double>(Exec(), norm, matrix(in, columns),
                                 rstd.view().matrix(rows, columns / width), {});
    gated_norm_backward_parameters<double>(Exec(), matrix(in, columns), matrix(gate, columns),
                                           rstd.view(), matrix(d, columns), dw.view());
    gated_norm_backward_input<double>(Exec(), matrix(in, columns), matrix(gate, columns),
                                      weight.view(), rstd.view(), matrix(d, columns),
                                      matrix(d, columns), matrix(dz, columns));
    const auto sum = [&] { return test::weighted_sum(expected(), dy); };
    EXPECT_TRUE(test::gradient_agrees("x", x, doubles(d), sum));
    EXPECT_TRUE(test::gradient_agrees("gate", z, doubles(dz), sum));
    EXPECT_TRUE(test::gradient_agrees("weight", w, doubles(dw), sum));
  }
}

}  // namespace
}  // namespace ostrakon::math
