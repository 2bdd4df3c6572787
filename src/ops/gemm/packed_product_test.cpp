// SPDX-License-Identifier: Apache-2.0
// Products with quantised weights, every kernel against the dequantised matrix.
#include <cmath>
#include <set>
#include <span>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/gemm/bf16_product.h"
#include "ops/gemm/fp8_bf16_product.h"
#include "ops/gemm/grouped_linear.h"
#include "ops/gemm/int8_product.h"
#include "ops/gemm/linear.h"
#include "ops/gemm/linear_reference.h"
#include "ops/gemm/packed_fixture.h"
#include "ops/gemm/product_fixture.h"
#include "ops/gemm/row_dot.h"
#include "ops/simd/targets.h"

// clang-format off
#include <hwy/targets.h>  // after targets.h, which says what is compiled
// clang-format on

namespace heddle::ops {

namespace {

using quant::Scheme;
using testing::GuardedTensor;
using testing::PackedTensor;
using testing::random_matrix;

constexpr Scheme kSchemes[] = {Scheme::kInt4, Scheme::kInt8, Scheme::kFp8, Scheme::kFp8Block};

Status run_linear(CpuContext& context, const TensorView& x, const TensorView& weight,
                  const MutableTensorView& y, const TensorView& bias = {}) {
  std::vector<std::byte> workspace(static_cast<size_t>(
      linear_workspace_bytes(context, x.shape[0], x.shape[1], y.shape[1], weight.dtype)));
  return linear(context, {.x = x, .weight = weight, .bias = bias, .y = y, .workspace = workspace});
}

enum class Rounding : uint8_t {
  kNone,
  kInt8,  // x to 1/254 of the largest of its 64 columns: errors are taken relative to the norms
  kBf16,  // every number of x by 2^-9 at most
};

Rounding rounding_of(const PackedTensor& weight, const ProductInstructions& instructions) {
  if (instructions.int8 && int8_product_takes(weight.rows())) return Rounding::kInt8;
  const bool bf16 = instructions.bf16 && fp8_dot_bf16_takes(weight.rows());
  return bf16 ? Rounding::kBf16 : Rounding::kNone;
}

void expect_near(const LinearReference& truth, const TensorView& x, const TensorView& w,
                 const TensorView& y, Rounding rounding) {
  constexpr double kInt8Rounding = 1.0 / 200;
  constexpr double kBf16Rounding = 0x1p-9;
  const int64_t K = x.shape[1];
  for (int64_t t = 0; t < y.shape[0]; ++t) {
    double x_norm = 0;
    for (int64_t k = 0; k < K; ++k) x_norm += std::pow(element_of(x, t, k), 2);
    for (int64_t n = 0; n < y.shape[1]; ++n) {
      double w_norm = 0;
      for (int64_t k = 0; k < K; ++k) w_norm += std::pow(element_of(w, n, k), 2);
      const auto i = static_cast<size_t>(t * y.shape[1] + n);
      const double limit =
          truth.magnitude[i] * static_cast<double>(K + 8) * 0x1p-24 +
          (rounding == Rounding::kBf16 ? truth.magnitude[i] * kBf16Rounding : 0) +
          (rounding == Rounding::kInt8
               ? kInt8Rounding * std::sqrt(x_norm * w_norm / static_cast<double>(K)) * 4
               : 0);
      ASSERT_TRUE(std::fabs(element_of(y, t, n) - truth.y[i]) <= limit + 1e-30) << fmt::format(
          "y[{}, {}] = {}, expected {}, limit {}", t, n, element_of(y, t, n), truth.y[i], limit);
    }
  }
}

// The forms that only the host reads: those of GGUF's blocks.
std::vector<testing::PackedForm> block_forms() {
  const std::vector<testing::PackedForm> forms = testing::packed_forms(/*on_host=*/true);
  return {forms.begin() + std::ssize(testing::packed_forms()), forms.end()};
}

// Runs once per instruction set this machine has.
class PackedProductTest : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }

  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }

  device::ThreadPool pool_{2};
  const ProductInstructions instructions_ = testing::instructions(/*bf16=*/true);
};

