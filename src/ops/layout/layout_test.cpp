// SPDX-License-Identifier: Apache-2.0
#include "ops/layout/layout.h"

#include <array>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/registry.h"
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

Status launch(std::string_view op, const std::vector<TensorView>& inputs, Tensor& output,
              const ForwardContext& forward = {}) {
  device::ThreadPool pool(1);
  CpuContext context(pool);
  const std::array<MutableTensorView, 1> outputs = {output.view()};
  return builtin_ops().find(op)->launch(
      context,
      {.inputs = inputs, .outputs = outputs, .attrs = {}, .forward = forward, .workspace = {}});
}

TEST(Concat, RefusesAResultOfAnotherWidth) {
  const Tensor a = random_tensor({2, 3}, DType::kF32, 1);
  const Tensor b = random_tensor({2, 4}, DType::kF32, 2);
  const Tensor taller = random_tensor({3, 4}, DType::kF32, 3);
  for (const int64_t width : {6, 8}) {
    Tensor y({2, width}, DType::kF32);
    EXPECT_EQ(launch("concat", {a.view(), b.view()}, y).message(),
              fmt::format("concat: a is [2, 3], b is [2, 4], y is [2, {}]", width));
  }
  Tensor y({2, 7}, DType::kF32);
  EXPECT_FALSE(launch("concat", {a.view(), taller.view()}, y).ok());
  EXPECT_TRUE(launch("concat", {a.view(), b.view()}, y).ok());
}

TEST(LogitRows, NoneWantedMeansNoneNotAll) {
  const Tensor x = random_tensor({1, 4}, DType::kF32, 1);
  Tensor none({0, 4}, DType::kF32);
  Tensor one({1, 4}, DType::kF32);
  EXPECT_TRUE(launch("logit_rows", {x.view()}, none).ok());
  EXPECT_EQ(launch("logit_rows", {x.view()}, one).message(),
            "logit_rows: x is [1, 4], y is [1, 4], 0 rows wanted");
}

}  // namespace
}  // namespace heddle::ops
