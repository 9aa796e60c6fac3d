// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <string>

#include "math/compare.hpp"
#include "support/device_array.hpp"
#include "support/messages.hpp"

namespace {

using namespace ostrakon;
using math::Transpose;
using test::DeviceArray;
using test::largest_difference;
using test::random_values;

template <class T>
constexpr double tolerance = std::is_same<T, float>::value ? 1e-5 : 1e-13;

/// A row-major matrix on the host with `padding` elements after each row.
template <class T>
struct HostMatrix {
  std::int64_t rows, columns, stride;
  std::vector<T> values;

  HostMatrix(std::int64_t rows_, std::int64_t columns_, std::int64_t padding, std::uint64_t seed)
      : rows(rows_),
        columns(columns_),
        stride(columns_ + padding),
        values(random_values<T>(rows_ * (columns_ + padding), seed)) {}
  double at(std::int64_t row, std::int64_t column, Transpose transpose) const {
    return transpose == Transpose::yes ? values[column * stride + row]
                                       : values[row * stride + column];
  }
};

/// Computes C = alpha op(A) op(B) + beta C in plain loops.
template <class T>
std::vector<T> reference(Transpose ta, Transpose tb, double alpha, const HostMatrix<T>& a,
                         const HostMatrix<T>& b, double beta, const HostMatrix<T>& c) {
  std::vector<T> result = c.values;
  const std::int64_t terms = ta == Transpose::yes ? a.rows : a.columns;
  for (std::int64_t i = 0; i < c.rows; ++i)
    for (std::int64_t j = 0; j < c.columns; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < terms; ++k) sum += a.at(i, k, ta) * b.at(k, j, tb);
      T& element = result[i * c.stride + j];
      element = static_cast<T>(alpha * sum + (beta == 0 ? 0 : beta * element));
    }
  return result;
}

template <class T>
View<T**> view(const DeviceArray<T>& values, const HostMatrix<T>& shape) {
  return View<T**>(values.data(), shape.rows, shape.columns, shape.stride);
}

template <class T>
void expect_product(std::int64_t m, std::int64_t n, std::int64_t k, Transpose ta, Transpose tb,
                    T alpha, T beta, std::int64_t padding) {
  const bool turn_a = ta == Transpose::yes;
  const bool turn_b = tb == Transpose::yes;
  const HostMatrix<T> a(turn_a ? k : m, turn_a ? m : k, padding, 1);
  const HostMatrix<T> b(turn_b ? n : k, turn_b ? k : n, 2 * padding, 2);
  HostMatrix<T> c(m, n, 3 * padding, 3);
  const std::vector<T> expected = reference(ta, tb, alpha, a, b, beta, c);
  if (beta == 0)  // must not be read
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        c.values[i * c.stride + j] = std::numeric_limits<T>::quiet_NaN();
  const DeviceArray<T> device_a(a.values), device_b(b.values), device_c(c.values);
  math::gemm<T>(Exec(), ta, tb, alpha, view(device_a, a), view(device_b, b), beta,
                view(device_c, c));
  EXPECT_LE(largest_difference(device_c.host(), expected), tolerance<T>)
      << m << " x " << n << " x " << k << (turn_a ? ", A transposed" : "")
      << (turn_b ? ", B transposed" : "") << ", beta " << beta << ", padding " << padding;
}

template <class T>
class Gemm : public ::testing::Test {};
using Scalars = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Gemm, Scalars);

TYPED_TEST(Gemm, AgreesWithPlainLoops) {
  using T = TypeParam;
  const std::array<std::array<std::int64_t, 3>, 8> shapes = {{{1, 1, 1},
                                                              {1, 5, 3},
                                                              {7, 1, 2},
                                                              {3, 4, 1},
                                                              {17, 19, 23},
                                                              {64, 64, 64},
                                                              {65, 130, 33},
                                                              {5, 200, 70}}};
  for (const auto& shape : shapes)
    for (Transpose ta : {Transpose::no, Transpose::yes})
      for (Transpose tb : {Transpose::no, Transpose::yes})
        for (std::int64_t padding : {0, 3}) {
          expect_product<T>(shape[0], shape[1], shape[2], ta, tb, T(1), T(0), padding);
          expect_product<T>(shape[0], shape[1], shape[2], ta, tb, T(-0.5), T(2), padding);
        }
}