// Skipped where this machine cannot run one of the kernels that the tests above are meant to run.
TEST(PackedProductKernelsTest, EveryRoundingKernelRunsOnThisMachine) {
  std::set<Rounding> met;
  for (const Scheme scheme : kSchemes) {
    met.insert(
        rounding_of(PackedTensor({3, 128}, scheme, 64, 1, true), testing::instructions(true)));
  }
  if (!met.contains(Rounding::kInt8)) {
    GTEST_SKIP() << "this CPU has no 8-bit dot products (AVX512-VNNI): their kernel is not tested";
  }
  if (!met.contains(Rounding::kBf16)) {
    GTEST_SKIP() << "this CPU has no bf16 products by table (AVX512-BF16 and AVX512-VBMI): the FP8 "
                    "kernel with them is not tested";
  }
}

TEST_P(PackedProductTest, MatchesTheDequantisedMatrixInEveryMode) {
  uint64_t seed = 1;
  for (const Scheme scheme : kSchemes) {
    for (const auto& [K, group] : {std::pair<int64_t, int64_t>{32, 32},
                                   {160, 32},
                                   {448, 64},
                                   {640, 128},
                                   {1312, 32},
                                   {512, 256},
                                   {1152, 384},
                                   {448, 448}}) {
      const PackedTensor rounding({37, K}, scheme, group, ++seed, true);
      const PackedTensor precise({37, K}, scheme, group, seed, false);
      const Tensor w = precise.dequantised();
      for (const int64_t T : {1, 2, 5, 33}) {
        GuardedTensor x({T, K}, DType::kF32, 3);
        GuardedTensor bias({37}, DType::kF32);
        x.randomize(seed + 100);
        bias.randomize(seed + 200);
        const LinearReference truth = linear_reference(x.view(), w.view(), bias.view());
        for (const auto& [exact, rounds] : {std::pair(true, true), {false, true}, {false, false}}) {
          SCOPED_TRACE(fmt::format("scheme {}, K = {}, group {}, T = {}, exact {}, rounds {}",
                                   static_cast<int>(scheme), K, group, T, exact, rounds));
          CpuContext context(pool_, exact, instructions_);
          GuardedTensor y({T, 37}, DType::kF32, 5);
          const PackedTensor& weight = rounds ? rounding : precise;
          const Status status = run_linear(context, x.view(), weight.view(), y.view(), bias.view());
          ASSERT_TRUE(status.ok()) << status.message();
          expect_near(truth, x.view(), w.view(), y.view(), rounding_of(weight, context.products));
          if (HasFatalFailure()) return;
          EXPECT_TRUE(y.padding_untouched());
        }
      }
    }
  }
}

TEST_P(PackedProductTest, ExactModeGivesTheBitsOfTheDequantisedMatrix) {
  CpuContext context(pool_, true, instructions_);
  for (const Scheme scheme : kSchemes) {
    const PackedTensor weight({53, 416}, scheme, 32, 5, true);
    const Tensor w = weight.dequantised();
    GuardedTensor x({7, 416}, DType::kF32);
    x.randomize(9);
    GuardedTensor y({7, 53}, DType::kF32), expected({7, 53}, DType::kF32);
    ASSERT_TRUE(run_linear(context, x.view(), weight.view(), y.view()).ok());
    ASSERT_TRUE(run_linear(context, x.view(), w.view(), expected.view()).ok());
    for (int64_t i = 0; i < 7 * 53; ++i) {
      ASSERT_EQ(y.view().as<float>()[i], expected.view().as<float>()[i]);
    }
  }
}

