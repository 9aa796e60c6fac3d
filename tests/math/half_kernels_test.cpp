// SPDX-License-Identifier: Apache-2.0
// Kernels over 16-bit arrays but for attention and products.
#include <gtest/gtest.h>

#include <ostrakon/math/attention/rotary.hpp>
#include <ostrakon/math/cross_entropy/linear_cross_entropy.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/embedding.hpp>
#include <ostrakon/math/rows/activation.hpp>
#include <ostrakon/math/rows/norm.hpp>

#include "math/half_kernels.hpp"
#include "math/norm_parameters.hpp"

namespace ostrakon::math {
namespace {

using namespace halves;

template <class T>
class HalfKernels : public ::testing::Test {};
TYPED_TEST_SUITE(HalfKernels, Halves);

struct NormResults {
  Doubles y, applied, mean, rstd, dx, dx_added, dweight, dbias;
  bool applied_alike;
};

template <class T>
NormResults run_norm(NormKind kind, NormWeight with, std::int64_t width, const Doubles& x,
                     const Doubles& weight, const Doubles& bias, const Doubles& dy,
                     const Doubles& dx_before) {
  using C = compute_t<T>;
  const auto count = static_cast<std::int64_t>(x.size());
  const std::int64_t rows = count / width;
  const bool centered = kind == NormKind::layernorm;
  const auto in = device<T>(x), weights = device<T>(weight), shift = device<T>(bias);
  const View<const T*> gain = with == NormWeight::none ? View<T*>() : weights.view();
  const auto dout = device<T>(dy), added = device<T>(dx_before);
  const auto out = unwritten<T>(count), again = unwritten<T>(count), din = unwritten<T>(count);
  const auto mean = unwritten<C>(rows), rstd = unwritten<C>(rows);
  const auto dweight = unwritten<C>(width), dbias = unwritten<C>(width);
  const View<C*> mean_if_any = centered ? mean.view() : View<C*>();
  const View<const T*> bias_if_any = centered ? shift.view() : View<T*>();
  const Exec exec;
  norm_forward<T>(exec, kind, with, 1e-5, matrix(in, width), gain, bias_if_any, matrix(out, width),
                  mean_if_any, rstd);
  norm_apply<T>(exec, kind, with, matrix(in, width), gain, bias_if_any, mean_if_any, rstd,
                matrix(again, width));
  norm_backward_input<T>(exec, kind, with, matrix(in, width), gain, mean_if_any, rstd,
                         matrix(dout, width), matrix(din, width), GradientUpdate::overwrite);
  norm_backward_input<T>(exec, kind, with, matrix(in, width), gain, mean_if_any, rstd,
                         matrix(dout, width), matrix(added, width), GradientUpdate::add);
  norm_parameters<T>(exec, kind, matrix(in, width), mean_if_any, rstd, matrix(dout, width), dweight,
                     centered ? dbias.view() : View<C*>());
  return {doubles(out),
          doubles(again),
          centered ? doubles(mean) : Doubles(),
          doubles(rstd),
          doubles(din),
          doubles(added),
          doubles(dweight),
          centered ? doubles(dbias) : Doubles(),
          same_bits(out.host(), again.host())};
}

TYPED_TEST(HalfKernels, Norm) {
  using T = TypeParam;
  for (const NormKind kind : {NormKind::layernorm, NormKind::rmsnorm})
    for (const NormWeight gain : {NormWeight::plain, NormWeight::one_plus, NormWeight::none})
      for (const std::int64_t width : {7, 65, 5000}) {
        const std::int64_t rows = width == 65 ? 3000 : 3;
        const std::int64_t count = rows * width;
        // Values are far from 0, so that 16-bit sums would be detected. 1 + a weight of 1 / 64 or
        // less would be rounded in 16 bits.
        const Doubles x = inputs<T>(count, 1, 1, 2),
                      weight = inputs<T>(width, 2, gain == NormWeight::one_plus ? 0x1p-6 : 1.0),
                      bias = inputs<T>(width, 3), dy = inputs<T>(count, 4, 1, 0.5),
                      before = inputs<T>(count, 5);
        const NormResults narrow = run_norm<T>(kind, gain, width, x, weight, bias, dy, before);
        const NormResults wide = run_norm<double>(kind, gain, width, x, weight, bias, dy, before);
        SCOPED_TRACE(width);
        EXPECT_STORED(narrow.y, wide.y, width, 1);
        EXPECT_TRUE(narrow.applied_alike);
        EXPECT_FLOAT(narrow.mean, wide.mean);
        EXPECT_FLOAT(narrow.rstd, wide.rstd);
        EXPECT_STORED(narrow.dx, wide.dx, width, 1);
        EXPECT_STORED(narrow.dx_added, wide.dx_added, width, 1);
        EXPECT_FLOAT(narrow.dweight, wide.dweight);
        EXPECT_FLOAT(narrow.dbias, wide.dbias);
      }
}

/// An activation of x (rows, 2 width), then the gradient of x.
template <class T>
std::pair<Doubles, Doubles> run_activation(Activation kind, std::int64_t width, const Doubles& x,
                                           const Doubles& dy) {
  const std::int64_t inner = is_gated(kind) ? width : 2 * width;
  const auto count = static_cast<std::int64_t>(x.size()), rows = count / (2 * width);
  const auto in = device<T>(x), dout = device<T>(dy);
  const auto y = unwritten<T>(rows * inner), dx = unwritten<T>(count);
  activation_forward<T>(Exec(), kind, matrix(in, 2 * width), matrix(y, inner));
  activation_backward<T>(Exec(), kind, matrix(in, 2 * width),
                         View<T**>(dout.data(), rows, inner, 2 * width), matrix(dx, 2 * width));
  return {doubles(y), doubles(dx)};
}

TYPED_TEST(HalfKernels, Activations) {
  using T = TypeParam;
  for (const auto& [kind, name] : activation_names)
    for (const std::int64_t width : {1, 19, 200}) {
      const Doubles x = inputs<T>(10 * width, 1, 6), dy = inputs<T>(10 * width, 2);
      const auto [y, dx] = run_activation<T>(kind, width, x, dy);
      const auto [wide_y, wide_dx] = run_activation<double>(kind, width, x, dy);
      const std::int64_t inner = is_gated(kind) ? width : 2 * width;
      EXPECT_STORED(y, wide_y, inner, 1) << name;
      EXPECT_STORED(dx, wide_dx, 2 * width, 1) << name;
    }
}

template <class T>
Doubles run_rotate(Rotation rotation, std::int64_t head_width, double share, double factor,
                   const Doubles& x) {
  const auto rotated = device<T>(x);
  RotarySettings settings = {10000.0};
  settings.share = share;
  RotaryFrequencies frequencies = make_rotary_frequencies(settings, head_width, 4);
  frequencies.factor = factor;
  rotate<T>(Exec(), rotation, frequencies, matrix(rotated, 3 * head_width), head_width, 4, 1000);
  return doubles(rotated);
}

TYPED_TEST(HalfKernels, Rotary) {
  using T = TypeParam;
  for (const std::int64_t head_width : {2, 10, 136})
    for (const Rotation rotation : {Rotation::forward, Rotation::inverse}) {
      const Doubles x = inputs<T>(7 * 3 * head_width, 1);
      for (const double factor : {1.0, 1.25}) {
        const double share = factor == 1.0 || head_width == 2 ? 1.0 : 0.8;
        EXPECT_STORED(run_rotate<T>(rotation, head_width, share, factor, x),
                      run_rotate<double>(rotation, head_width, share, factor, x), 3 * head_width,
                      1);
      }
    }
}

struct EmbeddingResults {
  Doubles out, dtokens, dpositions;
};

template <class T>
EmbeddingResults run_embedding(const std::vector<std::int32_t>& ids, std::int64_t tokens,
                               std::int64_t width, const Doubles& table, const Doubles& positions,
                               const Doubles& dy) {
  using C = compute_t<T>;
  const DeviceArray<std::int32_t> device_ids(ids);
  const auto token_table = device<T>(table), position_table = device<T>(positions);
  const auto dout = device<T>(dy);
  const auto out = unwritten<T>(dout.size());
  const DeviceArray<C> dtokens(token_table.size(), C(1)), dpositions(position_table.size(), C(2));
  embedding_forward<T>(Exec(), device_ids, tokens, 1, matrix(token_table, width),
                       matrix(position_table, width), matrix(out, width));
  embedding_backward<T>(Exec(), device_ids, tokens, matrix(dout, width), matrix(dtokens, width),
                        matrix(dpositions, width));
  return {doubles(out), doubles(dtokens), doubles(dpositions)};
}

TYPED_TEST(HalfKernels, Embedding) {
  using T = TypeParam;
  constexpr std::int64_t tokens = 5, width = 70, rows = 2000, vocabulary = 3;
  std::vector<std::int32_t> ids(rows);
  for (std::int64_t r = 0; r < rows; ++r) ids[r] = static_cast<std::int32_t>(r * r % vocabulary);
  const Doubles table = inputs<T>(vocabulary * width, 1);
  const Doubles positions = inputs<T>((tokens + 1) * width, 2);
  const Doubles dy = inputs<T>(rows * width, 3, 1, 0.5);
  const EmbeddingResults narrow = run_embedding<T>(ids, tokens, width, table, positions, dy);
  const EmbeddingResults wide = run_embedding<double>(ids, tokens, width, table, positions, dy);
  EXPECT_STORED(narrow.out, wide.out, width, 1);
  EXPECT_FLOAT(narrow.dtokens, wide.dtokens);
  EXPECT_FLOAT(narrow.dpositions, wide.dpositions);
}

struct ElementwiseResults {
  Doubles added, biased, sums, copied, filled;
};

template <class T>
ElementwiseResults run_elementwise(std::int64_t width, const Doubles& x, const Doubles& y,
                                   const Doubles& bias) {
  const auto from = device<T>(x), added = device<T>(y), biased = device<T>(y);
  const auto terms = device<T>(bias);
  const auto sums = unwritten<compute_t<T>>(width);
  const auto copied = unwritten<T>(from.size()), filled = unwritten<T>(from.size());
  const Exec exec;
  add_to<T, OnDevice>(exec, from, added);
  add_bias<T>(exec, matrix(biased, width), terms);
  column_sums<T>(exec, matrix(from, width), sums);
  copy<T>(exec, from, copied);
  fill<T>(exec, filled, T(0.75));
  return {doubles(added), doubles(biased), doubles(sums), doubles(copied), doubles(filled)};
}

TYPED_TEST(HalfKernels, Elementwise) {
  using T = TypeParam;
  for (const std::int64_t width : {1, 70, 600}) {
    const std::int64_t count = 5000 * width;
    const Doubles x = inputs<T>(count, 1, 1, 0.5), y = inputs<T>(count, 2),
                  bias = inputs<T>(width, 3);
    const ElementwiseResults narrow = run_elementwise<T>(width, x, y, bias);
    const ElementwiseResults wide = run_elementwise<double>(width, x, y, bias);
    EXPECT_STORED(narrow.added, wide.added, 1, 1);
    EXPECT_STORED(narrow.biased, wide.biased, 1, 1);
    EXPECT_FLOAT(narrow.sums, wide.sums);
    EXPECT_EQ(narrow.copied, wide.copied);
    EXPECT_EQ(narrow.filled, wide.filled);
  }
}

struct HeadResults {
  Doubles losses, losses_again, dx, dweight, dbias;
};

template <class T>
HeadResults run_head(std::int64_t width, const std::vector<std::int32_t>& targets, const Doubles& x,
                     const Doubles& weight, double scale, std::int64_t shift,
                     const LogitForm& form = {}, const Doubles& bias_values = {},
                     const LossForm& loss = {}) {
  using C = compute_t<T>;
  const auto rows = static_cast<std::int64_t>(targets.size());
  const DeviceArray<std::int32_t> device_targets(targets);
  const auto in = device<T>(x), table = device<T>(weight);
  const std::int64_t vocabulary = table.size() / width;
  const auto bias = device<T>(bias_values);
  const auto dbias = unwritten<C>(vocabulary);
  const bool has_bias = !bias_values.empty();
  const Logits<T> logits{form, has_bias ? View<const T*>(bias) : View<const T*>()};
  const auto losses = unwritten<C>(rows), again = unwritten<C>(rows);
  const auto dx = unwritten<T>(in.size());
  const auto dweight = unwritten<C>(table.size());
  const std::int64_t needed =
      linear_cross_entropy_workspace<T>(rows, vocabulary, kernel_form, has_bias);
  const auto workspace = unwritten<T>(needed + shift + 1);
  linear_cross_entropy_forward<T>(Exec(), matrix(in, width), matrix(table, width), device_targets,
                                  losses, workspace.view().range(shift, workspace.size()), logits);
  linear_cross_entropy_backward<T>(
      Exec(), matrix(in, width), matrix(table, width), {device_targets, {}, loss}, C(scale), again,
      matrix(dx, width), matrix(dweight, width), workspace.view().range(shift, workspace.size()),
      logits, has_bias ? dbias.view() : View<C*>());
  EXPECT_TRUE(std::isnan(doubles(workspace).back())) << "written beyond the workspace";
  return {doubles(losses), doubles(again), doubles(dx), doubles(dweight),
          has_bias ? doubles(dbias) : Doubles()};
}

TYPED_TEST(HalfKernels, LinearCrossEntropy) {
  using T = TypeParam;
  // There are more rows than in a chunk, so that the weight's gradient is summed over chunks.
  constexpr std::int64_t width = 48, rows = 1100, vocabulary = 257;
  std::vector<std::int32_t> targets(rows);
  for (std::int64_t r = 0; r < rows; ++r)
    targets[r] = r % 7 == 3 ? -1 : static_cast<std::int32_t>(r * 31 % vocabulary);
  const Doubles x = inputs<T>(rows * width, 1, 2), weight = inputs<T>(vocabulary * width, 2);
  const LogitForm all = {2.0, 3.0};
  for (const auto& [form, bias] :
       {std::pair{LogitForm{}, Doubles()}, std::pair{all, inputs<T>(vocabulary, 5)}})
    for (const std::int64_t shift : {0, 1}) {  // also a workspace that is not aligned for floats
      const LossForm loss = {0.1 * static_cast<double>(shift), 0.01 * static_cast<double>(shift),
                             vocabulary};
      const HeadResults narrow =
          run_head<T>(width, targets, x, weight, 0.5, shift, form, bias, loss);
      const HeadResults wide =
          run_head<double>(width, targets, x, weight, 0.5, shift, form, bias, loss);
      EXPECT_FLOAT(narrow.losses, wide.losses);
      EXPECT_FLOAT(narrow.losses_again, wide.losses_again);
      EXPECT_EQ(narrow.losses == narrow.losses_again, shift == 0);
      // The gradient of the logits is stored in 16 bits first, and then dx.
      EXPECT_STORED(narrow.dx, wide.dx, width, 2);
      EXPECT_STORED(narrow.dweight, wide.dweight, width, 1);
      EXPECT_STORED(narrow.dbias, wide.dbias, vocabulary, 1);
    }
}

/// Runs the head with the vocabulary in pieces of `words` words.
template <class T>
HeadResults run_pieces(std::int64_t width, std::int64_t words,
                       const std::vector<std::int32_t>& targets, const Doubles& x,
                       const Doubles& weight, double scale, std::int64_t shift) {
  using C = compute_t<T>;
  const auto rows = static_cast<std::int64_t>(targets.size());
  const std::int64_t vocabulary = static_cast<std::int64_t>(weight.size()) / width;
  const std::int64_t pieces = (vocabulary + words - 1) / words;
  const DeviceArray<std::int32_t> device_targets(targets);
  const auto in = device<T>(x), table = device<T>(weight);
  const auto losses = unwritten<C>(rows), log_sums = unwritten<C>(rows);
  const std::int64_t of_piece = piece_statistics({});
  const auto statistics = unwritten<C>(pieces * of_piece * rows);
  const auto dx = unwritten<C>(in.size()), dweight = unwritten<C>(table.size());
  const std::int64_t needed = cross_entropy_piece_workspace<T>(rows, width, words, 2);
  const auto workspace = unwritten<T>(needed + shift + 1);
  const View<T*> room = workspace.view().range(shift, workspace.size());
  const auto some = [&](std::int64_t piece, const auto& words_of) {
    return matrix(words_of, width)
        .row_range(piece * words, std::min((piece + 1) * words, vocabulary));
  };
  for (std::int64_t piece = 0; piece < pieces; ++piece)
    cross_entropy_statistics<T>(
        Exec(), matrix(in, width), some(piece, table), piece * words, device_targets,
        matrix(statistics, rows).row_range(piece * of_piece, (piece + 1) * of_piece), room);
  combine_statistics<C>(Exec(), matrix(statistics, rows), pieces, words, device_targets, losses,
                        log_sums);
  Doubles sum(x.size(), 0.0);
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    cross_entropy_gradients<T>(Exec(), matrix(in, width), some(piece, table), piece * words,
                               device_targets, log_sums, C(scale), matrix(dx, width),
                               some(piece, dweight), 2, room);
    const Doubles terms = doubles(dx);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += terms[i];
  }
  EXPECT_TRUE(std::isnan(doubles(workspace).back())) << "written beyond the workspace";
  return {doubles(losses), doubles(losses), sum, doubles(dweight), {}};
}

TYPED_TEST(HalfKernels, LinearCrossEntropyOfPieces) {
  using T = TypeParam;
  constexpr std::int64_t width = 48, rows = 1100, vocabulary = 257;
  std::vector<std::int32_t> targets(rows);
  for (std::int64_t r = 0; r < rows; ++r)
    targets[r] = r % 7 == 3 ? -1 : static_cast<std::int32_t>(r * 31 % vocabulary);
  const Doubles x = inputs<T>(rows * width, 1, 2), weight = inputs<T>(vocabulary * width, 2);
  const HeadResults wide = run_head<double>(width, targets, x, weight, 0.5, 0);
  for (const std::int64_t words : {65, 257})
    for (const std::int64_t shift : {0, 1}) {
      const HeadResults narrow = run_pieces<T>(width, words, targets, x, weight, 0.5, shift);
      EXPECT_FLOAT(narrow.losses, wide.losses);
      // The gradient of the logits is stored in 16 bits, dx is not.
      EXPECT_STORED(narrow.dx, wide.dx, width, 1);
      EXPECT_STORED(narrow.dweight, wide.dweight, width, 1);
    }
}

// The gradient of a nearly certain target is the small difference of two large numbers.
TYPED_TEST(HalfKernels, GradientOfACertainTarget) {
  using T = TypeParam;
  const Doubles x = {8}, weight = {1, 0};  // probability of the other: 3.4e-4
  const HeadResults narrow = run_head<T>(1, {0}, x, weight, 64, 0);
  const HeadResults wide = run_head<double>(1, {0}, x, weight, 64, 0);
  EXPECT_STORED(narrow.dx, wide.dx, 1, 2);
  EXPECT_STORED(narrow.dweight, wide.dweight, 1, 1);
}

}  // namespace
}  // namespace ostrakon::math
