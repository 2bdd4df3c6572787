// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/gated_rms_norm.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/linear_attention/gated_rms_norm_reference.h"

namespace heddle::ops {

namespace {

constexpr float kCanary = 777.0f;

// x, z and y are column ranges of one wider tensor each.
std::vector<float> run(const std::vector<float>& x, const std::vector<float>& z,
                       const std::vector<float>& weight, int64_t T, bool in_place, int num_threads,
                       NormGate gate) {
  const auto D = static_cast<int64_t>(weight.size());
  const int64_t width = static_cast<int64_t>(x.size()) / T;
  const int64_t stride = width + 5;
  Tensor x_wide({T, stride}, DType::kF32), z_wide({T, stride}, DType::kF32);
  Tensor y_wide({T, stride}, DType::kF32), w({D}, DType::kF32);
  std::ranges::fill(x_wide.span<float>(), kCanary);
  std::ranges::fill(y_wide.span<float>(), kCanary);
  for (int64_t t = 0; t < T; ++t) {
    std::copy_n(x.begin() + t * width, width, x_wide.view().row<float>(t));
    std::copy_n(z.begin() + t * width, width, z_wide.view().row<float>(t));
  }
  std::ranges::copy(weight, w.span<float>().begin());
  Tensor& target = in_place ? x_wide : y_wide;
  device::ThreadPool pool(num_threads);
  CpuContext context(pool);
  const Status status =
      gated_rms_norm(context, {.x = {x_wide.view().data, DType::kF32, {T, width}, stride},
                               .z = {z_wide.view().data, DType::kF32, {T, width}, stride},
                               .weight = w.view(),
                               .y = {target.view().data, DType::kF32, {T, width}, stride},
                               .epsilon = 1e-6f,
                               .gate = gate});
  EXPECT_TRUE(status.ok()) << status.to_string();
  std::vector<float> y;
  for (int64_t t = 0; t < T; ++t) {
    const float* row = target.view().row<float>(t);
    y.insert(y.end(), row, row + width);
    EXPECT_TRUE(std::all_of(row + width, row + stride, [](float c) { return c == kCanary; }));
  }
  return y;
}

TEST(GatedRmsNormTest, MatchesTheReferenceForAnyHeadWidth) {
  for (const int64_t D : {1, 7, 16, 64, 96, 128}) {
    for (const int64_t T : {1, 33}) {
      SCOPED_TRACE(fmt::format("D {} T {}", D, T));
      std::mt19937_64 random(static_cast<uint64_t>(D));
      std::normal_distribution<float> normal;
      std::vector<float> x(static_cast<size_t>(T * 3 * D)), z(x.size()),
          weight(static_cast<size_t>(D));
      for (std::vector<float>* values : {&x, &z, &weight}) {
        std::ranges::generate(*values, [&] { return normal(random); });
      }
      for (const NormGate gate : {NormGate::kSilu, NormGate::kSigmoid}) {
        const std::vector<float> y = run(x, z, weight, T, false, 1, gate);
        const std::vector<double> truth = gated_rms_norm_reference(x, z, weight, 1e-6, gate);
        for (size_t i = 0; i < y.size(); ++i) {
          ASSERT_NEAR(static_cast<double>(y[i]), truth[i], 3e-6 * (std::fabs(truth[i]) + 0.01))
              << i;
        }
        EXPECT_EQ(y, run(x, z, weight, T, true, 3, gate)) << "in place, on three threads";
      }
    }
  }
}

TEST(GatedRmsNormTest, SaysWhatDoesNotFit) {
  device::ThreadPool pool(1);
  CpuContext context(pool);
  Tensor x({2, 12}, DType::kF32), weight({8}, DType::kF32);
  const Status status = gated_rms_norm(
      context, {.x = x.view(), .z = x.view(), .weight = weight.view(), .y = x.view()});
  EXPECT_THAT(status.to_string(), ::testing::HasSubstr("rows of 12, not a multiple of D = 8"));
}

}  // namespace

}  // namespace heddle::ops