TEST_P(PackedProductTest, ARowAloneGivesItsBitsAmongOthers) {
  CpuContext context(pool_, false, instructions_);
  int num_compared = 0;
  for (const Scheme scheme : kSchemes) {
    for (const int64_t group : {32, 128}) {
      const PackedTensor weight({41, 384}, scheme, group, 6, true);
      // The kernels that widen weights to fp32 promise it in exact mode only.
      if (rounding_of(weight, context.products) == Rounding::kNone) continue;
      ++num_compared;
      GuardedTensor x({7, 384}, DType::kF32);
      x.randomize(10);
      GuardedTensor together({7, 41}, DType::kF32);
      ASSERT_TRUE(run_linear(context, x.view(), weight.view(), together.view()).ok());
      for (int64_t t = 0; t < 7; ++t) {
        GuardedTensor alone({1, 41}, DType::kF32);
        const TensorView row(x.view().row<float>(t), DType::kF32, {1, 384});
        ASSERT_TRUE(run_linear(context, row, weight.view(), alone.view()).ok());
        for (int64_t n = 0; n < 41; ++n) {
          ASSERT_EQ(alone.view().as<float>()[n], together.view().row<float>(t)[n]);
        }
      }
    }
  }
  if (num_compared == 0) {
    GTEST_SKIP() << "this CPU has neither 8-bit dot products nor bf16 products by table";
  }
}

TEST_P(PackedProductTest, ANanInARowOfXStaysInItsRow) {
  CpuContext context(pool_, false, instructions_);
  for (const Scheme scheme : kSchemes) {
    const PackedTensor weight({24, 128}, scheme, 32, 6, true);
    GuardedTensor x({2, 128}, DType::kF32);
    x.randomize(10);
    x.view().as<float>()[70] = testing::kNaN;
    GuardedTensor y({2, 24}, DType::kF32);
    ASSERT_TRUE(run_linear(context, x.view(), weight.view(), y.view()).ok());
    for (int64_t n = 0; n < 24; ++n) {
      EXPECT_TRUE(std::isnan(y.view().row<float>(0)[n]));
      EXPECT_FALSE(std::isnan(y.view().row<float>(1)[n]));
    }
  }
}

TEST_P(PackedProductTest, AWeightOfSeveralPartsIsOneProduct) {
  CpuContext context(pool_, false, instructions_);
  const PackedTensor first({16, 96}, Scheme::kInt4, 32, 1, false);
  const PackedTensor second({9, 96}, Scheme::kFp8, 32, 2, false);
  GuardedTensor plain({3, 96}, DType::kBf16);
  plain.randomize(3);
  quant::PackedWeight all;
  all.parts.push_back({.first_row = 0, .num_rows = 16, .packed = first.rows()});
  all.parts.push_back({.first_row = 16, .num_rows = 3, .plain = plain.view()});
  all.parts.push_back({.first_row = 19, .num_rows = 9, .packed = second.rows()});
  TensorView weight(nullptr, DType::kPacked, {28, 96});
  weight.packed = &all;
  for (const int64_t T : {1, 40}) {
    GuardedTensor x({T, 96}, DType::kF32);
    x.randomize(4);
    GuardedTensor y({T, 28}, DType::kF32, 2);
    ASSERT_TRUE(run_linear(context, x.view(), weight, y.view()).ok());
    const Tensor first_floats = first.dequantised();
    const Tensor second_floats = second.dequantised();
    const auto expected = [&](int64_t row, int64_t n) {
      double sum = 0;
      for (int64_t k = 0; k < 96; ++k) {
        const double value = n < 16   ? element_of(first_floats.view(), n, k)
                             : n < 19 ? element_of(plain.view(), n - 16, k)
                                      : element_of(second_floats.view(), n - 19, k);
        sum += element_of(x.view(), row, k) * value;
      }
      return sum;
    };
    for (int64_t t = 0; t < T; ++t) {
      for (int64_t n = 0; n < 28; ++n) {
        // The plain part may round x to bf16.
        ASSERT_NEAR(y.view().row<float>(t)[n], expected(t, n), n >= 16 && n < 19 ? 0.05 : 1e-4);
      }
    }
  }
}

