// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/rms_norm.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/device_fixture.h"
#include "ops/norm/rms_norm_reference.h"
#include "support/tensors.h"

namespace heddle::ops {
namespace {

using testing::random_tensor;
using testing::relative_error;
using testing::to_doubles;

// fp32 sums of up to a few thousand squares.
constexpr double kTolerance = 1e-6;

class RmsNormTest : public DeviceTest {};

HEDDLE_ON_EVERY_DEVICE(RmsNormTest);

TEST_P(RmsNormTest, MatchesTheReferenceWhenARowDoesNotFillAVector) {
  for (const DType dtype : activation_dtypes()) {
    for (const int64_t T : {1, 3, 70}) {
      for (const int64_t H : {1, 7, 64, 2049}) {
        SCOPED_TRACE(fmt::format("{}, T = {}, H = {}", to_string(dtype), T, H));
        const Tensor x = random_tensor({T, H}, dtype, 1);
        const Tensor weight = random_tensor({H}, DType::kF32, 2);
        DeviceTensor y = poisoned({T, H}, dtype);
        ASSERT_TRUE(
            rms_norm(context(),
                     {.x = upload(x).view(), .weight = upload(weight).view(), .y = y.view()})
                .ok());
        EXPECT_LT(
            relative_error(download(y).view(), rms_norm_reference(to_doubles(x.view()),
                                                                  to_doubles(weight.view()), 1e-6)),
            kTolerance + rounding_of(dtype));
      }
    }
  }
}

TEST_P(RmsNormTest, NormalisesEachGroupOfColumnsByItself) {
  for (const DType dtype : activation_dtypes()) {
    const Tensor x = random_tensor({5, 4 * 33}, dtype, 3);
    const Tensor weight = random_tensor({33}, DType::kF32, 4);
    DeviceTensor y = poisoned({5, 4 * 33}, dtype);
    ASSERT_TRUE(
        rms_norm(context(), {.x = upload(x).view(), .weight = upload(weight).view(), .y = y.view()})
            .ok());
    EXPECT_LT(
        relative_error(download(y).view(),
                       rms_norm_reference(to_doubles(x.view()), to_doubles(weight.view()), 1e-6)),
        kTolerance + rounding_of(dtype));
  }
}

TEST_P(RmsNormTest, AddsToTheResidualFirstAndKeepsTheSum) {
  const Tensor x = random_tensor({6, 100}, DType::kF32, 5);
  const Tensor weight = random_tensor({100}, DType::kF32, 6);
  const Tensor before = random_tensor({6, 100}, DType::kF32, 7);
  DeviceTensor residual = upload(before);
  std::vector<double> sum = to_doubles(before.view());
  const std::vector<double> addend = to_doubles(x.view());
  for (size_t i = 0; i < sum.size(); ++i) {
    sum[i] = static_cast<double>(static_cast<float>(sum[i]) + static_cast<float>(addend[i]));
  }
  DeviceTensor y = poisoned({6, 100}, DType::kF32);
  ASSERT_TRUE(rms_norm(context(), {.x = upload(x).view(),
                                   .residual = residual.view(),
                                   .weight = upload(weight).view(),
                                   .y = y.view()})
                  .ok());
  EXPECT_EQ(to_doubles(download(residual).view()), sum);
  EXPECT_LT(
      relative_error(download(y).view(), rms_norm_reference(sum, to_doubles(weight.view()), 1e-6)),
      kTolerance);
}

TEST_P(RmsNormTest, NormalisesTheResidualThatWasRounded) {
  for (const DType dtype : activation_dtypes()) {
    const Tensor x = random_tensor({6, 100}, dtype, 12);
    const Tensor weight = random_tensor({100}, DType::kF32, 13);
    DeviceTensor residual = upload(random_tensor({6, 100}, dtype, 14));
    DeviceTensor y = poisoned({6, 100}, dtype);
    ASSERT_TRUE(rms_norm(context(), {.x = upload(x).view(),
                                     .residual = residual.view(),
                                     .weight = upload(weight).view(),
                                     .y = y.view()})
                    .ok());
    EXPECT_LT(
        relative_error(download(y).view(), rms_norm_reference(to_doubles(download(residual).view()),
                                                              to_doubles(weight.view()), 1e-6)),
        kTolerance + rounding_of(dtype));
  }
}

TEST_P(RmsNormTest, WorksInPlaceAndOnColumnsOfAWiderTensor) {
  const Tensor before = random_tensor({4, 50}, DType::kF32, 8);
  DeviceTensor wide = upload(before);
  const Tensor weight = random_tensor({20}, DType::kF32, 9);
  MutableTensorView part(wide.view().as<float>() + 10, DType::kF32, Shape{4, 20}, 50);
  const TensorView part_before(before.span<float>().data() + 10, DType::kF32, Shape{4, 20}, 50);
  const std::vector<double> want =
      rms_norm_reference(to_doubles(part_before), to_doubles(weight.view()), 1e-6);
  ASSERT_TRUE(rms_norm(context(), {.x = part, .weight = upload(weight).view(), .y = part}).ok());
  const Tensor after = download(wide);
  const TensorView part_after(after.span<float>().data() + 10, DType::kF32, Shape{4, 20}, 50);
  EXPECT_LT(relative_error(part_after, want), kTolerance);
  for (int64_t t = 0; t < 4; ++t) {
    for (int64_t h = 0; h < 50; ++h) {
      if (h >= 10 && h < 30) continue;
      EXPECT_EQ(after.view().row<float>(t)[h], before.view().row<float>(t)[h]) << "neighbours stay";
    }
  }
}

TEST_P(RmsNormTest, GivesARowTheSameBitsInEveryBatch) {
  const Tensor x = random_tensor({70, 257}, DType::kF32, 10);
  const DeviceTensor weight = upload(random_tensor({257}, DType::kF32, 11));
  DeviceTensor y = poisoned({70, 257}, DType::kF32);
  ASSERT_TRUE(
      rms_norm(context(), {.x = upload(x).view(), .weight = weight.view(), .y = y.view()}).ok());
  const Tensor together = download(y);
  for (int64_t t = 0; t < 70; ++t) {
    DeviceTensor alone = poisoned({1, 257}, DType::kF32);
    const DeviceTensor row = upload(TensorView(x.view().row<float>(t), DType::kF32, Shape{1, 257}));
    ASSERT_TRUE(
        rms_norm(context(), {.x = row.view(), .weight = weight.view(), .y = alone.view()}).ok());
    EXPECT_TRUE(testing::same_bits(download(alone).view(), TensorView(together.view().row<float>(t),
                                                                      DType::kF32, Shape{1, 257})));
  }
}

// A GPU goes through many groups in another way than through few: of one group a row or of several,
// with a residual or in place, of columns of a wider tensor.
TEST_P(RmsNormTest, ManyRowsHaveTheBitsOfFew) {
  struct Case {
    int64_t H, groups;
    bool adds;
  };

  constexpr int64_t kRows = 2501, kFew = 397, kBeside = 16;
  for (const DType dtype : activation_dtypes()) {
    for (const auto& [H, groups, adds] :
         {Case{256, 1, true}, Case{256, 4, false}, Case{768, 1, true}, Case{2048, 1, true},
          Case{2048, 1, false}}) {
      SCOPED_TRACE(fmt::format("{}, H = {}, {} groups", to_string(dtype), H, groups));
      const int64_t width = H * groups, stride = width + kBeside;
      const Tensor x = random_tensor({kRows, stride}, dtype, 15);
      const Tensor before = random_tensor({kRows, stride}, dtype, 16);
      const DeviceTensor weight = upload(random_tensor({H}, DType::kF32, 17));
      const auto rows_of = [&](const Tensor& tensor, int64_t first, int64_t count) {
        return TensorView(
            static_cast<const std::byte*>(tensor.view().data) + bytes_of(dtype, first * stride),
            dtype, Shape{count, stride});
      };
      const auto columns = [&](DeviceTensor& tensor) {
        const MutableTensorView all = tensor.view();
        return MutableTensorView(all.data, dtype, Shape{all.shape[0], width}, stride);
      };
      const auto run = [&](int64_t first, int64_t count) {
        DeviceTensor y = upload(rows_of(x, first, count));
        DeviceTensor residual = upload(rows_of(before, first, count));
        EXPECT_TRUE(rms_norm(context(), {.x = columns(y),
                                         .residual = adds ? columns(residual) : MutableTensorView(),
                                         .weight = weight.view(),
                                         .y = columns(y)})
                        .ok());
        return std::pair(download(y), download(residual));
      };
      const auto [y, residual] = run(0, kRows);
      for (int64_t first = 0; first < kRows; first += kFew) {
        const int64_t count = std::min(kFew, kRows - first);
        const auto [some_y, some_residual] = run(first, count);
        EXPECT_TRUE(testing::same_bits(some_y.view(), rows_of(y, first, count))) << first;
        EXPECT_TRUE(testing::same_bits(some_residual.view(), rows_of(residual, first, count)))
            << first;
      }
    }
  }
}

TEST_P(RmsNormTest, NamesWhatDoesNotFit) {
  const DeviceTensor x = poisoned({3, 64}, DType::kF32);
  const DeviceTensor weight = poisoned({48}, DType::kF32);
  DeviceTensor y = poisoned({3, 64}, DType::kF32);
  DeviceTensor short_y = poisoned({2, 64}, DType::kF32);
  const DeviceTensor good = poisoned({64}, DType::kF32);
  EXPECT_EQ(rms_norm(context(), {.x = x.view(), .weight = weight.view(), .y = y.view()}).message(),
            "rms_norm: x has 64 columns, not a multiple of the weight's H = 48");
  EXPECT_EQ(
      rms_norm(context(), {.x = x.view(), .weight = good.view(), .y = short_y.view()}).message(),
      "rms_norm: y has T = 2, x has T = 3");
  EXPECT_EQ(rms_norm(context(), {.x = x.view(), .weight = good.view(), .y = y.view(), .epsilon = 0})
                .message(),
            "rms_norm: epsilon is 0, it must be positive");
}

}  // namespace
}  // namespace heddle::ops
