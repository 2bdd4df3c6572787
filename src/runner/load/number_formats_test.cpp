// SPDX-License-Identifier: Apache-2.0
#include "runner/load/number_formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::runner {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(NumberFormatsTest, KnowTheirNames) {
  for (const char* name : {"auto", "safetensors", "dummy"}) {
    EXPECT_EQ(to_string(*parse_load_format(name)), name);
  }
  for (const char* name : {"auto", "float32", "bfloat16", "float16"}) {
    EXPECT_EQ(to_string(*parse_run_dtype(name)), name);
    EXPECT_EQ(to_string(*parse_kv_cache_dtype(name)), name);
  }
  for (const char* name : {"none", "fp8", "fp8-block", "int8", "int4", "int4-g64", "int4-g32",
                           "mxfp4", "awq", "gptq", "compressed-tensors", "modelopt"}) {
    EXPECT_EQ(to_string(*parse_quantization(name)), name);
  }
  EXPECT_EQ(*parse_run_dtype("half"), RunDtype::kFloat16);
  EXPECT_EQ(*parse_kv_cache_dtype("bf16"), KvCacheDtype::kBfloat16);
  EXPECT_EQ(to_string(*parse_kv_cache_dtype("fp8")), "fp8_e4m3");
  EXPECT_EQ(*parse_quantization("awq_marlin"), Quantization::kAwq);
  EXPECT_EQ(*parse_quantization("w8a8_int8"), Quantization::kInt8);
}

TEST(NumberFormatsTest, OthersAreRefusedWithTheNamesThereAre) {
  EXPECT_EQ(parse_load_format("pt").status().message(),
            "load_format \"pt\" is not known; use auto, safetensors or dummy");
  EXPECT_EQ(parse_run_dtype("fp64").status().message(),
            "dtype \"fp64\" is not known; use auto, float32, bfloat16 or float16");
  EXPECT_THAT(parse_kv_cache_dtype("int8").status().message(),
              AllOf(HasSubstr("\"int8\""), HasSubstr("fp8_e4m3")));
  EXPECT_THAT(parse_kv_cache_dtype("fp8_e5m2").status().message(), HasSubstr("use fp8_e4m3"));
  EXPECT_THAT(parse_quantization("int2").status().message(), HasSubstr("int4-g32"));
}

TEST(NumberFormatsTest, MeanDtypesAndGroups) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    EXPECT_EQ(dtype_of(run_dtype(dtype)), dtype);
    EXPECT_EQ(dtype_of(kv_cache_dtype(dtype)), dtype);
  }
  EXPECT_EQ(dtype_of(kv_cache_dtype(DType::kF8E4M3)), DType::kF8E4M3);
  EXPECT_EQ(dtype_of(RunDtype::kAuto), std::nullopt);
  EXPECT_EQ(dtype_of(KvCacheDtype::kAuto), std::nullopt);
  const auto rounding = [](Quantization quantization) {
    return rounding_of(quantization, {}, /*dummy_weights=*/false).value();
  };
  EXPECT_FALSE(rounding(Quantization::kNone).has_value());
  EXPECT_EQ(rounding(Quantization::kFp8)->scheme, quant::Scheme::kFp8);
  EXPECT_EQ(rounding(Quantization::kFp8Block)->scheme, quant::Scheme::kFp8Block);
  EXPECT_EQ(rounding(Quantization::kMxfp4)->scheme, quant::Scheme::kMxfp4);
  EXPECT_EQ(rounding(Quantization::kInt4)->group_size, 128);
  EXPECT_EQ(rounding(Quantization::kInt4Group64)->group_size, 64);
  EXPECT_EQ(rounding(Quantization::kInt4Group32)->group_size, 32);
}

// A checkpoint's own format is accepted; the error for another one names both.
TEST(NumberFormatsTest, AgreeWithTheCheckpoint) {
  using checkpoint::QuantMethod;
  const auto rounding = [](Quantization asked, std::optional<QuantMethod> stored,
                           bool dummy_weights = false) {
    checkpoint::ModelConfig config;
    if (stored) config.quantization = checkpoint::QuantizationConfig{.method = *stored};
    return rounding_of(asked, config, dummy_weights);
  };
  for (const auto& [asked, stored] :
       {std::pair(Quantization::kAwq, QuantMethod::kAwq),
        std::pair(Quantization::kGptq, QuantMethod::kGptq),
        std::pair(Quantization::kFp8, QuantMethod::kFp8),
        std::pair(Quantization::kFp8Block, QuantMethod::kFp8),
        std::pair(Quantization::kInt8, QuantMethod::kInt8),
        std::pair(Quantization::kCompressedTensors, QuantMethod::kCompressedTensors),
        std::pair(Quantization::kMxfp4, QuantMethod::kMxfp4),
        std::pair(Quantization::kModelOpt, QuantMethod::kModelOpt),
        std::pair(Quantization::kNone, QuantMethod::kGptq)}) {
    const auto found = rounding(asked, stored);
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_FALSE(found->has_value());
  }
  EXPECT_THAT(rounding(Quantization::kAwq, QuantMethod::kGptq).status().message(),
              HasSubstr("--quantization is awq, but the checkpoint is quantised already, as gptq; "
                        "leave the option out"));
  EXPECT_FALSE(rounding(Quantization::kFp8, QuantMethod::kCompressedTensors).ok());
  EXPECT_FALSE(rounding(Quantization::kInt4, QuantMethod::kAwq).ok());
  EXPECT_THAT(rounding(Quantization::kAwq, std::nullopt).status().message(),
              HasSubstr("--quantization is awq, but config.json has no such quantization_config"));
  EXPECT_TRUE(rounding(Quantization::kFp8, QuantMethod::kFp8, /*dummy_weights=*/true)->has_value());
  EXPECT_TRUE(rounding(Quantization::kAwq, QuantMethod::kAwq, /*dummy_weights=*/true).ok());
  EXPECT_TRUE(
      rounding(Quantization::kMxfp4, QuantMethod::kMxfp4, /*dummy_weights=*/true)->has_value());
}

}  // namespace
}  // namespace heddle::runner
