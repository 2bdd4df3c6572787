// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <string>
#include <system_error>

#include <gtest/gtest.h>

#include "core/clock.h"
#include "core/dtype.h"
#include "core/no_thread.h"
#include "core/printable.h"
#include "core/remedy.h"
#include "core/shape_contract.h"
#include "core/tensor.h"

namespace heddle {
namespace {

Result<int> half_of(int value) {
  if (value % 2 != 0) return invalid_argument("odd");
  return value / 2;
}

Result<int> quarter_of(int value) {
  HEDDLE_ASSIGN_OR_RETURN(const int half, half_of(value));
  return half_of(half);
}

TEST(Status, CarriesCodeMessageAndContext) {
  EXPECT_TRUE(ok_status().ok());
  EXPECT_EQ(ok_status().to_string(), "OK");
  const Status status = not_found("no such file").with_context("model.safetensors");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.to_string(), "NOT_FOUND: model.safetensors: no such file");
  EXPECT_TRUE(ok_status().with_context("anything").ok());
}

TEST(Remedy, IsAddedWhereTheMessageHasNone) {
  EXPECT_TRUE(with_remedy(ok_status(), kDownloadAgain).ok());
  constexpr std::string_view kCases[][2] = {
      {"depth is 0, outside 1 to 64", "depth is 0, outside 1 to 64; download the file again"},
      {"depth is 0; write 1", "depth is 0; write 1"},
      {"layers are \"3;4\"", "layers are \"3;4\"; download the file again"},
      {"cut: download it again", "cut: download it again"}};
  for (const auto& [message, wanted] : kCases) {
    const Status status = with_remedy(data_loss(std::string(message)), kDownloadAgain);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_EQ(status.message(), wanted);
  }
  EXPECT_EQ(
      with_remedy(unimplemented("the normalizer X is not supported"), kDownloadAgain).message(),
      "the normalizer X is not supported; take a checkpoint without it");
}

TEST(Result, PassesValuesAndErrorsThrough) {
  EXPECT_EQ(*quarter_of(12), 3);
  EXPECT_EQ(quarter_of(6).status().message(), "odd");
  EXPECT_DEATH((void)half_of(3).value(), "odd");
}

TEST(NoThread, SaysWhatAUserCanChange) {
  const std::system_error refused(std::make_error_code(std::errc::resource_unavailable_try_again));
  for (const std::string purpose : {"for the engine", "for the runner", "to read the weights"}) {
    const Status status = no_thread(purpose, refused);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    for (const std::string& part : {"no thread " + purpose, std::string("--memory-fraction"),
                                    std::string("--max-total-tokens"), std::string("ulimit -v")}) {
      EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    }
  }
}

TEST(Printable, ReplacesControlsAndBytesThatAreNotUtf8AndCutsBetweenCharacters) {
  EXPECT_EQ(printable("é 中 😀", 80), "é 中 😀");
  EXPECT_EQ(printable("\x1b[31m\n\x7f", 80), "?[31m??");
  EXPECT_EQ(printable("a\xC2\x9B\xC2\xA0z", 80), "a?\u00A0z") << "CSI as one character";
  EXPECT_EQ(printable("\xFF\xC3(\xE4\xB8", 80), "?\?(?\?");
  EXPECT_EQ(printable("\xED\xA0\x80\xC0\x80", 80), "?????");
  EXPECT_EQ(printable("中文", 5), "中");
  EXPECT_EQ(printable("abc", 2), "ab");
  EXPECT_EQ(printable("é", 1), "");
}

TEST(Check, PrintsBothSides) {
  EXPECT_DEATH(HEDDLE_CHECK_EQ(1 + 1, 3), "1 \\+ 1 == 3: 2 against 3");
}

TEST(DTypes, ParsesItsOwnNamesAndListsThemOtherwise) {
  EXPECT_EQ(*parse_dtype("bf16"), DType::kBf16);
  EXPECT_EQ(*parse_dtype("half"), DType::kF16);
  EXPECT_EQ(*parse_dtype("float32"), DType::kF32);
  EXPECT_EQ(parse_dtype("fp64").status().message(),
            "dtype \"fp64\" is not known; use float32, bfloat16 or float16");
}

TEST(DTypes, PacksTwoInt4IntoAByte) {
  EXPECT_EQ(bytes_of(DType::kI4, 5), 3);
  EXPECT_EQ(bytes_of(DType::kBf16, 5), 10);
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(to_bf16(1.00585f).bits, 0x3f81);     // above the middle: up
  EXPECT_EQ(to_bf16(1.00390625f).bits, 0x3f80);  // exactly between: to the even one
  EXPECT_EQ(to_bf16(1.01171875f).bits, 0x3f82);
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_EQ(to_float(to_bf16(std::numeric_limits<float>::infinity())),
            std::numeric_limits<float>::infinity());
}

TEST(F16, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const F16 value{static_cast<uint16_t>(bits)};
    const float wide = to_float(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(to_float(to_f16(wide))));
    } else {
      ASSERT_EQ(to_f16(wide).bits, value.bits) << bits;
    }
  }
}

