// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <ostrakon/math/attention/head_norm.hpp>
#include <ostrakon/math/rows/norm.hpp>

#include "math/check_gradient.hpp"
#include "math/norm_parameters.hpp"
#include "support/device_array.hpp"

namespace ostrakon::math {
namespace {

using test::DeviceArray;
using test::random_values;

constexpr double epsilon = 1e-5;

struct Case {
  NormKind kind;
  std::int64_t rows;
  std::int64_t width;
  bool bias;
  NormWeight gain = NormWeight::plain;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const NormKind kind : {NormKind::layernorm, NormKind::rmsnorm})
    for (const std::int64_t rows : {1, 3, 65})
      for (const std::int64_t width : {1, 2, 7, 65})
        for (const bool bias : {false, true})
          for (const NormWeight gain : {NormWeight::plain, NormWeight::one_plus, NormWeight::none})
            all.push_back({kind, rows, width, bias, gain});
  all.push_back({NormKind::layernorm, 2, 1000, true});
  return all;
}

std::string name(const Case& c) {
  return std::string(c.kind == NormKind::layernorm ? "layernorm" : "rmsnorm") + " rows " +
         std::to_string(c.rows) + " width " + std::to_string(c.width) + (c.bias ? " bias" : "") +
         " weight " + math::name(c.gain);
}

/// What a norm multiplies by.
template <class T>
long double factor_of(NormWeight gain, T weight) {
  if (gain == NormWeight::none) return 1;
  return (gain == NormWeight::one_plus ? 1 : 0) + static_cast<long double>(weight);
}

struct Statistics {
  long double mean;
  long double rstd;
};

template <class T>
Statistics reference_statistics(const Case& c, const T* x) {
  long double mean = 0;
  if (c.kind == NormKind::layernorm) {
    for (std::int64_t i = 0; i < c.width; ++i) mean += x[i];
    mean /= c.width;
  }
  long double variance = 0;
  for (std::int64_t i = 0; i < c.width; ++i) variance += (x[i] - mean) * (x[i] - mean);
  return {mean, 1 / std::sqrt(variance / c.width + static_cast<long double>(epsilon))};
}

/// Random x, weight and bias, and the outputs of norm_forward.
template <class T>
struct Forward {
  Case c;
  std::int64_t stride;
  std::vector<T> x, weight, bias;
  DeviceArray<T> dx, dweight, dbias, y, mean, rstd;

  explicit Forward(const Case& c_, std::int64_t gap = 0)
      : c(c_),
        stride(c.width + gap),
        // Rows of two nearly equal values would be too steep for finite differences.
        x(random_values<T>(c.rows * stride, 12)),
        weight(random_values<T>(c.width, 2)),
        bias(random_values<T>(c.width, 3)),
        dx(x),
        dweight(weight),
        dbias(bias),
        y(x.size(), T(-7)),
        mean(c.rows),
        rstd(c.rows) {
    norm_forward<T>(Exec(), c.kind, c.gain, epsilon, matrix(dx), weight_if_any(), bias_if_any(),
                    matrix(y), mean_if_any(), rstd);
  }

