// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/gated_rms_norm.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/device_fixture.h"
#include "ops/linear_attention/gated_rms_norm_reference.h"
#include "support/tensors.h"

namespace heddle::ops {

namespace {

constexpr float kCanary = 768.0f;  // in every dtype

class GatedRmsNormTest : public DeviceTest {
 protected:
  struct Inputs {
    std::vector<float> x, z, weight;
    int64_t T = 1;
    DType dtype = DType::kF32;
    GatedNormForm form = {};
    int64_t padding = 8;  // columns between two rows: 8 keep rows aligned for vector loads
  };

  // x, z and y are column ranges of one wider tensor each.
  std::vector<float> run(const Inputs& inputs, bool in_place, int num_threads) {
    const int64_t T = inputs.T;
    const auto V = static_cast<int64_t>(inputs.weight.size());
    const int64_t width = static_cast<int64_t>(inputs.x.size()) / T;
    const int64_t stride = width + inputs.padding;
    Tensor x_wide({T, stride}, DType::kF32), z_wide({T, stride}, DType::kF32);
    Tensor y_wide({T, stride}, DType::kF32), w({V}, DType::kF32);
    std::ranges::fill(x_wide.span<float>(), kCanary);
    std::ranges::fill(y_wide.span<float>(), kCanary);
    for (int64_t t = 0; t < T; ++t) {
      std::copy_n(inputs.x.begin() + t * width, width, x_wide.view().row<float>(t));
      std::copy_n(inputs.z.begin() + t * width, width, z_wide.view().row<float>(t));
    }
    std::ranges::copy(inputs.weight, w.span<float>().begin());
    DeviceTensor x = upload(testing::converted(x_wide.view(), inputs.dtype));
    const DeviceTensor z = upload(testing::converted(z_wide.view(), inputs.dtype));
    DeviceTensor y = upload(testing::converted(y_wide.view(), inputs.dtype));
    const DeviceTensor weight = upload(w);
    DeviceTensor& target = in_place ? x : y;
    const Status status =
        gated_rms_norm(context_on(num_threads, false),
                       {.x = {x.view().data, inputs.dtype, {T, width}, stride},
                        .z = {z.view().data, inputs.dtype, {T, width}, stride},
                        .weight = weight.view(),
                        .y = {target.view().data, inputs.dtype, {T, width}, stride},
                        .epsilon = static_cast<float>(inputs.form.epsilon),
                        .gate = inputs.form.gate,
                        .gate_first = inputs.form.gate_first,
                        .group_width = static_cast<int64_t>(inputs.form.group_width)});
    EXPECT_TRUE(status.ok()) << status.to_string();
    const Tensor after = testing::converted(download(target).view(), DType::kF32);
    std::vector<float> result;
    for (int64_t t = 0; t < T; ++t) {
      const float* row = after.view().row<float>(t);
      result.insert(result.end(), row, row + width);
      EXPECT_TRUE(std::all_of(row + width, row + stride, [](float c) { return c == kCanary; }));
    }
    return result;
  }

  // Standard normal numbers that `dtype` has.
  static std::vector<float> random_numbers(int64_t count, DType dtype, std::mt19937_64& random) {
    std::normal_distribution<float> normal;
    Tensor numbers({1, count}, DType::kF32);
    std::ranges::generate(numbers.span<float>(), [&] { return normal(random); });
    const Tensor rounded = testing::converted(numbers.view(), dtype);
    const Tensor back = testing::converted(rounded.view(), DType::kF32);
    return {back.span<float>().begin(), back.span<float>().end()};
  }
};

HEDDLE_ON_EVERY_DEVICE(GatedRmsNormTest);

TEST_P(GatedRmsNormTest, MatchesTheReferenceForAnyHeadWidth) {
  for (const DType dtype : activation_dtypes()) {
    for (const int64_t D : {1, 7, 16, 64, 96, 128, 300, 512, 1280, 4096, 4104, 16384, 16392}) {
      for (const int64_t T : {1, 33}) {
        if (D > 4104 && T > 1) continue;
        SCOPED_TRACE(fmt::format("{} D {} T {}", to_string(dtype), D, T));
        std::mt19937_64 random(static_cast<uint64_t>(D));
        Inputs inputs{.T = T, .dtype = dtype};
        inputs.x = random_numbers(T * 3 * D, dtype, random);
        inputs.z = random_numbers(T * 3 * D, dtype, random);
        const std::vector<float> shared = random_numbers(D, DType::kF32, random);
        const std::vector<float> wide = random_numbers(3 * D, DType::kF32, random);
        for (const GatedNormForm& form :
             {GatedNormForm{}, GatedNormForm{.gate = NormGate::kSigmoid},
              GatedNormForm{.gate_first = true},
              GatedNormForm{.gate_first = true, .group_width = static_cast<size_t>(D)},
              GatedNormForm{.group_width = static_cast<size_t>(D)}}) {
          inputs.form = form;
          inputs.weight = form.group_width == 0 ? shared : wide;
          const std::vector<double> truth =
              gated_rms_norm_reference(inputs.x, inputs.z, inputs.weight, form);
          for (const int64_t padding : {8, 5}) {
            inputs.padding = padding;
            const std::vector<float> y = run(inputs, false, 1);
            for (size_t i = 0; i < y.size(); ++i) {
              ASSERT_NEAR(
                  static_cast<double>(y[i]), truth[i],
                  3e-6 * (std::fabs(truth[i]) + 0.01) + rounding_of(dtype) * std::fabs(truth[i]))
                  << i << " padding " << padding;
            }
            EXPECT_EQ(y, run(inputs, true, 3)) << "in place, on three threads";
          }
        }
      }
    }
  }
}

// A row of (1, 2, 3, 4) gated by (0, 1, -1, 2), by hand: gate first in one group and in two, and
// behind the norm.
TEST_P(GatedRmsNormTest, GivesTheNumbersOfAnExampleByHand) {
  const struct {
    GatedNormForm form;
    std::vector<float> y;
  } rows[] = {
      {{.epsilon = 1e-5, .gate_first = true}, {0, 0.4038127f, -0.2228316f, 1.9460931f}},
      {{.epsilon = 1e-5, .gate_first = true, .group_width = 2},
       {0, 1.4142069f, -0.1608791f, 1.4050328f}},
      {{.epsilon = 1e-5}, {0, 0.5338893f, -0.2946104f, 2.5729713f}},
  };

  for (const auto& row : rows) {
    const std::vector<float> y =
        run({.x = {1, 2, 3, 4}, .z = {0, 1, -1, 2}, .weight = {1, 1, 1, 1}, .form = row.form},
            false, 1);
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(y[i], row.y[i], 3e-6f) << i;
  }
}

TEST_P(GatedRmsNormTest, SaysWhatDoesNotFit) {
  DeviceTensor x = poisoned({2, 12}, DType::kF32);
  const DeviceTensor weight = poisoned({8}, DType::kF32);
  const Status status = gated_rms_norm(
      context(), {.x = x.view(), .z = x.view(), .weight = weight.view(), .y = x.view()});
  EXPECT_THAT(status.to_string(), ::testing::HasSubstr("rows of 12, not a multiple of D = 8"));
  const Status uneven = gated_rms_norm(
      context(),
      {.x = x.view(), .z = x.view(), .weight = weight.view(), .y = x.view(), .group_width = 4});
  EXPECT_THAT(uneven.to_string(), ::testing::HasSubstr("V = 8, neither D = 4 nor x's 12"));
}

}  // namespace

}  // namespace heddle::ops