TEST_P(PackedProductTest, ExpertsAreQuantisedAlikeOrRefused) {
  CpuContext context(pool_, false, instructions_);
  constexpr int64_t E = 3, N = 40, K = 128, R = 7;
  const int32_t offsets[] = {0, 2, 2, 7};
  const TensorView row_offsets(offsets, DType::kI32, {E + 1});
  GuardedTensor x({R, K}, DType::kF32);
  x.randomize(12);
  std::vector<std::byte> workspace(
      static_cast<size_t>(grouped_linear_workspace_bytes(context, R, E, K, DType::kPacked)));
  for (const Scheme scheme : kSchemes) {
    const PackedTensor weight({E, N, K}, scheme, 32, 4, false);
    const Tensor w = weight.dequantised();
    GuardedTensor y({R, N}, DType::kF32);
    const Status status = grouped_linear(context, {.x = x.view(),
                                                   .weight = weight.view(),
                                                   .row_offsets = row_offsets,
                                                   .y = y.view(),
                                                   .workspace = workspace});
    ASSERT_TRUE(status.ok()) << status.message();
    for (int64_t r = 0; r < R; ++r) {
      const int64_t e = r < 2 ? 0 : 2;
      for (int64_t n = 0; n < N; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < K; ++k) {
          sum += element_of(x.view(), r, k) *
                 static_cast<double>(w.span<float>()[static_cast<size_t>((e * N + n) * K + k)]);
        }
        ASSERT_NEAR(y.view().row<float>(r)[n], sum, 1e-4);
      }
    }
  }
  const PackedTensor one({1, N, K}, Scheme::kInt4, 32, 4, false);
  const PackedTensor two({2, N, K}, Scheme::kInt8, 32, 4, false);
  quant::PackedWeight mixed;
  mixed.parts.push_back({.num_rows = N, .packed = one.rows()});
  mixed.parts.push_back({.first_row = N, .num_rows = 2 * N, .packed = two.rows()});
  TensorView weight(nullptr, DType::kPacked, {E, N, K});
  weight.packed = &mixed;
  GuardedTensor y({R, N}, DType::kF32);
  const Status status = grouped_linear(context, {.x = x.view(),
                                                 .weight = weight,
                                                 .row_offsets = row_offsets,
                                                 .y = y.view(),
                                                 .workspace = workspace});
  EXPECT_NE(status.message().find("all experts must be quantised alike"), std::string::npos)
      << status.message();
}

// The forms of GGUF's blocks: small groups of 8-bit codes, minima, scales on two levels. Widths
// that end within a step, a group, the columns of a wide scale and the groups that are loaded at
// once.
TEST_P(PackedProductTest, FormsOfBlocksMatchTheDequantisedMatrixInEveryMode) {
  constexpr int64_t kN = 37;
  uint64_t seed = 1;
  for (const testing::PackedForm& form : block_forms()) {
    for (const int64_t K : {32, 160, 201, 448, 544, 1312, 2880}) {
      const quant::UnpackedMatrix matrix = random_matrix(form, kN, K, ++seed);
      const PackedTensor rounding({kN, K}, matrix, true), precise({kN, K}, matrix, false);
      const Tensor w = precise.dequantised();
      EXPECT_TRUE(int8_product_takes(rounding.rows()) && !int8_product_takes(precise.rows()));
      for (const int64_t T : {1, 2, 5, 33}) {
        GuardedTensor x({T, K}, DType::kF32, 3), bias({kN}, DType::kF32);
        x.randomize(seed + 100);
        bias.randomize(seed + 200);
        const LinearReference truth = linear_reference(x.view(), w.view(), bias.view());
        for (const auto& [exact, rounds] : {std::pair(true, true), {false, true}, {false, false}}) {
          SCOPED_TRACE(fmt::format("{}, K = {}, T = {}, exact {}, rounds {}", form.name, K, T,
                                   exact, rounds));
          CpuContext context(pool_, exact, instructions_);
          GuardedTensor y({T, kN}, DType::kF32, 5);
          const PackedTensor& weight = rounds ? rounding : precise;
          ASSERT_TRUE(run_linear(context, x.view(), weight.view(), y.view(), bias.view()).ok());
          expect_near(truth, x.view(), w.view(), y.view(), rounding_of(weight, context.products));
          if (HasFatalFailure()) return;
          EXPECT_TRUE(y.padding_untouched());
          if (!exact) continue;
          GuardedTensor dense({T, kN}, DType::kF32);
          ASSERT_TRUE(run_linear(context, x.view(), w.view(), dense.view(), bias.view()).ok());
          for (int64_t i = 0; i < T * kN; ++i) {
            ASSERT_EQ(y.view().row<float>(i / kN)[i % kN], dense.view().as<float>()[i]);
          }
        }
      }
    }
  }
}

