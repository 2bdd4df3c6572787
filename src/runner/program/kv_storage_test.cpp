// SPDX-License-Identifier: Apache-2.0
#include "runner/program/kv_storage.h"

#include <gtest/gtest.h>

namespace heddle::runner {
namespace {

using checkpoint::KvCacheScheme;

constexpr std::optional<DType> kAsWeights;

std::optional<DType> chosen(const KvRequest& request, KvCacheScheme scheme) {
  checkpoint::ModelConfig config;
  config.quantization = checkpoint::QuantizationConfig{.kv_cache = scheme};
  return choose_kv_dtype(request, config);
}

TEST(KvFormatTest, FollowsTheRequestThenTheCheckpoint) {
  EXPECT_EQ(chosen({}, KvCacheScheme::kNone), kAsWeights);
  EXPECT_EQ(chosen({}, KvCacheScheme::kFp8), DType::kF8E4M3);
  EXPECT_EQ(chosen({}, KvCacheScheme::kOther), kAsWeights);
  EXPECT_EQ(chosen({.asked = DType::kBf16}, KvCacheScheme::kFp8), DType::kBf16);
  EXPECT_EQ(chosen({.asked = DType::kF8E4M3}, KvCacheScheme::kNone), DType::kF8E4M3);
  const checkpoint::ModelConfig plain;
  EXPECT_EQ(choose_kv_dtype({}, plain), kAsWeights);
}

TEST(KvFormatTest, RoundsNothingUnaskedInFloat32Runs) {
  EXPECT_EQ(chosen({.float32_run = true}, KvCacheScheme::kFp8), kAsWeights);
  EXPECT_EQ(chosen({.asked = DType::kF8E4M3, .float32_run = true}, KvCacheScheme::kNone),
            DType::kF8E4M3);
}

}  // namespace
}  // namespace heddle::runner