TYPED_TEST(Gemm, EmptySumsGiveBetaTimesC) {
  using T = TypeParam;
  for (Transpose transpose : {Transpose::no, Transpose::yes}) {
    expect_product<T>(3, 4, 0, transpose, transpose, T(1), T(0), 2);
    expect_product<T>(3, 4, 0, transpose, transpose, T(1), T(0.5), 2);
  }
}

TYPED_TEST(Gemm, EmptyResultsAreLeftAlone) {
  using T = TypeParam;
  expect_product<T>(0, 4, 3, Transpose::no, Transpose::no, T(1), T(0), 0);
  expect_product<T>(4, 0, 3, Transpose::no, Transpose::yes, T(1), T(0), 0);
  math::gemm<T>(Exec(), Transpose::no, Transpose::no, T(1), View<T**>(), View<T**>(), T(0),
                View<T**>());
}

TYPED_TEST(Gemm, BatchesStepByTheirStrides) {
  using T = TypeParam;
  // Heads are side by side in one matrix, as in attention.
  constexpr std::int64_t heads = 3, tokens = 9, width = 5;
  const HostMatrix<T> queries(tokens, heads * width, 0, 4), keys(tokens, heads * width, 0, 5);
  const DeviceArray<T> device_queries(queries.values), device_keys(keys.values);
  const DeviceArray<T> scores(heads * tokens * tokens);
  const auto side_by_side = [&](const DeviceArray<T>& x) {
    return math::Batch<const T>::of_columns(x.matrix(tokens, heads * width), width, width, heads);
  };
  math::gemm_batched<T>(
      Exec(), Transpose::no, Transpose::yes, T(2), side_by_side(device_queries),
      side_by_side(device_keys), T(0),
      math::Batch<T>::of_rows(scores.matrix(heads * tokens, tokens), tokens, tokens, heads));
  std::vector<double> expected;
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < tokens; ++i)
      for (std::int64_t j = 0; j < tokens; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < width; ++k)
          sum += queries.at(i, h * width + k, Transpose::no) *
                 keys.at(j, h * width + k, Transpose::no);
        expected.push_back(2 * sum);
      }
  EXPECT_LE(largest_difference(scores.host(), expected), tolerance<T>);
}

TYPED_TEST(Gemm, RefusesBatchesOfOtherNumbers) {
  using T = TypeParam;
  const DeviceArray<T> x(16, T(0)), y(16, T(0));
  const auto squares = [](const DeviceArray<T>& all, std::int64_t count) {
    return math::Batch<T>::of_rows(all.matrix(8, 2), 2, 2, count);
  };
  EXPECT_THROW(math::gemm_batched<T>(Exec(), Transpose::no, Transpose::no, T(1), squares(x, 4),
                                     squares(x, 3), T(0), squares(y, 4)),
               Error);
  EXPECT_THROW(math::gemm_batched<T>(Exec(), Transpose::no, Transpose::no, T(1), squares(x, 4),
                                     squares(x, 4), T(0), squares(y, 3)),
               Error);
}

TYPED_TEST(Gemm, RepeatsItsBits) {
  using T = TypeParam;
  const HostMatrix<T> a(70, 90, 0, 6), b(90, 50, 0, 7), shape(70, 50, 0, 8);
  const DeviceArray<T> device_a(a.values), device_b(b.values), c(70 * 50);
  const auto product = [&] {
    math::gemm<T>(Exec(), Transpose::no, Transpose::no, T(1), view(device_a, a), view(device_b, b),
                  T(0), view(c, shape));
    return c.host();
  };
  const std::vector<T> first = product();
  EXPECT_TRUE(test::same_bits(first, product()));
}

TYPED_TEST(Gemm, RefusesShapesThatDoNotFit) {
  using T = TypeParam;
  const DeviceArray<T> x(100);
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    return View<T**>(x.data(), rows, columns);
  };
  const auto multiply = [&](View<T**> a, View<T**> b, View<T**> c) {
    math::gemm<T>(Exec(), Transpose::no, Transpose::yes, T(1), a, b, T(0), c);
  };
  EXPECT_THROW(multiply(matrix(2, 3), matrix(4, 5), matrix(2, 4)), Error);
  EXPECT_THROW(multiply(matrix(2, 3), matrix(4, 3), matrix(4, 2)), Error);
  EXPECT_THROW(multiply(matrix(2, 3), matrix(4, 3), View<T**>(x.data(), 2, 4, 3)), Error);
  EXPECT_HAS(
      ostrakon::testing::error_of([&] { multiply(matrix(2, 3), matrix(4, 5), matrix(2, 4)); }),
      "A (2, 3) and B (4, 5) transposed");
}

