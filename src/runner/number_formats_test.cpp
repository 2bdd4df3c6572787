// SPDX-License-Identifier: Apache-2.0
#include "runner/number_formats.h"

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
  for (const char* name : {"none", "fp8", "int8", "int4", "int4-g64", "int4-g32"}) {
    EXPECT_EQ(to_string(*parse_quantization(name)), name);
  }
  EXPECT_EQ(*parse_run_dtype("half"), RunDtype::kFloat16);
  EXPECT_EQ(*parse_kv_cache_dtype("bf16"), KvCacheDtype::kBfloat16);
  EXPECT_EQ(to_string(*parse_kv_cache_dtype("fp8")), "fp8_e4m3");
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
  EXPECT_FALSE(rounding_of(Quantization::kNone).has_value());
  EXPECT_EQ(rounding_of(Quantization::kFp8)->scheme, quant::Scheme::kFp8);
  EXPECT_EQ(rounding_of(Quantization::kInt4)->group_size, 128);
  EXPECT_EQ(rounding_of(Quantization::kInt4Group64)->group_size, 64);
  EXPECT_EQ(rounding_of(Quantization::kInt4Group32)->group_size, 32);
}

}  // namespace
}  // namespace heddle::runner
