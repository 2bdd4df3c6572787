// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/rms_norm.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/norm/rms_norm_reference.h"
#include "support/tensors.h"

namespace heddle::ops {
namespace {

using testing::poison;
using testing::random_tensor;
using testing::relative_error;
using testing::to_doubles;

// fp32 sums of up to a few thousand squares.
constexpr double kTolerance = 1e-6;

class RmsNormTest : public ::testing::Test {
 protected:
  device::ThreadPool pool_{2};
  CpuContext context_{pool_};
};

TEST_F(RmsNormTest, MatchesTheReferenceWhenARowDoesNotFillAVector) {
  for (const int64_t T : {1, 3, 70}) {
    for (const int64_t H : {1, 7, 64, 2049}) {
      SCOPED_TRACE(fmt::format("T = {}, H = {}", T, H));
      const Tensor x = random_tensor({T, H}, DType::kF32, 1);
      const Tensor weight = random_tensor({H}, DType::kF32, 2);
      Tensor y({T, H}, DType::kF32);
      poison(y);
      ASSERT_TRUE(rms_norm(context_, {.x = x.view(), .weight = weight.view(), .y = y.view()}).ok());
      EXPECT_LT(relative_error(y.view(), rms_norm_reference(to_doubles(x.view()),
                                                            to_doubles(weight.view()), 1e-6)),
                kTolerance);
    }
  }
}

TEST_F(RmsNormTest, NormalisesEachGroupOfColumnsByItself) {
  const Tensor x = random_tensor({5, 4 * 33}, DType::kF32, 3);
  const Tensor weight = random_tensor({33}, DType::kF32, 4);
  Tensor y({5, 4 * 33}, DType::kF32);
  poison(y);
  ASSERT_TRUE(rms_norm(context_, {.x = x.view(), .weight = weight.view(), .y = y.view()}).ok());
  EXPECT_LT(relative_error(y.view(), rms_norm_reference(to_doubles(x.view()),
                                                        to_doubles(weight.view()), 1e-6)),
            kTolerance);
}

TEST_F(RmsNormTest, AddsToTheResidualFirstAndKeepsTheSum) {
  const Tensor x = random_tensor({6, 100}, DType::kF32, 5);
  const Tensor weight = random_tensor({100}, DType::kF32, 6);
  Tensor residual = random_tensor({6, 100}, DType::kF32, 7);
  std::vector<double> sum = to_doubles(residual.view());
  const std::vector<double> addend = to_doubles(x.view());
  for (size_t i = 0; i < sum.size(); ++i) {
    sum[i] = static_cast<double>(static_cast<float>(sum[i]) + static_cast<float>(addend[i]));
  }
  Tensor y({6, 100}, DType::kF32);
  poison(y);
  ASSERT_TRUE(
      rms_norm(context_,
               {.x = x.view(), .residual = residual.view(), .weight = weight.view(), .y = y.view()})
          .ok());
  EXPECT_EQ(to_doubles(residual.view()), sum);
  EXPECT_LT(relative_error(y.view(), rms_norm_reference(sum, to_doubles(weight.view()), 1e-6)),
            kTolerance);
}

TEST_F(RmsNormTest, WorksInPlaceAndOnColumnsOfAWiderTensor) {
  Tensor wide = random_tensor({4, 50}, DType::kF32, 8);
  const Tensor before = random_tensor({4, 50}, DType::kF32, 8);
  const Tensor weight = random_tensor({20}, DType::kF32, 9);
  MutableTensorView part(wide.span<float>().data() + 10, DType::kF32, Shape{4, 20}, 50);
  const std::vector<double> want =
      rms_norm_reference(to_doubles(part), to_doubles(weight.view()), 1e-6);
  ASSERT_TRUE(rms_norm(context_, {.x = part, .weight = weight.view(), .y = part}).ok());
  EXPECT_LT(relative_error(part, want), kTolerance);
  for (int64_t t = 0; t < 4; ++t) {
    for (int64_t h = 0; h < 50; ++h) {
      if (h >= 10 && h < 30) continue;
      EXPECT_EQ(wide.view().row<float>(t)[h], before.view().row<float>(t)[h]) << "neighbours stay";
    }
  }
}

TEST_F(RmsNormTest, GivesARowTheSameBitsInEveryBatch) {
  const Tensor x = random_tensor({70, 257}, DType::kF32, 10);
  const Tensor weight = random_tensor({257}, DType::kF32, 11);
  Tensor together({70, 257}, DType::kF32);
  ASSERT_TRUE(
      rms_norm(context_, {.x = x.view(), .weight = weight.view(), .y = together.view()}).ok());
  for (int64_t t = 0; t < 70; ++t) {
    Tensor alone({1, 257}, DType::kF32);
    const TensorView row(x.view().row<float>(t), DType::kF32, Shape{1, 257});
    ASSERT_TRUE(rms_norm(context_, {.x = row, .weight = weight.view(), .y = alone.view()}).ok());
    EXPECT_TRUE(testing::same_bits(
        alone.view(), TensorView(together.view().row<float>(t), DType::kF32, Shape{1, 257})));
  }
}

TEST_F(RmsNormTest, NamesWhatDoesNotFit) {
  const Tensor x({3, 64}, DType::kF32);
  const Tensor weight({48}, DType::kF32);
  Tensor y({3, 64}, DType::kF32);
  Tensor short_y({2, 64}, DType::kF32);
  const Tensor good({64}, DType::kF32);
  EXPECT_EQ(rms_norm(context_, {.x = x.view(), .weight = weight.view(), .y = y.view()}).message(),
            "rms_norm: x has 64 columns, not a multiple of the weight's H = 48");
  EXPECT_EQ(
      rms_norm(context_, {.x = x.view(), .weight = good.view(), .y = short_y.view()}).message(),
      "rms_norm: y has T = 2, x has T = 3");
  EXPECT_EQ(rms_norm(context_, {.x = x.view(), .weight = good.view(), .y = y.view(), .epsilon = 0})
                .message(),
            "rms_norm: epsilon is 0, it must be positive");
}

}  // namespace
}  // namespace heddle::ops