/// A residual and a bias, each alone and both, as by hand. On the host both are rounded as kernels
/// of their own would.
TYPED_TEST(Gemm, AddsWhatIsGiven) {
  using T = TypeParam;
  constexpr std::int64_t m = 9, n = 24, k = 16;
  const HostMatrix<T> a(m, k, 0, 1), b(n, k, 0, 2), onto(m, n, 0, 3), bias(1, n, 0, 4);
  const DeviceArray<T> device_a(a.values), device_b(b.values), device_onto(onto.values),
      device_bias(bias.values);
  const View<const T**> x = device_a.matrix(m, k), y = device_b.matrix(n, k);
  for (const bool has_onto : {false, true})
    for (const bool has_bias : {false, true}) {
      math::Addends<T> addends;
      if (has_onto) addends.onto = device_onto.matrix(m, n);
      if (has_bias) addends.bias = device_bias.view();
      const DeviceArray<T> made(m * n), product(has_onto ? onto.values : std::vector<T>(m * n));
      math::gemm_plus<T>(Exec(), Transpose::no, Transpose::yes, x, y, addends, made.matrix(m, n));
      math::gemm<T>(Exec(), Transpose::no, Transpose::yes, 1, x, y, has_onto ? 1 : 0,
                    product.matrix(m, n));
      std::vector<T> expected = product.host();
      for (std::int64_t i = 0; has_bias && i < m * n; ++i) expected[i] += bias.values[i % n];
      SCOPED_TRACE(text(has_onto ? "onto " : "", has_bias ? "bias" : ""));
      if (products_on_device)
        EXPECT_LE(largest_difference(made.host(), expected), tolerance<T>);
      else
        EXPECT_EQ(made.host(), expected);
    }
  const DeviceArray<T> short_bias(n - 1), made(m * n);
  math::Addends<T> wrong;
  wrong.bias = short_bias.view();
  EXPECT_THROW(
      math::gemm_plus<T>(Exec(), Transpose::no, Transpose::yes, x, y, wrong, made.matrix(m, n)),
      Error);
}

/// Two rows of at most a page each, `stride` elements apart, with unmapped memory between.
template <class T>
class FarRows {
 public:
  explicit FarRows(std::int64_t stride)
      : stride_(stride),
        bytes_(static_cast<std::size_t>(stride + 1) * sizeof(T)),
        address_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                      MAP_NORESERVE | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  FarRows(const FarRows&) = delete;
  FarRows& operator=(const FarRows&) = delete;
  ~FarRows() {
    if (mapped()) munmap(address_, bytes_);
  }

  bool mapped() const { return address_ != MAP_FAILED; }
  T* row(std::int64_t index) const { return static_cast<T*>(address_) + index * stride_; }

 private:
  std::int64_t stride_;
  std::size_t bytes_;
  void* address_;
};

// A stride that exceeds the 32-bit sizes of a BLAS is refused, never truncated.
TYPED_TEST(Gemm, CountsBeyondThirtyTwoBitsOrRefuses) {
  using T = TypeParam;
  if (!memory_is_host_accessible) GTEST_SKIP() << "the rows are in host memory";
  const std::int64_t far = (std::int64_t{1} << 32) + 1;
  const FarRows<T> a(far);
  if (!a.mapped()) GTEST_SKIP() << "no address space for rows that far apart";
  a.row(0)[0] = T(2);
  a.row(1)[0] = T(5);
  const DeviceArray<T> b(std::vector<T>{3}), c(2);
  try {
    math::gemm<T>(Exec(), Transpose::no, Transpose::no, T(1), View<T**>(a.row(0), 2, 1, far),
                  View<T**>(b.data(), 1, 1), T(0), View<T**>(c.data(), 2, 1));
    EXPECT_EQ(c.host(), (std::vector<T>{6, 15}));
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the row stride of A is 4294967297"),
              std::string::npos)
        << error.what();
  }
}

TEST(GemmThreads, MustBePositive) {
  math::set_gemm_threads(1);
  EXPECT_THROW(math::set_gemm_threads(0), Error);
}

}  // namespace