TEST(F16, RoundsToNearestEvenAtEveryBoundary) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = to_float(F16{static_cast<uint16_t>(bits)});
    const float high = to_float(F16{static_cast<uint16_t>(bits + 1)});
    const float middle = (low + high) / 2;  // exact in float
    const uint32_t even = (bits & 1u) == 0 ? bits : bits + 1;
    ASSERT_EQ(to_f16(middle).bits, even) << bits;
    ASSERT_EQ(to_f16(std::nextafter(middle, high)).bits, bits + 1) << bits;
    ASSERT_EQ(to_f16(std::nextafter(middle, low)).bits, bits) << bits;
  }
  EXPECT_EQ(to_f16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to_f16(65519.0f).bits, 0x7bff);
}

TEST(Shapes, RefuseProductsThatOverflow) {
  const int64_t huge[] = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_FALSE(checked_num_elements(huge).ok());
  const int64_t negative[] = {2, -1};
  EXPECT_FALSE(checked_num_elements(negative).ok());
  const int64_t good[] = {2, 3, 4};
  EXPECT_EQ(*checked_num_elements(good), 24);
}

TEST(Views, KnowWhetherTheirRowsAreDense) {
  Tensor tensor({4, 6}, DType::kF32);
  EXPECT_TRUE(tensor.view().dense());
  const TensorView columns(tensor.view().data, DType::kF32, Shape{4, 2}, 6);
  EXPECT_FALSE(columns.dense());
  EXPECT_EQ(columns.row<float>(2) - columns.row<float>(0), 12);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.view().data) % 64, 0u);
}

TEST(ShapeContract, NamesTheTensorAndTheDimensionThatDisagree) {
  const Tensor x({3, 64}, DType::kF32);
  const Tensor weight({32}, DType::kF32);
  const Tensor half({3, 64}, DType::kF16);
  Dim T{"T"}, H{"H"};
  EXPECT_EQ(ShapeContract("rms_norm")
                .expect("x", x.view(), {&T, &H}, kFloating)
                .expect("weight", weight.view(), {&H}, DType::kF32)
                .status()
                .message(),
            "rms_norm: weight has H = 32, x has H = 64");
  Dim W{"W", 4};
  EXPECT_EQ(
      ShapeContract("conv").expect("weight", weight.view(), {&W}, kFloating).status().message(),
      "conv: weight has W = 32, the contract has W = 4");
  EXPECT_EQ(ShapeContract("op").expect("x", x.view(), {&T}, kFloating).status().message(),
            "op: x has shape [3, 64], but 1 dimensions are needed");
  EXPECT_EQ(ShapeContract("op").expect("x", half.view(), {&T, &H}, DType::kF32).status().message(),
            "op: x has dtype float16, which is not taken here");
}

TEST(ManualClock, StandsStillUntilATestMovesIt) {
  ManualClock clock;
  EXPECT_EQ(clock.now_seconds(), 0);
  clock.advance_seconds(1.5);
  EXPECT_EQ(clock.now_seconds(), 1.5);
}

}  // namespace
}  // namespace heddle
