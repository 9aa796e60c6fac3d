// SPDX-License-Identifier: Apache-2.0
// Compiled with OSTRAKON_CHECK_VIEWS in all builds: an access outside of a view ends the run.

#include <gtest/gtest.h>

#include <ostrakon/math/products/gemm.hpp>
#include <vector>

namespace ostrakon {
namespace {

#if !defined(OSTRAKON_CHECK_VIEWS)
#error "these tests need views that check"
#endif

class ViewChecksDeathTest : public ::testing::Test {
 protected:
  std::vector<float> values_ = std::vector<float>(12, 1.0f);
  ViewOrigin origin_{"saved of block.3", "forward(block.3, micro-batch 0)"};
  HostView<float*> array_{values_.data(), 12, &origin_};
  HostView<float**> matrix_ = array_.matrix(3, 4);
};

TEST_F(ViewChecksDeathTest, IndexOutsideOfAnArray) {
  EXPECT_EQ(array_(11), 1.0f);
  EXPECT_DEATH(array_(12),
               "index 12 is outside of a view of buffer 'saved of block.3' with extents \\(12\\), "
               "made for forward\\(block.3, micro-batch 0\\)");
  EXPECT_DEATH(array_[-1], "index -1 is outside");
  const HostView<const float*> read_only = array_;
  EXPECT_DEATH(read_only(12), "'saved of block.3'");
}

TEST_F(ViewChecksDeathTest, IndexOutsideOfAMatrix) {
  EXPECT_EQ(matrix_(2, 3), 1.0f);
  EXPECT_DEATH(matrix_(0, 4),
               "index \\(0, 4\\) is outside of a view of buffer 'saved of block.3' "
               "with extents \\(3, 4\\)");
  EXPECT_DEATH(matrix_(3, 0), "index \\(3, 0\\)");
  EXPECT_DEATH(matrix_(-1, 0), "index \\(-1, 0\\)");
  EXPECT_DEATH(matrix_(0, -1), "index \\(0, -1\\)");
  EXPECT_DEATH(matrix_.row(3), "index 3 is outside");
  EXPECT_DEATH(matrix_.row(2)(4), "index 4 is outside .* extents \\(4\\)");
}

TEST_F(ViewChecksDeathTest, PartsOutside) {
  EXPECT_DEATH(array_.range(5, 13), "elements \\[5, 13\\) is outside .* extents \\(12\\)");
  EXPECT_DEATH(array_.range(5, 4), "elements \\[5, 4\\)");
  EXPECT_DEATH(array_.range(-1, 4), "elements \\[-1, 4\\)");
  EXPECT_DEATH(array_.matrix(4, 4), "elements \\[0, 16\\)");
  EXPECT_DEATH(matrix_.row_range(1, 4), "rows \\[1, 4\\)");
  EXPECT_DEATH(matrix_.column_range(1, 5), "columns \\[1, 5\\)");
  EXPECT_DEATH(matrix_.column_range(0, 2).flat(),
               "flat\\(\\) of a view of buffer 'saved of block.3' whose rows don't follow each "
               "other: 2 columns, but 4 elements from one row to the next, made for forward");
  EXPECT_DEATH(array_.range(2, 5)(3), "index 3 .* extents \\(3\\)");
}

TEST_F(ViewChecksDeathTest, BatchOfWhichOneIsOutside) {
  const View<float**> all(values_.data(), 3, 4, 4, &origin_);
  const auto columns = math::Batch<float>::of_columns(all, 2, 1, 3);
  EXPECT_EQ(columns.first().columns(), 2);
  EXPECT_EQ(columns.stride(), 1);
  EXPECT_EQ(columns.count(), 3);
  EXPECT_EQ(math::Batch<float>::of_rows(all, 1, 2, 2).stride(), 8);
  EXPECT_DEATH(math::Batch<float>::of_columns(all, 2, 1, 4),
               "columns \\[0, 5\\) is outside of a view of buffer 'saved of block.3'");
  EXPECT_DEATH(math::Batch<float>::of_rows(all, 2, 1, 3), "rows \\[0, 4\\)");
}

TEST_F(ViewChecksDeathTest, BufferThatThePlanHasFreed) {
  const HostView<float**> kept = matrix_.column_range(0, 2);
  origin_.live = false;
  EXPECT_DEATH(kept(0, 0),
               "index \\(0, 0\\) of a view of buffer 'saved of block.3' with extents \\(3, 2\\), "
               "made for forward\\(block.3, micro-batch 0\\): used after that action");
  EXPECT_DEATH(array_(0), "the plan may have freed the buffer");
  EXPECT_DEATH(kept.row_range(0, 1), "the plan may have freed the buffer");
}

TEST_F(ViewChecksDeathTest, FreedBufferWhosePointerIsUsed) {
  const View<float**> kept(values_.data(), 3, 4, 4, &origin_);
  std::vector<float> other(12, 1.0f), product(9);
  const View<const float**> b(other.data(), 3, 4);
  const View<float**> c(product.data(), 3, 3);
  const auto multiply = [&](View<const float**> a) {
    math::gemm<float>(Exec(), math::Transpose::no, math::Transpose::yes, 1.0f, a, b, 0.0f, c);
    Exec().fence();
  };
  if (memory_is_host_accessible) multiply(kept);
  origin_.live = false;
  EXPECT_DEATH(multiply(kept),
               "pointer of a view of buffer 'saved of block.3', made for forward\\(block.3, "
               "micro-batch 0\\): used after that action");
  EXPECT_DEATH(array_.data(), "the plan may have freed the buffer");
  EXPECT_DEATH(matrix_.kokkos(), "the plan may have freed the buffer");
  // Operations that access no element do not end the run.
  const HostView<const float*> converted = array_;
  EXPECT_TRUE(converted);
  EXPECT_EQ(converted.size(), 12);
}

TEST_F(ViewChecksDeathTest, ArraysThatDoNotExist) {
  const HostView<float*> none(nullptr, 0, &origin_);
  EXPECT_DEATH(
      none.matrix(2, 3)(0, 0),
      "index \\(0, 0\\) is outside of a view of no array in buffer 'saved of block.3' with "
      "extents \\(2, 3\\)");
  EXPECT_DEATH(none.matrix(2, 3).row(0), "index 0 is outside of a view of no array");
  EXPECT_DEATH(none.matrix(2, 3).flat()(5), "index 5 is outside of a view of no array");
  EXPECT_EQ(none.matrix(2, 0).row(1).size(), 0);
  EXPECT_DEATH(HostView<float*>().matrix(2, 3)(0, 0), "of a view of no array with extents");
}

TEST_F(ViewChecksDeathTest, ArrayWithoutAName) {
  const HostView<float*> x = host_view(values_);
  EXPECT_DEATH(x(12), "index 12 is outside of a view of an array with extents \\(12\\)");
  EXPECT_DEATH(HostView<float*>()(0), "of a view of no array with extents \\(0\\)");
}

}  // namespace
}  // namespace ostrakon
