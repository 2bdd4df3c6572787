// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "ops/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/simd/load_test.cpp"
#include <hwy/foreach_target.h>

#include "ops/simd/load-inl.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace simd = heddle::ops::simd::HWY_NAMESPACE;

void load_e4m3(const quant::E4M3* from, size_t count, float* to) {
  const hn::ScalableTag<float> d;
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    hn::StoreU(simd::LoadFloats(d, from + i), d, to + i);
  }
}

void store_e4m3(const float* from, size_t count, quant::E4M3* to) {
  const hn::ScalableTag<float> d;
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    simd::StoreFloats(hn::LoadU(d, from + i), d, to + i);
  }
}

}  // namespace heddle::ops::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace heddle::ops {

namespace {

HWY_EXPORT(load_e4m3);
HWY_EXPORT(store_e4m3);

// Every instruction set this machine has, best first.
class LoadE4M3Test : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }

  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

TEST_P(LoadE4M3Test, ReadsEveryCodeAsTheScalarConversionDoes) {
  std::vector<quant::E4M3> codes(257);  // loads need no alignment
  for (size_t i = 0; i < 256; ++i) codes[i + 1].bits = static_cast<uint8_t>(i);
  std::vector<float> values(256);
  HWY_DYNAMIC_DISPATCH(load_e4m3)(codes.data() + 1, values.size(), values.data());
  for (size_t i = 0; i < 256; ++i) {
    const float expected = quant::e4m3_to_float(static_cast<uint8_t>(i));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(values[i])) << "code " << i;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(expected))
          << "code " << i;
    }
  }
}

TEST_P(LoadE4M3Test, StoresAsTheScalarConversionDoes) {
  // Every upper half of a float with what lies just below, at and just above the middle of two.
  std::vector<float> values;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : {0u, 1u, 0xffffu}) {
      values.push_back(std::bit_cast<float>((upper << 16) | lower));
    }
  }
  std::vector<quant::E4M3> codes(values.size());
  HWY_DYNAMIC_DISPATCH(store_e4m3)(values.data(), values.size(), codes.data());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(codes[i].bits, quant::float_to_e4m3(values[i])) << values[i];
  }
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, LoadE4M3Test,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& target) { return hwy::TargetName(target.param); });

}  // namespace

}  // namespace heddle::ops

#endif  // HWY_ONCE