  View<T**> matrix(const DeviceArray<T>& array) const {
    return {array.data(), c.rows, c.width, stride};
  }
  View<const T*> weight_if_any() const {
    return c.gain == NormWeight::none ? View<T*>() : dweight.view();
  }
  View<const T*> bias_if_any() const { return c.bias ? dbias.view() : View<T*>(); }
  View<T*> mean_if_any() const { return c.kind == NormKind::rmsnorm ? View<T*>() : mean.view(); }
};

template <class T>
void check_forward(double tolerance) {
  for (const Case& c : cases())
    for (const std::int64_t gap : {0, 3}) {
      SCOPED_TRACE(name(c));
      const Forward<T> f(c, gap);
      const std::vector<T> y = f.y.host();
      for (std::int64_t r = 0; r < c.rows; ++r) {
        const Statistics s = reference_statistics(c, &f.x[r * f.stride]);
        ASSERT_NEAR(f.rstd.host()[r], s.rstd, tolerance * s.rstd);
        if (c.kind == NormKind::layernorm) {
          ASSERT_NEAR(f.mean.host()[r], s.mean, tolerance);
        }
        for (std::int64_t i = 0; i < c.width; ++i) {
          const long double expected =
              (f.x[r * f.stride + i] - s.mean) * s.rstd * factor_of(c.gain, f.weight[i]) +
              (c.bias ? f.bias[i] : T(0));
          ASSERT_NEAR(y[r * f.stride + i], expected, tolerance * 20);
        }
        for (std::int64_t i = c.width; i < f.stride; ++i) ASSERT_EQ(y[r * f.stride + i], T(-7));
      }
    }
}

TEST(Norm, ForwardAgreesWithPlainLoops) {
  check_forward<double>(1e-14);
  check_forward<float>(1e-6);
}

template <class T>
void check_apply() {
  for (const Case& c : cases()) {
    SCOPED_TRACE(name(c));
    const Forward<T> f(c, 1);
    DeviceArray<T> again(f.x.size(), T(-7));
    norm_apply<T>(Exec(), c.kind, c.gain, f.matrix(f.dx), f.weight_if_any(), f.bias_if_any(),
                  f.mean_if_any(), f.rstd, f.matrix(again));
    ASSERT_EQ(again.host(), f.y.host());
  }
}

TEST(Norm, ApplyGivesTheBitsOfForward) {
  check_apply<double>();
  check_apply<float>();
}

TEST(Norm, RowsDoNotDependOnTheirNeighbours) {
  for (const NormKind kind : {NormKind::layernorm, NormKind::rmsnorm}) {
    const Forward<float> all({kind, 9, 77, true});
    const std::vector<float> y = all.y.host();
    for (std::int64_t r = 0; r < 9; ++r) {
      DeviceArray<float> row(77);
      DeviceArray<float> mean(1);
      DeviceArray<float> rstd(1);
      norm_forward<float>(Exec(), kind, NormWeight::plain, epsilon,
                          all.matrix(all.dx).row_range(r, r + 1), all.dweight, all.dbias,
                          {row.data(), 1, 77}, mean, rstd);
      ASSERT_EQ(row.host(), std::vector<float>(y.begin() + r * 77, y.begin() + (r + 1) * 77));
    }
  }
}

// Covers groups of four rows and the rest, blocks of rows, and runs of columns.
template <class T>
void check_gradients_of_weights(double tolerance) {
  for (const NormKind kind : {NormKind::layernorm, NormKind::rmsnorm})
    for (const std::int64_t rows : {3, 4, 5, 64, 66, 131})
      for (const std::int64_t width : {3, 64, 257, 1025, 2100})
        for (const std::int64_t gap : {0, 3}) {
          const Case c{kind, rows, width, true};
          SCOPED_TRACE(name(c));
          const Forward<T> f(c, gap);
          const std::vector<T> dy = random_values<T>(f.x.size(), 4);
          const DeviceArray<T> dout(dy), dweight(width), dbias(width);
          norm_parameters<T>(Exec(), kind, f.matrix(f.dx), f.mean_if_any(), f.rstd, f.matrix(dout),
                             dweight, dbias);
          const std::vector<T> mean = f.mean.host(), rstd = f.rstd.host();
          const std::vector<T> weight = dweight.host(), bias = dbias.host();
          for (std::int64_t i = 0; i < width; ++i) {
            long double expected = 0, sum = 0;
            for (std::int64_t r = 0; r < rows; ++r) {
              const long double center = kind == NormKind::layernorm ? mean[r] : T(0);
              const long double g = dy[r * f.stride + i];
              expected += g * ((f.x[r * f.stride + i] - center) * rstd[r]);
              sum += g;
            }
            ASSERT_NEAR(weight[i], expected, tolerance * rows) << "column " << i;
            ASSERT_NEAR(bias[i], sum, tolerance * rows) << "column " << i;
          }
        }
}

TEST(Norm, GradientsOfWeightsAgreeWithPlainLoops) {
  check_gradients_of_weights<double>(1e-14);
  check_gradients_of_weights<float>(1e-6);
}

TEST(Norm, BackwardAgreesWithFiniteDifferences) {
  for (const Case& c : cases()) {
    if (c.rows > 3 || c.width > 65) continue;
    if (c.kind == NormKind::layernorm && c.width == 1) continue;  // tested separately
    SCOPED_TRACE(name(c));
    const Forward<double> f(c);
    const std::vector<double> dy = random_values<double>(f.x.size(), 4);
    const std::vector<double> before = random_values<double>(f.x.size(), 5);
    const DeviceArray<double> dout(dy);
    const DeviceArray<double> gradient(before), overwritten(f.x.size());
    const DeviceArray<double> weight_gradient(c.width);
    const DeviceArray<double> bias_gradient(c.width);
    for (const GradientUpdate update : {GradientUpdate::add, GradientUpdate::overwrite})
      norm_backward_input<double>(
          Exec(), c.kind, c.gain, f.matrix(f.dx), f.weight_if_any(), f.mean_if_any(), f.rstd,
          f.matrix(dout), f.matrix(update == GradientUpdate::add ? gradient : overwritten), update);
    norm_parameters<double>(Exec(), c.kind, f.matrix(f.dx), f.mean_if_any(), f.rstd, f.matrix(dout),
                            weight_gradient, c.bias ? bias_gradient.view() : View<double*>());

    Forward<double> moved(c);
    const auto loss = [&]() {
      const DeviceArray<double> x(moved.x);
      const DeviceArray<double> weight(moved.weight);
      const DeviceArray<double> bias(moved.bias);
      norm_forward<double>(Exec(), c.kind, c.gain, epsilon, f.matrix(x),
                           c.gain == NormWeight::none ? View<double*>() : weight.view(),
                           c.bias ? bias.view() : View<double*>(), f.matrix(moved.y),
                           moved.mean_if_any(), moved.rstd);
      return test::weighted_sum(moved.y.host(), dy);
    };
    std::vector<double> added = gradient.host();
    for (std::size_t i = 0; i < added.size(); ++i) added[i] -= before[i];
    EXPECT_TRUE(test::gradient_agrees("dx", moved.x, added, loss));
    EXPECT_TRUE(test::gradient_agrees("dx overwritten", moved.x, overwritten.host(), loss));
    if (c.gain != NormWeight::none) {
      EXPECT_TRUE(test::gradient_agrees("dweight", moved.weight, weight_gradient.host(), loss));
    }
    if (c.bias) {
      EXPECT_TRUE(test::gradient_agrees("dbias", moved.bias, bias_gradient.host(), loss));
    }
  }
}

TEST(Norm, LayernormOfOneColumnHasNoGradient) {
  const Forward<double> f({NormKind::layernorm, 5, 1, true});
  const DeviceArray<double> dy(random_values<double>(5, 4));
  const DeviceArray<double> gradient(5, 0.0);
  norm_backward_input<double>(Exec(), NormKind::layernorm, NormWeight::plain, f.matrix(f.dx),
                              f.dweight, f.mean, f.rstd, f.matrix(dy), f.matrix(gradient));
  for (const double value : gradient.host()) EXPECT_NEAR(value, 0.0, 1e-12);
}

TEST(Norm, LongColumnsStayAccurate) {
  const std::int64_t rows = 100000;
  const std::int64_t width = 3;
  const DeviceArray<float> x(rows * width, 1.0f);
  const DeviceArray<float> dy(rows * width, 0.1f);
  const DeviceArray<float> rstd(rows, 1.0f);
  const DeviceArray<float> dweight(width);
  const DeviceArray<float> dbias(width);
  norm_parameters<float>(Exec(), NormKind::rmsnorm, {x.data(), rows, width}, {}, rstd,
                         {dy.data(), rows, width}, dweight, dbias);
  const double exact = rows * static_cast<double>(0.1f);
  for (const float sum : dweight.host()) EXPECT_NEAR(sum, exact, 2e-5 * exact);
  for (const float sum : dbias.host()) EXPECT_NEAR(sum, exact, 2e-5 * exact);
}

/// Each gradient is the same without the other.
template <class T>
void check_single_gradients() {
  for (const Case& c : cases()) {
    SCOPED_TRACE(name(c));
    const Forward<T> f(c);
    const DeviceArray<T> dy(random_values<T>(f.x.size(), 4));
    const DeviceArray<T> dweight(c.width), dbias(c.width), weight_alone(c.width),
        bias_alone(c.width);
    const auto backward = [&](View<T*> weight_gradient, View<T*> bias_gradient) {
      norm_parameters<T>(Exec(), c.kind, f.matrix(f.dx), f.mean_if_any(), f.rstd, f.matrix(dy),
                         weight_gradient, bias_gradient);
    };
    backward(dweight, dbias);
    backward(weight_alone, {});
    backward({}, bias_alone);
    backward({}, {});
    ASSERT_EQ(weight_alone.host(), dweight.host());
    ASSERT_EQ(bias_alone.host(), dbias.host());
  }
}

TEST(Norm, LeavesOutGradientsThatAreNotWanted) {
  check_single_gradients<double>();
  check_single_gradients<float>();
}

TEST(Norm, NoRows) {
  const DeviceArray<double> weight(3);
  const DeviceArray<double> dweight(3, 5.0);
  norm_parameters<double>(Exec(), NormKind::rmsnorm, {weight.data(), 0, 3}, {}, {},
                          {weight.data(), 0, 3}, dweight, {});
  EXPECT_EQ(dweight.host(), std::vector<double>(3, 0.0));
}

// ---- of each head -------------------------------------------------------------------------------

struct Heads {
  std::int64_t rows, heads, width;
  NormWeight gain;
  NormKind kind = NormKind::rmsnorm;
  bool has_own_weights = false;  ///< of each head
};

std::vector<Heads> all_heads() {
  std::vector<Heads> all;
  for (const NormWeight gain : {NormWeight::plain, NormWeight::one_plus, NormWeight::none})
    for (const std::int64_t rows : {1, 3, 66})
      for (const std::int64_t heads : {1, 3})
        for (const std::int64_t width : {1, 6, 64, 130})
          for (const NormKind kind : {NormKind::rmsnorm, NormKind::layernorm})
            for (const bool has_own_weights : {false, true})
              all.push_back({rows, heads, width, gain, kind, has_own_weights});
  return all;
}

/// Random x, weight and dy in rows with a gap, the outputs of all kernels, and what plain loops in
/// long double give.
template <class T>
struct NormOfHeads {
  using C = compute_t<T>;

