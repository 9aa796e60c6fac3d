// SPDX-License-Identifier: Apache-2.0
// Kernels refuse arrays that are too small before they access one, also in builds without view
// checks.

#include <gtest/gtest.h>

#include <ostrakon/math/attention/attention.hpp>
#include <ostrakon/math/attention/rotary.hpp>
#include <ostrakon/math/cross_entropy/linear_cross_entropy.hpp>
#include <ostrakon/math/embedding.hpp>
#include <ostrakon/math/exact_sum.hpp>
#include <ostrakon/math/rows/activation.hpp>
#include <ostrakon/math/rows/norm.hpp>
#include <ostrakon/math/scratch.hpp>

#include "math/norm_parameters.hpp"
#include "support/device_array.hpp"
#include "support/scratch_folder.hpp"

namespace ostrakon::math {
namespace {

using test::DeviceArray;
using testing::error_of;

class Sizes : public ::testing::Test {
 protected:
  Exec exec_;
  DeviceArray<double> memory_{256, 0.0};
  View<double*> all_ = memory_.view();
  View<double**> x_ = all_.matrix(4, 6);
  View<double**> short_ = all_.matrix(3, 6);
  View<double**> narrow_ = all_.matrix(4, 5);
  DeviceArray<std::int32_t> ids_{4, 0};
  const NormWeight gain_ = NormWeight::plain;

