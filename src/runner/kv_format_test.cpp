// SPDX-License-Identifier: Apache-2.0
#include "runner/kv_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::runner {
namespace {

using checkpoint::KvCacheScheme;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::optional<DType> kAsWeights;

std::optional<DType> chosen(const KvRequest& request, KvCacheScheme scheme, bool latents = false) {
  checkpoint::ModelConfig config;
  config.quantization = checkpoint::QuantizationConfig{.kv_cache = scheme};
  models::CacheNeeds needs{.num_kv_layers = 2, .num_kv_heads = 1, .head_dim = 8};
  if (latents) needs.kv_value_dim = 0;
  const Result<std::optional<DType>> dtype = choose_kv_dtype(request, config, needs);
  EXPECT_TRUE(dtype.ok()) << dtype.status().to_string();
  return dtype.ok() ? *dtype : DType::kU8;
}

TEST(KvFormatTest, KnowsTheNamesOfFormats) {
  EXPECT_EQ(*parse_kv_dtype("auto"), kAsWeights);
  EXPECT_EQ(*parse_kv_dtype("fp8_e4m3"), DType::kF8E4M3);
  EXPECT_EQ(*parse_kv_dtype("bfloat16"), DType::kBf16);
  EXPECT_EQ(*parse_kv_dtype("fp16"), DType::kF16);
  EXPECT_EQ(*parse_kv_dtype("float32"), DType::kF32);
  EXPECT_THAT(parse_kv_dtype("int8").status().message(),
              AllOf(HasSubstr("\"int8\""), HasSubstr("fp8_e4m3")));
  EXPECT_THAT(parse_kv_dtype("fp8_e5m2").status().message(), HasSubstr("use fp8_e4m3"));
}

TEST(KvFormatTest, FollowsTheRequestThenTheCheckpoint) {
  EXPECT_EQ(chosen({}, KvCacheScheme::kNone), kAsWeights);
  EXPECT_EQ(chosen({}, KvCacheScheme::kFp8), DType::kF8E4M3);
  EXPECT_EQ(chosen({}, KvCacheScheme::kOther), kAsWeights);
  EXPECT_EQ(chosen({.asked = DType::kBf16}, KvCacheScheme::kFp8), DType::kBf16);
  EXPECT_EQ(chosen({.asked = DType::kF8E4M3}, KvCacheScheme::kNone), DType::kF8E4M3);
  const checkpoint::ModelConfig plain;
  EXPECT_EQ(*choose_kv_dtype({}, plain, {.num_kv_layers = 1}), kAsWeights);
}

TEST(KvFormatTest, RoundsNothingUnaskedInFloat32Runs) {
  EXPECT_EQ(chosen({.float32_run = true}, KvCacheScheme::kFp8), kAsWeights);
  EXPECT_EQ(chosen({.asked = DType::kF8E4M3, .float32_run = true}, KvCacheScheme::kNone),
            DType::kF8E4M3);
}

TEST(KvFormatTest, RefusesFp8ForLatents) {
  EXPECT_EQ(chosen({}, KvCacheScheme::kFp8, /*latents=*/true), kAsWeights);
  EXPECT_EQ(chosen({.asked = DType::kBf16}, KvCacheScheme::kNone, true), DType::kBf16);
  checkpoint::ModelConfig config;
  config.architecture = "DeepseekV3ForCausalLM";
  const models::CacheNeeds latents{
      .num_kv_layers = 1, .num_kv_heads = 1, .head_dim = 8, .kv_value_dim = 0};
  EXPECT_THAT(choose_kv_dtype({.asked = DType::kF8E4M3}, config, latents).status().message(),
              AllOf(HasSubstr("DeepseekV3ForCausalLM keeps latents"), HasSubstr("use auto")));
}

}  // namespace
}  // namespace heddle::runner
