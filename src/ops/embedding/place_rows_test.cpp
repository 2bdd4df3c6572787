// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding/place_rows.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/device_fixture.h"
#include "support/tensors.h"

namespace heddle::ops {
namespace {

using testing::random_tensor;
using testing::to_doubles;

class PlaceRowsTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped() && on_cuda()) GTEST_SKIP() << "there is no CUDA kernel";
  }
};

HEDDLE_ON_EVERY_DEVICE(PlaceRowsTest);

TEST_P(PlaceRowsTest, ReplacesOrAddsRowsAndKeepsTheOthers) {
  for (const bool adds : {false, true}) {
    for (const int64_t T : {0, 1, 5, 70}) {
      SCOPED_TRACE(fmt::format("{} rows, adds {}", T, adds));
      constexpr int64_t kWidth = 33, kStaged = 4;
      const Tensor wide = random_tensor({T, kWidth + 9}, DType::kF32, 1);
      const TensorView x(wide.view().as<float>() + 3, DType::kF32, {T, kWidth}, kWidth + 9);
      const Tensor staged = random_tensor({kStaged, kWidth}, DType::kF32, 2);
      Tensor rows({T}, DType::kI32), y({T, kWidth}, DType::kF32);
      for (int64_t t = 0; t < T; ++t) {
        rows.span<int32_t>()[static_cast<size_t>(t)] =
            static_cast<int32_t>(t * 3 % (kStaged + 1)) - 1;
      }
      testing::poison(y);
      ASSERT_TRUE(
          place_rows(
              context(),
              {.x = x, .rows = rows.view(), .staged = staged.view(), .y = y.view(), .adds = adds})
              .ok());
      for (int64_t t = 0; t < T; ++t) {
        const int64_t row = rows.span<int32_t>()[static_cast<size_t>(t)];
        for (int64_t h = 0; h < kWidth; ++h) {
          const float kept = row < 0 || adds ? x.row<float>(t)[h] : 0.0f;
          const float placed = row < 0 ? 0.0f : staged.view().row<float>(row)[h];
          EXPECT_EQ(y.view().row<float>(t)[h], kept + placed);
        }
      }
    }
  }
}

TEST_P(PlaceRowsTest, NamesTheMissingRow) {
  Tensor x({3, 2}, DType::kF32), rows({3}, DType::kI32);
  const Tensor staged({2, 2}, DType::kF32), narrow({2, 1}, DType::kF32);
  rows.span<int32_t>()[1] = 2;
  const auto complaint = [&](const Tensor& from) {
    return place_rows(context(),
                      {.x = x.view(), .rows = rows.view(), .staged = from.view(), .y = x.view()})
        .message();
  };
  EXPECT_EQ(complaint(staged), "place_rows: row 1 refers to row 2 of 2 staged rows");
  EXPECT_EQ(complaint(narrow), "place_rows: staged has H = 1, x has H = 2");
}

}  // namespace
}  // namespace heddle::ops