// x that numbers of 8 bits hold exactly leaves nothing but the rounding of sums in fp32.
TEST_P(PackedProductTest, FormsOfBlocksRoundNothingButX) {
  if (!instructions_.int8) GTEST_SKIP() << "this CPU has no 8-bit dot products (AVX512-VNNI)";
  constexpr int64_t kN = 19, kK = 832;
  CpuContext context(pool_, false, instructions_);
  for (const testing::PackedForm& form : block_forms()) {
    const PackedTensor weight({kN, kK}, random_matrix(form, kN, kK, 3), true);
    const Tensor w = weight.dequantised();
    for (const int64_t T : {1, 3, 7}) {
      GuardedTensor x({T, kK}, DType::kF32, 2);
      for (int64_t t = 0; t < T; ++t) {
        for (int64_t k = 0; k < kK; ++k) {
          const int64_t value = k % 64 == 0 ? 127 : (k * 37 + t * 11 + k / 7) % 255 - 127;
          x.view().row<float>(t)[k] = 0.25f * static_cast<float>(value);
        }
      }
      const LinearReference truth = linear_reference(x.view(), w.view(), {});
      GuardedTensor y({T, kN}, DType::kF32, 4);
      ASSERT_TRUE(run_linear(context, x.view(), weight.view(), y.view()).ok());
      expect_near(truth, x.view(), w.view(), y.view(), Rounding::kNone);
      if (HasFatalFailure()) FAIL() << form.name << ", T = " << T;
    }
  }
}

TEST_P(PackedProductTest, FormsOfBlocksHaveRowsOfTheirOwnAndServeExperts) {
  CpuContext context(pool_, false, instructions_);
  constexpr int64_t E = 3, N = 40, K = 288, R = 7;
  const int32_t offsets[] = {0, 2, 2, 7};
  const TensorView row_offsets(offsets, DType::kI32, {E + 1});
  std::vector<std::byte> workspace(
      static_cast<size_t>(grouped_linear_workspace_bytes(context, R, E, K, DType::kPacked)));
  for (const testing::PackedForm& form : block_forms()) {
    SCOPED_TRACE(form.name);
    const PackedTensor experts({E, N, K}, random_matrix(form, E * N, K, 4), true);
    GuardedTensor x({R, K}, DType::kF32);
    x.randomize(12);
    x.view().row<float>(3)[70] = testing::kNaN;
    GuardedTensor y({R, N}, DType::kF32, 3);
    const Status status = grouped_linear(context, {.x = x.view(),
                                                   .weight = experts.view(),
                                                   .row_offsets = row_offsets,
                                                   .y = y.view(),
                                                   .workspace = workspace});
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(y.padding_untouched());
    for (int64_t r = 0; r < R; ++r) {
      const quant::PackedWeight own = experts.weight().cut(r < 2 ? 0 : 2 * N, N);
      TensorView weight(nullptr, DType::kPacked, {N, K});
      weight.packed = &own;
      GuardedTensor alone({1, N}, DType::kF32);
      const TensorView row(x.view().row<float>(r), DType::kF32, {1, K});
      ASSERT_TRUE(run_linear(context, row, weight, alone.view()).ok());
      for (int64_t n = 0; n < N; ++n) {
        const float got = y.view().row<float>(r)[n];
        ASSERT_EQ(std::isnan(got), r == 3);
        // Without 8-bit dot products, tiles of several rows add in another order.
        if (r != 3 && instructions_.int8) {
          ASSERT_EQ(got, alone.view().as<float>()[n]);
        }
      }
    }
  }
}