  View<double*> array(std::int64_t size) const { return all_.range(0, size); }
};

TEST_F(Sizes, OfNorms) {
  const auto forward = [&](NormKind kind, View<double*> weight, View<double**> y,
                           View<double*> mean) {
    return error_of(
        [&] { norm_forward<double>(exec_, kind, gain_, 1e-5, x_, weight, {}, y, mean, array(4)); });
  };
  EXPECT_EQ(forward(NormKind::layernorm, array(6), x_, array(4)), "no error");
  EXPECT_EQ(forward(NormKind::rmsnorm, array(6), x_, {}), "no error");
  EXPECT_EQ(forward(NormKind::layernorm, array(5), x_, array(4)),
            "norm_forward: weight has 5 elements, expected 6");
  EXPECT_EQ(error_of([&] {
              norm_forward<double>(exec_, NormKind::rmsnorm, NormWeight::none, 1e-5, x_, array(6),
                                   {}, x_, {}, array(4));
            }),
            "norm_forward: weight has 6 elements, expected 0");
  EXPECT_EQ(forward(NormKind::layernorm, array(6), short_, array(4)),
            "norm_forward: y is (3, 6), expected (4, 6)");
  EXPECT_EQ(forward(NormKind::layernorm, array(6), x_, {}),
            "norm_forward: mean has 0 elements, expected 4");
  EXPECT_EQ(error_of([&] {
              norm_backward_input<double>(exec_, NormKind::rmsnorm, gain_, x_, array(6), {},
                                          array(3), x_, x_);
            }),
            "norm_backward: rstd has 3 elements, expected 4");
  EXPECT_EQ(error_of([&] {
              norm_parameters<double>(exec_, NormKind::rmsnorm, x_, {}, array(4), x_, array(7), {});
            }),
            "norm_parameters: dweight has 7 elements, expected 6");
}

TEST_F(Sizes, OfActivations) {
  const auto gelu = Activation::gelu, swiglu = Activation::swiglu;
  EXPECT_EQ(error_of([&] { activation_forward<double>(exec_, gelu, x_, narrow_); }),
            "activation_forward: x is (4, 6), expected (4, 5)");
  EXPECT_EQ(error_of([&] { activation_backward<double>(exec_, gelu, x_, short_, x_); }),
            "activation_backward: x is (4, 6), expected (3, 6)");
  EXPECT_EQ(error_of([&] { activation_forward<double>(exec_, swiglu, x_, narrow_); }),
            "activation_forward: x is (4, 6), expected (4, 10)");
  EXPECT_EQ(
      error_of([&] { activation_backward<double>(exec_, swiglu, x_, all_.matrix(4, 3), short_); }),
      "activation_backward: dx is (3, 6), expected (4, 6)");
}

TEST_F(Sizes, OfEmbeddings) {
  const auto forward = [&](std::int64_t ids, View<const double**> tokens, std::int64_t first) {
    return error_of([&] {
      embedding_forward<double>(exec_, ids_.view().range(0, ids), 2, first, tokens, short_, x_);
    });
  };
  EXPECT_EQ(forward(4, x_, 1), "no error");
  EXPECT_EQ(forward(3, x_, 0), "embed_forward: ids has 3 elements, expected 4");
  EXPECT_EQ(forward(4, narrow_, 0), "embed_forward: token table is (4, 5), expected (4, 6)");
  EXPECT_EQ(forward(4, x_, 2), "embed_forward: position table is (3, 6), expected at least (4, 6)");
  EXPECT_EQ(error_of([&] { embedding_backward<double>(exec_, ids_.view(), 4, x_, {}, short_); }),
            "embed_backward: position table is (3, 6), expected at least (4, 6)");
}

TEST_F(Sizes, OfRotations) {
  const auto rotated = [&](std::int64_t pairs, std::int64_t head_width) {
    const RotaryFrequencies frequencies = {std::vector<double>(pairs, 1.0)};
    return error_of(
        [&] { rotate<double>(exec_, Rotation::forward, frequencies, x_, head_width, 2, 0); });
  };
  EXPECT_EQ(rotated(2, 4),
            "rotate: x (4, 6) of heads of width 4 with 2 pairs and sequences of 2 tokens, expected "
            "whole heads with 1 pair or more, of two elements each");
  EXPECT_EQ(rotated(2, 3).find("rotate: x (4, 6) of heads of width 3 with 2 pairs"), 0u);
  EXPECT_EQ(rotated(0, 3).find("rotate: x (4, 6) of heads of width 3 with 0 pairs"), 0u);
  EXPECT_EQ(rotated(1, 3), "no error");
}

TEST_F(Sizes, OfExactSums) {
  std::vector<std::int64_t> limbs(exact_sum_limbs - 1, 0);
  const DeviceArray<std::int64_t> on_device_limbs(limbs);
  EXPECT_EQ(error_of([&] { add_squares<double, OnDevice>(exec_, all_, on_device_limbs); }),
            "add_squares: 67 limbs, expected 68");
  EXPECT_EQ(error_of([&] { exact_sum_value(host_view(limbs)); }),
            "exact_sum_value: 67 limbs, expected 68");
}

TEST_F(Sizes, OfCrossEntropies) {
  const View<double*> rest = all_.range(64, 256);
  const auto forward = [&](std::int64_t targets, std::int64_t losses, View<double*> workspace) {
    return error_of([&] {
      linear_cross_entropy_forward<double>(exec_, x_, short_, ids_.view().range(0, targets),
                                           all_.range(32, 32 + losses), workspace);
    });
  };
  EXPECT_EQ(forward(4, 4, rest), "no error");
  EXPECT_EQ(forward(3, 4, rest), "linear_cross_entropy: targets has 3 elements, expected 4");
  EXPECT_EQ(forward(4, 5, rest), "linear_cross_entropy: losses has 5 elements, expected 4");
  const std::int64_t needed = linear_cross_entropy_workspace<double>(4, 3);
  for (const std::int64_t elements : {needed - 1, std::int64_t{0}})
    EXPECT_EQ(forward(4, 4, rest.range(0, elements)),
              text("linear_cross_entropy: workspace of ", elements, " elements, expected at least ",
                   needed));
}

TEST_F(Sizes, OfAttention) {
  const AttentionShape shape{1, 4, 2, 1, 2};
  const View<double**> qkv = all_.matrix(4, 8), out = all_.range(32, 48).matrix(4, 4);
  const std::int64_t needed = attention_forward_workspace<double>(shape);
  const auto forward = [&](std::int64_t log_sum_exp, std::int64_t workspace) {
    return error_of([&] {
      attention_forward<double>(exec_, shape, qkv, 0, 4, out, all_.range(48, 48 + log_sum_exp),
                                all_.range(64, 64 + workspace));
    });
  };
  EXPECT_EQ(forward(8, needed), "no error");
  EXPECT_EQ(forward(7, needed), "attention: log_sum_exp has 7 elements, expected 8");
  EXPECT_EQ(forward(8, needed - 1),
            text("attention: workspace of ", needed - 1, " elements, expected at least ", needed));
}

TEST_F(Sizes, OfAWorkspaceInPieces) {
  Scratch<double> scratch(array(8), "kernel");
  EXPECT_EQ(scratch.take<double>(5).size(), 5);
  EXPECT_EQ(scratch.take<double>(0).size(), 0);
  EXPECT_EQ(error_of([&] { scratch.take<double>(4); }),
            "kernel: workspace of 8 elements, expected at least 9");
  EXPECT_EQ(error_of([&] { Scratch<double>({}, "kernel").take<double>(0); }), "no error");
}

}  // namespace
}  // namespace ostrakon::math