  explicit NormOfHeads(const Heads& h_)
      : h(h_), stride(h.heads * h.width + 3), norm{h.width, h.kind, h.gain, epsilon} {
    const DeviceArray<T> y_(x), kept_(x.size(), T(-7)), dx_(dy), weight_(weight), dy_(dy);
    const DeviceArray<C> rstd_(h.rows * h.heads), mean_(h.rows * h.heads), dweight_(weight.size());
    const View<const T*> factors = h.gain == NormWeight::none ? View<T*>() : weight_.view();
    const auto matrix = [&](const DeviceArray<T>& array) {
      return View<T**>(array.data(), h.rows, h.heads * h.width, stride);
    };
    const View<C**> rstd = rstd_.view().matrix(h.rows, h.heads);
    const View<C**> mean =
        h.kind == NormKind::layernorm ? mean_.view().matrix(h.rows, h.heads) : View<C**>();
    head_norm_forward<T>(Exec(), norm, factors, matrix(y_), matrix(kept_));
    head_norm_statistics<T>(Exec(), norm, matrix(kept_), rstd, mean);
    const DeviceArray<C> room(head_norm_sums_workspace<T>(h.rows, h.width, dweight_.size(), 1));
    head_norm_backward_parameters<T>(Exec(), h.width, matrix(kept_), rstd, mean, matrix(dy_),
                                     dweight_, {1, room});
    head_norm_backward_input<T>(Exec(), norm, factors, matrix(kept_), rstd, mean, matrix(dx_));
    y = y_.host();
    kept = kept_.host();
    dx = dx_.host();
    dweight = dweight_.host();
  }

