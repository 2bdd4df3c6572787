// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <numbers>
#include <vector>

#include <gtest/gtest.h>

#include "ops/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/simd/math_test.cpp"
#include <hwy/foreach_target.h>

#include "ops/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace math = heddle::ops::simd::HWY_NAMESPACE;

enum class Function { kExp, kSigmoid, kSilu, kSoftplus, kGelu, kTanh };

void apply(int function, const float* x, float* y, size_t count) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i + lanes <= count; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    switch (static_cast<Function>(function)) {
      case Function::kExp:
        hn::StoreU(math::Exp(d, v), d, y + i);
        break;
      case Function::kSigmoid:
        hn::StoreU(math::Sigmoid(d, v), d, y + i);
        break;
      case Function::kSilu:
        hn::StoreU(math::Silu(d, v), d, y + i);
        break;
      case Function::kSoftplus:
        hn::StoreU(math::Softplus(d, v), d, y + i);
        break;
      case Function::kGelu:
        hn::StoreU(math::Gelu(d, v), d, y + i);
        break;
      case Function::kTanh:
        hn::StoreU(math::Tanh(d, v), d, y + i);
        break;
    }
  }
}

}  // namespace heddle::ops::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace heddle::ops {

namespace {

HWY_EXPORT(apply);

struct Case {
  const char* name;
  double (*reference)(double);
  double max_ulp;
};

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double silu(double x) { return x / (1.0 + std::exp(-x)); }

double softplus(double x) { return x > 20.0 ? x : std::log1p(std::exp(x)); }

double gelu(double x) {
  return x / (1.0 + std::exp(-2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

const Case kCases[] = {{"exp", [](double x) { return std::exp(x); }, 1.5},
                       {"sigmoid", sigmoid, 3.0},
                       {"silu", silu, 3.0},
                       {"softplus", softplus, 4.0},
                       {"gelu", gelu, 4.0},
                       {"tanh", [](double x) { return std::tanh(x); }, 4.0}};
constexpr int kFunctions = std::size(kCases);

// Distance in units of the last place of the true value; denormals count in units of 2^-149.
double ulp_distance(float value, double truth) {
  if (std::fabs(truth) > static_cast<double>(std::numeric_limits<float>::max())) {
    return std::isinf(value) ? 0.0 : 1e9;
  }
  int exponent = 0;
  std::frexp(truth, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 24, -149));
  return std::fabs(static_cast<double>(value) - truth) / unit;
}

// Every instruction set this machine has, best first.
class SimdMathTest : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }

  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }

  static std::vector<float> run(int function, std::vector<float> x) {
    const size_t count = x.size();
    x.resize(count + 64);
    std::vector<float> y(x.size());
    HWY_DYNAMIC_DISPATCH(apply)(function, x.data(), y.data(), (count + 63) / 64 * 64);
    y.resize(count);
    return y;
  }
};

TEST_P(SimdMathTest, StaysWithinItsUlpBoundsOverTheWholeRange) {
  std::vector<float> x;
  for (float v = -110.0f; v < 95.0f; v += 0.00173f) x.push_back(v);
  for (float v = 1e-30f; v < 1e4f; v *= 1.0137f) {
    x.push_back(v);
    x.push_back(-v);
  }
  for (int function = 0; function < kFunctions; ++function) {
    const std::vector<float> y = run(function, x);
    double worst = 0;
    float worst_x = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      // Sigmoid and silu flush to zero where e^-x overflows: absolute error below 1e-36 there.
      if ((function == 1 || function == 2) && x[i] < -87.0f) {
        EXPECT_LT(std::fabs(y[i]), 1e-35f);
        continue;
      }
      if (kCases[function].reference == gelu && x[i] < -1.0f) {
        EXPECT_NEAR(y[i], gelu(static_cast<double>(x[i])), 2e-7);
        continue;
      }
      const double distance =
          ulp_distance(y[i], kCases[function].reference(static_cast<double>(x[i])));
      if (!(distance <= worst)) {
        worst = distance;
        worst_x = x[i];
      }
    }
    EXPECT_LE(worst, kCases[function].max_ulp) << kCases[function].name << " at x = " << worst_x;
  }
}

TEST_P(SimdMathTest, HandlesTheEndsOfTheNumberLine) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x{-inf, inf, 0.0f, -1e4f, 1e4f, -104.1f, 88.8f};
  const std::vector<float> exp = run(0, x);
  EXPECT_EQ(exp, (std::vector<float>{0.0f, inf, 1.0f, 0.0f, inf, 0.0f, inf}));
  const std::vector<float> sigmoid_y = run(1, x);
  EXPECT_EQ(sigmoid_y, (std::vector<float>{0.0f, 1.0f, 0.5f, 0.0f, 1.0f, 0.0f, 1.0f}));
  const std::vector<float> silu_y = run(2, {-1e4f, 1e4f, 0.0f, inf});
  EXPECT_EQ(silu_y, (std::vector<float>{0.0f, 1e4f, 0.0f, inf}));
  const std::vector<float> softplus_y = run(3, {-inf, inf, -1e4f, 1e4f});
  EXPECT_EQ(softplus_y, (std::vector<float>{0.0f, inf, 0.0f, 1e4f}));
}

TEST_P(SimdMathTest, PassesNaNThrough) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int function = 0; function < kFunctions; ++function) {
    EXPECT_TRUE(std::isnan(run(function, {nan})[0])) << kCases[function].name;
  }
}

TEST_P(SimdMathTest, GivesTheSameBitsInEveryLane) {
  for (int function = 0; function < kFunctions; ++function) {
    const std::vector<float> y = run(function, std::vector<float>(67, 1.2345f));
    EXPECT_TRUE(std::all_of(y.begin(), y.end(), [&](float v) { return v == y[0]; }));
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, SimdMathTest,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const ::testing::TestParamInfo<int64_t>& target) {
                           return std::string(hwy::TargetName(target.param));
                         });

}  // namespace

}  // namespace heddle::ops

#endif  // HWY_ONCE
