// SPDX-License-Identifier: Apache-2.0
#include "ops/layout/layout.h"

#include <gtest/gtest.h>

#include "support/tensors.h"

namespace heddle::ops {
namespace {

using testing::poison;
using testing::random_tensor;

TEST(CopyRows, GathersRowsOfAStridedTensor) {
  device::ThreadPool pool(1);
  CpuContext context(pool);
  const Tensor wide = random_tensor({6, 20}, DType::kF32, 2);
  const TensorView part(wide.span<float>().data() + 5, DType::kF32, Shape{6, 9}, 20);
  const std::vector<int32_t> rows = {5, 0, 5};
  Tensor y({3, 9}, DType::kF32);
  poison(y);
  ASSERT_TRUE(copy_rows(context, part, rows, y.view()).ok());
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t c = 0; c < 9; ++c) {
      EXPECT_EQ(y.view().row<float>(r)[c], part.row<float>(rows[static_cast<size_t>(r)])[c]);
    }
  }
  const std::vector<int32_t> outside = {0, 6, 1};
  EXPECT_EQ(copy_rows(context, part, outside, y.view()).message(), "copy_rows: row 6 of 6");
}

}  // namespace
}  // namespace heddle::ops