// A kernel that doubles its input's doubles must double its output, and zero must give the bias.
TEST_P(PackedProductTest, ScalingXByTwoScalesYByTwo) {
  CpuContext context(pool_, false, instructions_);
  for (const Scheme scheme : kSchemes) {
    const PackedTensor weight({17, 224}, scheme, 32, 8, true);
    GuardedTensor x({1, 224}, DType::kF32);
    x.randomize(13);
    GuardedTensor once({1, 17}, DType::kF32), twice({1, 17}, DType::kF32);
    ASSERT_TRUE(run_linear(context, x.view(), weight.view(), once.view()).ok());
    for (int64_t k = 0; k < 224; ++k) x.view().as<float>()[k] *= 2;
    ASSERT_TRUE(run_linear(context, x.view(), weight.view(), twice.view()).ok());
    for (int64_t n = 0; n < 17; ++n) {
      EXPECT_EQ(2 * once.view().as<float>()[n], twice.view().as<float>()[n]);
    }
    for (int64_t k = 0; k < 224; ++k) x.view().as<float>()[k] = 0;
    GuardedTensor bias({17}, DType::kF32);
    bias.randomize(14);
    ASSERT_TRUE(run_linear(context, x.view(), weight.view(), once.view(), bias.view()).ok());
    for (int64_t n = 0; n < 17; ++n) {
      EXPECT_EQ(once.view().as<float>()[n], bias.view().as<float>()[n]);
    }
  }
}

// The numbers of NVFP4 in the 8-bit kernel: every code, every scale that is a number, the last
// group partial, both meanings of the factor.
TEST(Int8ProductTest, Nvfp4GoesThroughItsTable) {
  if (!has_int8_products()) GTEST_SKIP() << "this CPU has no 8-bit dot products (AVX512-VNNI)";
  for (const quant::ScaleType type : {quant::ScaleType::kE4M3Times, quant::ScaleType::kE4M3Over}) {
    for (const int64_t K : {8, 16, 24, 200, 448}) {
      SCOPED_TRACE(fmt::format("K {}, type {}", K, static_cast<int>(type)));
      quant::UnpackedMatrix matrix{
          .format = {.code = quant::Code::kE2M1, .scale = type, .K = K, .group_size = 16}, .N = 9};
      for (int64_t i = 0; i < 9 * K; ++i) {
        matrix.codes.push_back(static_cast<uint8_t>((i + i / 16) % 16));
      }
      matrix.scales.resize(static_cast<size_t>(9 * matrix.format.scale_bytes()));
      for (int64_t n = 0, code = 0; n < 9; ++n) {
        std::byte* const row = matrix.scales.data() + n * matrix.format.scale_bytes();
        const float factor = 0.003f * static_cast<float>(n + 1);
        std::memcpy(row, &factor, sizeof(factor));
        for (int64_t g = 0; g < matrix.format.num_groups(); ++g) {
          row[quant::kFactorBytes + g] = static_cast<std::byte>(code++ % 127);
        }
      }
      const PackedTensor weight({9, K}, matrix, true);
      ASSERT_TRUE(int8_product_takes(weight.rows()));
      const Tensor w = weight.dequantised();
      device::ThreadPool pool(1);
      CpuContext context(pool);
      for (const int64_t T : {1, 2, 3, 5}) {
        GuardedTensor x({T, K}, DType::kF32);
        x.randomize(static_cast<uint64_t>(T));
        GuardedTensor y({T, 9}, DType::kF32);
        ASSERT_TRUE(run_linear(context, x.view(), weight.view(), y.view()).ok());
        expect_near(linear_reference(x.view(), w.view(), {}), x.view(), w.view(), y.view(),
                    Rounding::kInt8);
      }
    }
  }
}

// The MXFP4 codes of the 8-bit kernel: every code, every power.
TEST(Int8ProductTest, Mxfp4GoesThroughItsTable) {
  if (!has_int8_products()) GTEST_SKIP() << "this CPU has no 8-bit dot products (AVX512-VNNI)";
  constexpr int64_t K = 192;
  quant::UnpackedMatrix matrix{.format = {.code = quant::Code::kE2M1,
                                          .scale = quant::ScaleType::kE8M0,
                                          .K = K,
                                          .group_size = 32},
                               .N = 6};
  for (int64_t i = 0; i < 6 * K; ++i) matrix.codes.push_back(static_cast<uint8_t>(i % 16));
  for (int64_t i = 0; i < 6 * K / 32; ++i) {
    matrix.scales.push_back(static_cast<std::byte>(120 + i % 12));
  }
  const PackedTensor weight({6, K}, matrix, true);
  ASSERT_TRUE(int8_product_takes(weight.rows()));
  const Tensor w = weight.dequantised();
  device::ThreadPool pool(1);
  CpuContext context(pool);
  GuardedTensor x({3, K}, DType::kF32);
  x.randomize(3);
  GuardedTensor y({3, 6}, DType::kF32);
  ASSERT_TRUE(run_linear(context, x.view(), weight.view(), y.view()).ok());
  expect_near(linear_reference(x.view(), w.view(), {}), x.view(), w.view(), y.view(),
              Rounding::kInt8);
}

