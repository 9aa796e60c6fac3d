// SPDX-License-Identifier: Apache-2.0
// Workspaces of kernels in each form. These tests are compiled for the host and in the device form,
// and the numbers must be equal.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/math/attention/attention.hpp>
#include <ostrakon/math/attention/attention_tiles.hpp>
#include <ostrakon/math/cross_entropy/linear_cross_entropy.hpp>
#include <ostrakon/math/embedding.hpp>
#include <ostrakon/math/kernel_form.hpp>
#include <ostrakon/math/launch_count.hpp>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <string>

namespace ostrakon::math {
namespace {

constexpr KernelForm host_form = KernelForm::host, device_form = KernelForm::device,
                     on_chip_form = KernelForm::device_on_chip;

TEST(KernelForm, AttentionHasScoresOfOneHeadOnAHostAndOfAllOnADevice) {
  // Scores of 64 queries of a head, or of 512 queries of both key/value heads, with probabilities
  // in bf16; backward has them twice, and sums of the gradients of keys and values.
  const AttentionShape shape{2, 1000, 8, 2, 64};
  EXPECT_EQ(attention_forward_workspace<bf16>(shape, host_form), 3 * 64 * 1000 + 1);
  EXPECT_EQ(attention_forward_workspace<bf16>(shape, device_form), 3 * 2 * 512 * 1000 + 1);
  EXPECT_EQ(attention_forward_workspace<bf16>(shape, on_chip_form), 0);
  EXPECT_EQ(attention_forward_workspace<float>(shape, host_form), 0);
  EXPECT_EQ(attention_forward_workspace<float>(shape, on_chip_form), 2 * 512 * 1000);
  EXPECT_EQ(attention_backward_workspace<bf16>(shape, 1, device_form),
            2 * (3 * 2 * 512 * 1000) + 2 * (2 * 2 * 1000 * 64) + 1);
  EXPECT_EQ(attention_backward_workspace<bf16>(shape, 1, on_chip_form), 2 * (2 * 8 * 1000) + 1);
  // In tiles on a host: a float per row, sums of a tile of keys and values over pieces, and in 16
  // bits those of all queries of four key/value heads.
  const std::int64_t row = attention_row(64), tile = 2 * 64 * row;
  EXPECT_EQ(attention_backward_workspace<float>(shape, 1, host_form), 2 * 8 * 1000);
  EXPECT_EQ(attention_backward_workspace<float>(shape, 4, host_form),
            2 * 8 * 1000 + 2 * tree_slots(4) * tile);
  EXPECT_EQ(attention_backward_workspace<bf16>(shape, 1, host_form),
            2 * (2 * 8 * 1000 + 4 * (4 * 1000 * row)) + 1);
  EXPECT_EQ(attention_backward_workspace<bf16>(shape, 4, on_chip_form),
            2 * (2 * 8 * 1000 + 2 * (2 * 1000 * 64 * tree_slots(4))) + 1);
  // Head widths that no form computes on chip.
  const AttentionShape wide{2, 1000, 8, 2, 96};
  EXPECT_EQ(attention_forward_workspace<bf16>(wide, on_chip_form),
            attention_forward_workspace<bf16>(wide, device_form));
  // Nor are values of another width than keys.
  const AttentionShape unlike{2, 1000, 8, 2, 128, {}, 64};
  EXPECT_EQ(attention_forward_workspace<bf16>(unlike, on_chip_form),
            attention_forward_workspace<bf16>(unlike, device_form));
  EXPECT_EQ(attention_backward_workspace<bf16>(unlike, 1, on_chip_form),
            2 * (3 * 2 * 512 * 1000) + 2 * (2 * 1000 * (128 + 64)) + 1);
}

TEST(KernelForm, TheHeadHasMoreLogitsOnADevice) {
  constexpr std::int64_t stride = 50272;  // whole cache lines
  EXPECT_EQ(linear_cross_entropy_workspace<float>(20000, 50257, host_form), 256 * stride);
  EXPECT_EQ(linear_cross_entropy_workspace<float>(20000, 50257, device_form), 5120 * stride);
  EXPECT_EQ(linear_cross_entropy_workspace<bf16>(20000, 50257, host_form), 2 * 512 * stride + 1);
  EXPECT_EQ(linear_cross_entropy_workspace<bf16>(20000, 50257, on_chip_form),
            3 * 5120 * stride + 1);
  EXPECT_EQ(embedding_by_piece_workspace(100, 50257, host_form), 2 * 100 + 50257);
  EXPECT_EQ(embedding_by_piece_workspace(100, 50257, on_chip_form), 2 * 100);
}

TEST(KernelForm, PiecesOfTheVocabularyToo) {
  const auto by_piece = [](KernelForm form) {
    return linear_cross_entropy_by_piece_workspace<float>(20000, 768, 50257, 4, form);
  };
  EXPECT_EQ(by_piece(host_form), 20000 + 256 * 50257);
  EXPECT_EQ(by_piece(device_form), 20000 + 5120 * 50257);
  const auto of_piece = [](KernelForm form) {
    return cross_entropy_piece_workspace<float>(20000, 768, 25129, 4, form);
  };
  EXPECT_EQ(of_piece(host_form), 256 * 25129);
  EXPECT_EQ(of_piece(on_chip_form), std::int64_t{1} << 28);
}

/// Adding products of other words would have other bits on a device, so that a rank with half of
/// the rows of a sequence would not have those of one with all.
TEST(KernelForm, ADeviceAddsProductsOfAsManyWordsForAnyNumberOfRows) {
  constexpr std::int64_t width = 8, words = 10000;
  const auto products = [](std::int64_t rows) {
    // Nothing is accessed.
    const auto nowhere = [](auto element, std::int64_t size) {
      using T = decltype(element);
      return View<T*>(reinterpret_cast<T*>(std::uintptr_t{1} << 20), size);
    };
    const LaunchCount count;
    cross_entropy_gradients<float>(
        Exec(), nowhere(float(), rows * width).matrix(rows, width),
        View<const float**>(nowhere(float(), words * width).matrix(words, width)), 0,
        View<const std::int32_t*>(nowhere(std::int32_t(), rows)), nowhere(float(), rows), 1,
        nowhere(float(), rows * width).matrix(rows, width), {}, 1,
        nowhere(float(), cross_entropy_piece_workspace<float>(rows, width, words, 1)));
    return std::count_if(count.names().begin(), count.names().end(),
                         [](const char* name) { return std::string(name).find("product") == 0; });
  };
  EXPECT_EQ(products(64), on_device ? 2 * 3 : 2);
  EXPECT_EQ(products(6400), on_device ? 2 * 3 : 2 * 20);
}

TEST(KernelForm, RowsOfExpertsAreFilledUpWhereHostsMultiply) {
  EXPECT_EQ(rows_of_a_product_in<bf16>(host_form), 64);
  EXPECT_EQ(rows_of_a_product_in<bf16>(device_form), 0);
  EXPECT_EQ(rows_of_a_product_in<float>(host_form), 0);
  // The device form of tests multiplies on the host.
  EXPECT_EQ(rows_of_a_product_in<bf16>(kernel_form), products_on_device ? 0 : 64);
}

}  // namespace
}  // namespace ostrakon::math
