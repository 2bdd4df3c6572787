// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/layer_norm.h"

#include <cmath>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/device_fixture.h"
#include "support/tensors.h"

namespace heddle::ops {
namespace {

using testing::random_tensor;
using testing::to_doubles;

// Rows of `weight.size()` values; no bias: zeros.
std::vector<double> layer_norm_reference(const std::vector<double>& x,
                                         const std::vector<double>& weight,
                                         const std::vector<double>& bias, double epsilon) {
  const size_t H = weight.size();
  std::vector<double> y(x.size());
  for (size_t start = 0; start < x.size(); start += H) {
    double mean = 0, variance = 0;
    for (size_t h = 0; h < H; ++h) mean += x[start + h] / static_cast<double>(H);
    for (size_t h = 0; h < H; ++h) {
      variance += (x[start + h] - mean) * (x[start + h] - mean) / static_cast<double>(H);
    }
    for (size_t h = 0; h < H; ++h) {
      y[start + h] = (x[start + h] - mean) / std::sqrt(variance + epsilon) * weight[h] + bias[h];
    }
  }
  return y;
}

class LayerNormTest : public DeviceTest {};

HEDDLE_ON_EVERY_DEVICE(LayerNormTest);

TEST_P(LayerNormTest, MatchesTheReferenceWithAndWithoutABias) {
  for (const DType dtype : activation_dtypes()) {
    for (const int64_t T : {1, 3, 70}) {
      for (const int64_t H : {1, 7, 64, 2049}) {
        for (const bool biased : {false, true}) {
          SCOPED_TRACE(fmt::format("{}, T = {}, H = {}, bias {}", to_string(dtype), T, H, biased));
          const Tensor x = random_tensor({T, H}, dtype, 1);
          const Tensor weight = random_tensor({H}, DType::kF32, 2);
          const Tensor bias = random_tensor({H}, DType::kF32, 3);
          const DeviceTensor bias_here = upload(bias);
          DeviceTensor y = poisoned({T, H}, dtype);
          ASSERT_TRUE(layer_norm(context(), {.x = upload(x).view(),
                                             .weight = upload(weight).view(),
                                             .bias = biased ? bias_here.view() : TensorView(),
                                             .y = y.view()})
                          .ok());
          const std::vector<double> none(static_cast<size_t>(H), 0.0);
          const std::vector<double> want =
              layer_norm_reference(to_doubles(x.view()), to_doubles(weight.view()),
                                   biased ? to_doubles(bias.view()) : none, 1e-5);
          // A row of one column is its bias, or 0, which has no relative error.
          if (H > 1 || biased) {
            EXPECT_LT(testing::relative_error(download(y).view(), want), 2e-6 + rounding_of(dtype));
          }
        }
      }
    }
  }
}

TEST_P(LayerNormTest, NamesTheTensorThatDoesNotFit) {
  const DeviceTensor x = poisoned({3, 8}, DType::kF32), weight = poisoned({9}, DType::kF32);
  DeviceTensor y = poisoned({3, 8}, DType::kF32);
  EXPECT_EQ(
      layer_norm(context(), {.x = x.view(), .weight = weight.view(), .bias = {}, .y = y.view()})
          .message(),
      "layer_norm: weight has H = 9, x has H = 8");
}

}  // namespace
}  // namespace heddle::ops