// Every E4M3 code that is a number, in every column, through the tables of the bf16 kernel: rows of
// the unit matrix pick them one by one.
TEST(Fp8Bf16ProductTest, EveryCodeIsReadExactly) {
  constexpr int64_t K = 160;
  std::vector<uint8_t> numbers;
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) != 0x7f) numbers.push_back(static_cast<uint8_t>(code));
  }
  const auto N = static_cast<int64_t>(numbers.size());
  quant::UnpackedMatrix matrix{.format = {.code = quant::Code::kE4M3, .K = K, .group_size = 64},
                               .N = N};
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t k = 0; k < K; ++k) {
      matrix.codes.push_back(numbers[static_cast<size_t>((n + 3 * k) % N)]);
    }
  }
  const std::vector<float> scales(static_cast<size_t>(3 * N), 0.5f);
  const auto scale_bytes = std::as_bytes(std::span(scales));
  matrix.scales.assign(scale_bytes.begin(), scale_bytes.end());
  const PackedTensor weight({N, K}, matrix, true);
  if (!fp8_dot_bf16_takes(weight.rows())) {
    GTEST_SKIP() << "this CPU has no bf16 products by table (AVX512-BF16 and AVX512-VBMI)";
  }
  const Tensor w = weight.dequantised();
  device::ThreadPool pool(1);
  CpuContext context(pool, false, testing::instructions(true));
  constexpr int64_t T = 5;
  for (int64_t first = 0; first < K; first += T) {
    GuardedTensor x({T, K}, DType::kF32);
    for (int64_t i = 0; i < T * K; ++i) x.view().as<float>()[i] = 0;
    for (int64_t t = 0; t < T; ++t) x.view().row<float>(t)[first + t] = 1;
    GuardedTensor y({T, N}, DType::kF32);
    ASSERT_TRUE(run_linear(context, x.view(), weight.view(), y.view()).ok());
    for (int64_t t = 0; t < T; ++t) {
      for (int64_t n = 0; n < N; ++n) {
        ASSERT_EQ(y.view().row<float>(t)[n], element_of(w.view(), n, first + t));
      }
    }
  }
}

// Two contexts of a process choose their instructions apart: neither changes what the other
// computes.
TEST(ProductInstructionsTest, BelongToTheContext) {
  if (!has_int8_products()) GTEST_SKIP() << "this CPU has no 8-bit dot products (AVX512-VNNI)";
  constexpr int64_t kN = 19, kK = 256;
  const PackedTensor weight({kN, kK}, Scheme::kInt4, 64, 5, true);
  GuardedTensor x({2, kK}, DType::kF32);
  x.randomize(6);
  device::ThreadPool pool(1);
  CpuContext rounding(pool, false, {.int8 = true});
  CpuContext plain(pool, false, {});
  const auto result_of = [&](CpuContext& context) {
    GuardedTensor y({2, kN}, DType::kF32);
    EXPECT_TRUE(run_linear(context, x.view(), weight.view(), y.view()).ok());
    const float* values = y.view().as<float>();
    return std::vector<float>(values, values + 2 * kN);
  };
  const std::vector<float> rounded = result_of(rounding);
  const std::vector<float> unrounded = result_of(plain);
  EXPECT_NE(rounded, unrounded);
  EXPECT_EQ(rounded, result_of(rounding));
  EXPECT_EQ(unrounded, result_of(plain));
  CpuContext exact(pool, true, {.int8 = true});  // exact mode uses none of them
  CpuContext exact_without(pool, true, {});
  EXPECT_EQ(result_of(exact), result_of(exact_without));
}

INSTANTIATE_TEST_SUITE_P(Targets, PackedProductTest,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const ::testing::TestParamInfo<int64_t>& target) {
                           return std::string(hwy::TargetName(target.param));
                         });

}  // namespace
}  // namespace heddle::ops