  void expect_agrees(double tolerance) const {
    std::vector<long double> gradient(weight.size(), 0.0L);
    for (std::int64_t r = 0; r < h.rows; ++r)
      for (std::int64_t head = 0; head < h.heads; ++head) {
        const std::int64_t first = r * stride + head * h.width;
        const std::int64_t own = h.has_own_weights ? head * h.width : 0;
        long double mean = 0, square = 0, average = 0, projection = 0;
        for (std::int64_t i = first; i < first + h.width && h.kind == NormKind::layernorm; ++i)
          mean += static_cast<long double>(x[i]) / h.width;
        for (std::int64_t i = first; i < first + h.width; ++i)
          square += (x[i] - mean) * (x[i] - mean) / h.width;
        const long double rstd = 1 / std::sqrt(square + static_cast<long double>(epsilon));
        for (std::int64_t i = 0; i < h.width; ++i) {
          const long double d = dy[first + i] * factor_of(h.gain, weight[own + i]) / h.width;
          if (h.kind == NormKind::layernorm) average += d;
          projection += d * (x[first + i] - mean) * rstd;
        }
        for (std::int64_t i = 0; i < h.width; ++i) {
          const long double n = (x[first + i] - mean) * rstd;
          const long double gain = factor_of(h.gain, weight[own + i]);
          ASSERT_NEAR(y[first + i], n * gain,
                      tolerance * (std::abs(n * gain) + rstd * std::abs(mean)) + tolerance);
          ASSERT_EQ(kept[first + i], x[first + i]);
          const long double expected = rstd * (dy[first + i] * gain - average - n * projection);
          ASSERT_NEAR(dx[first + i], expected, tolerance * (rstd + std::abs(expected)));
          gradient[own + i] += dy[first + i] * n;
        }
      }
    const double float_sums = sizeof(C) == 4 ? 1e-5 : 1e-13;
    for (std::size_t i = 0; i < weight.size(); ++i)
      ASSERT_NEAR(dweight[i], gradient[i], float_sums * h.rows);
    for (std::int64_t r = 0; r < h.rows; ++r)  // the gaps
      for (std::int64_t i = h.heads * h.width; i < stride; ++i) {
        ASSERT_EQ(y[r * stride + i], x[r * stride + i]);
        ASSERT_EQ(kept[r * stride + i], T(-7));
        ASSERT_EQ(dx[r * stride + i], dy[r * stride + i]);
      }
  }

