// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding/weighted_rows.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/device_fixture.h"
#include "support/tensors.h"

namespace heddle::ops {
namespace {

using testing::random_tensor;
using testing::to_doubles;

Tensor some_rows(int64_t T, int64_t K, int64_t N) {
  Tensor rows({T, K}, DType::kI32);
  int64_t next = 0;
  for (int32_t& row : rows.span<int32_t>()) row = static_cast<int32_t>(next++ * 7919 % N);
  return rows;
}

class WeightedRowsTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped() && on_cuda()) GTEST_SKIP() << "there is no CUDA kernel";
  }
};

HEDDLE_ON_EVERY_DEVICE(WeightedRowsTest);

TEST_P(WeightedRowsTest, MatchesPlainLoopsInDouble) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    for (const int64_t T : {0, 1, 3, 70}) {
      for (const int64_t K : {1, 4, 16}) {
        for (const int64_t H : {1, 33, 96}) {
          SCOPED_TRACE(fmt::format("{}, T = {}, K = {}, H = {}", to_string(dtype), T, K, H));
          constexpr int64_t kRows = 25;
          const Tensor table = random_tensor({kRows, H}, dtype, 1);
          const Tensor rows = some_rows(T, K, kRows);
          const Tensor weights = random_tensor({T, K}, DType::kF32, 2);
          Tensor y({T, H}, DType::kF32);
          testing::poison(y);
          ASSERT_TRUE(weighted_rows(context(), {.table = table.view(),
                                                .rows = rows.view(),
                                                .weights = weights.view(),
                                                .y = y.view()})
                          .ok());
          const std::vector<double> from = to_doubles(table.view()), w = to_doubles(weights.view());
          std::vector<double> want(static_cast<size_t>(T * H));
          for (size_t i = 0; i < w.size(); ++i) {
            for (size_t h = 0; h < static_cast<size_t>(H); ++h) {
              want[i / static_cast<size_t>(K) * static_cast<size_t>(H) + h] +=
                  w[i] * from[static_cast<size_t>(rows.span<int32_t>()[i] * H) + h];
            }
          }
          if (T > 0) {
            EXPECT_LT(testing::relative_error(y.view(), want), 1e-6);
          }
        }
      }
    }
  }
}

// Products are rounded, then added in order, without fused operations and for any number of rows.
TEST_P(WeightedRowsTest, HasTheBitsOfRoundedProductsAddedInOrder) {
  constexpr int64_t kTokens = 70, kTerms = 4, kWidth = 33, kRows = 25;
  const Tensor table = random_tensor({kRows, kWidth}, DType::kF32, 3);
  const Tensor rows = some_rows(kTokens, kTerms, kRows);
  const Tensor weights = random_tensor({kTokens, kTerms}, DType::kF32, 4);
  Tensor want({kTokens, kWidth}, DType::kF32), y({kTokens, kWidth}, DType::kF32);
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t h = 0; h < kWidth; ++h) {
      float sum = 0;
      for (int64_t k = 0; k < kTerms; ++k) {
        const auto at = static_cast<size_t>(t * kTerms + k);
        const volatile float product =
            weights.span<float>()[at] * table.view().row<float>(rows.span<int32_t>()[at])[h];
        sum = sum + product;
      }
      want.view().row<float>(t)[h] = sum;
    }
  }
  ASSERT_TRUE(
      weighted_rows(
          context(),
          {.table = table.view(), .rows = rows.view(), .weights = weights.view(), .y = y.view()})
          .ok());
  EXPECT_TRUE(testing::same_bits(y.view(), want.view()));
}

TEST_P(WeightedRowsTest, NamesTheRowThatIsNotThere) {
  const Tensor table({5, 2}, DType::kF32), weights({3, 4}, DType::kF32);
  Tensor y({3, 2}, DType::kF32);
  for (const int32_t outside : {5, -1}) {
    Tensor rows({3, 4}, DType::kI32);
    rows.span<int32_t>()[6] = outside;
    EXPECT_EQ(
        weighted_rows(
            context(),
            {.table = table.view(), .rows = rows.view(), .weights = weights.view(), .y = y.view()})
            .message(),
        fmt::format("weighted_rows: row 1 reads row {} of 5", outside));
  }
  EXPECT_EQ(weighted_rows(context(), {.table = table.view(),
                                      .rows = some_rows(3, 3, 5).view(),
                                      .weights = weights.view(),
                                      .y = y.view()})
                .message(),
            "weighted_rows: weights has K = 4, rows has K = 3");
}

}  // namespace
}  // namespace heddle::ops