  Heads h;
  std::int64_t stride;
  math::HeadNorm norm;
  std::vector<T> x = random_values<T>(h.rows * stride, 12), dy = random_values<T>(x.size(), 4);
  std::vector<T> weight = random_values<T>(h.has_own_weights ? h.heads * h.width : h.width, 2);
  std::vector<T> y, kept, dx;
  std::vector<C> dweight;
};

template <class T>
void check_heads(double tolerance) {
  for (const Heads& h : all_heads()) {
    SCOPED_TRACE(std::to_string(h.rows) + " rows of " + std::to_string(h.heads) + " heads of " +
                 std::to_string(h.width) + ", " + math::name(h.gain) + ", " + math::name(h.kind) +
                 (h.has_own_weights ? ", own weights" : ""));
    NormOfHeads<T>(h).expect_agrees(tolerance);
  }
}

TEST(HeadNorm, AgreesWithPlainLoops) {
  check_heads<double>(1e-13);
  check_heads<float>(4e-6);
  check_heads<fp16>(0x1p-10);
  check_heads<bf16>(0x1p-7);
}

/// Rows of three pieces, each with its columns and its part of a weight, are normed as whole ones.
TEST(HeadNorm, OfRowsInPiecesIsThatOfWholeRows) {
  constexpr std::int64_t rows = 5, pieces = 3, columns = 22, all = pieces * columns;
  for (const NormWeight gain : {NormWeight::plain, NormWeight::one_plus, NormWeight::none}) {
    SCOPED_TRACE(math::name(gain));
    const NormOfHeads<double> whole({rows, 1, all, gain});
    const DeviceArray<double> y(whole.x), kept(whole.x), dx(whole.dy), weight(whole.weight);
    const DeviceArray<double> squares(pieces * rows), products(pieces * rows), rstd(rows);
    const auto of_piece = [&](const DeviceArray<double>& array, std::int64_t p) {
      return View<double**>(array.data(), rows, all, whole.stride)
          .column_range(p * columns, (p + 1) * columns);
    };
    const auto weight_of = [&](std::int64_t p) {
      return gain == NormWeight::none ? View<const double*>()
                                      : weight.view().range(p * columns, (p + 1) * columns);
    };
    const auto sums_of = [&](const DeviceArray<double>& array, std::int64_t p) {
      return array.view().matrix(pieces * rows, 1).row_range(p * rows, (p + 1) * rows);
    };
    const HeadNorm norm{columns, NormKind::rmsnorm, gain, epsilon};
    for (std::int64_t p = 0; p < pieces; ++p)
      head_norm_squares<double>(Exec(), all, of_piece(kept, p), sums_of(squares, p));
    const View<double**> statistics = rstd.view().matrix(rows, 1);
    head_norm_rstd<double>(Exec(), epsilon, squares.view().matrix(pieces * rows, 1), statistics);
    for (std::int64_t p = 0; p < pieces; ++p) {
      head_norm_forward<double>(Exec(), norm, weight_of(p), of_piece(y, p), of_piece(kept, p),
                                statistics);
      head_norm_projections<double>(Exec(), gain, all, weight_of(p), of_piece(kept, p),
                                    of_piece(dx, p), sums_of(products, p));
    }
    for (std::int64_t p = 0; p < pieces; ++p)
      head_norm_backward_input<double>(Exec(), norm, weight_of(p), of_piece(kept, p), statistics,
                                       {}, of_piece(dx, p),
                                       products.view().matrix(pieces * rows, 1));
    for (std::size_t i = 0; i < whole.x.size(); ++i) {
      ASSERT_NEAR(y.host()[i], whole.y[i], 1e-14 * (1 + std::abs(whole.y[i]))) << i;
      ASSERT_NEAR(dx.host()[i], whole.dx[i], 1e-14 * (1 + std::abs(whole.dx[i]))) << i;
    }
  }
}

}  // namespace
}  // namespace ostrakon::math
