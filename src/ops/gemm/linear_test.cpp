// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/linear.h"

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include "ops/gemm/bf16_product.h"
#include "ops/gemm/dnnl_product.h"
#include "ops/gemm/linear_reference.h"
#include "ops/gemm/panel_product.h"
#include "ops/gemm/product_fixture.h"
#include "ops/gemm/product_tasks.h"
#include "ops/gemm/row_dot.h"
#include "ops/registry.h"
#include "ops/simd/targets.h"

// clang-format off
#include <hwy/targets.h>  // after targets.h, which says what is compiled

// clang-format on

namespace heddle::ops {

namespace {

using testing::GuardedTensor;

constexpr DType kWeightTypes[] = {DType::kF32, DType::kBf16, DType::kF16};

// fp32 sums of K products differ from the truth by at most (K + 1) roundings of 2^-24 of the sum of
// magnitudes, in whatever order. With x rounded to bf16 each factor is off by 2^-8 at most.
double tolerance(int64_t K, bool rounded, double magnitude) {
  return magnitude * (static_cast<double>(K + 2) * std::ldexp(1.0, -24) +
                      (rounded ? std::ldexp(1.0, -8) : 0.0));
}

Product product_of(const TensorView& x, const TensorView& weight, const TensorView& bias,
                   const MutableTensorView& y) {
  return {.x = x.as<float>(),
          .x_stride = x.row_stride,
          .weight = weight.data,
          .weight_stride = weight.row_stride,
          .weight_dtype = weight.dtype,
          .bias = bias.as<float>(),
          .y = y.as<float>(),
          .y_stride = y.row_stride,
          .T = x.shape[0],
          .K = x.shape[1],
          .N = weight.shape[0]};
}

void expect_matches(const LinearReference& truth, const MutableTensorView& y, int64_t K,
                    bool rounded) {
  const int64_t T = y.shape[0];
  const int64_t N = y.shape[1];
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t n = 0; n < N; ++n) {
      const auto i = static_cast<size_t>(t * N + n);
      const double value = element_of(y, t, n);
      // Written this way round so that NaN fails.
      ASSERT_TRUE(std::fabs(value - truth.y[i]) <=
                  tolerance(K, rounded, truth.magnitude[i]) + 1e-30)
          << fmt::format("y[{}, {}] = {}, expected {}", t, n, value, truth.y[i]);
    }
  }
}

// Runs once per instruction set this machine has.
class LinearTest : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }

  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }

  device::ThreadPool pool_{2};
};

// Every kernel on shapes that fill no vector, tile or panel, with NaN around every row and an
// unreadable page behind every tensor.
TEST_P(LinearTest, EveryKernelMatchesTheReferenceOnOddShapes) {
  uint64_t seed = 1;
  for (const int64_t T : {1, 2, 3, 5, 17, 33, 65}) {
    for (const int64_t K : {1, 7, 64, 257, 530}) {
      for (const int64_t N : {1, 5, 100, 257}) {
        if (T * K * N > 2'500'000) continue;  // seconds of reference that show nothing new
        for (const DType dtype : kWeightTypes) {
          ++seed;
          const int64_t padding = seed % 2 == 0 ? 3 : 0;
          GuardedTensor x({T, K}, DType::kF32, padding);
          GuardedTensor weight({N, K}, dtype, padding);
          GuardedTensor bias({N}, DType::kF32);
          x.randomize(seed);
          weight.randomize(seed + 1000);
          bias.randomize(seed + 2000);
          const TensorView some_bias = seed % 3 == 0 ? TensorView{} : TensorView(bias.view());
          const LinearReference truth = linear_reference(x.view(), weight.view(), some_bias);

          std::vector<ProductKernel> kernels{ProductKernel::kRowDot, ProductKernel::kPanel};
          std::vector<uint16_t> rounded;
          if (dtype == DType::kBf16 && has_bf16_products()) {
            kernels.push_back(ProductKernel::kRowDotBf16);
            kernels.push_back(ProductKernel::kPanelBf16);
            rounded.resize(static_cast<size_t>(T * bf16_row_width(K)));
            for (int64_t t = 0; t < T; ++t) {
              round_to_bf16(x.view().row<float>(t), K, rounded.data() + t * bf16_row_width(K));
            }
          }
          for (const ProductKernel kernel : kernels) {
            SCOPED_TRACE(fmt::format("T = {}, K = {}, N = {}, {}, kernel {}", T, K, N,
                                     to_string(dtype), static_cast<int>(kernel)));
            GuardedTensor y({T, N}, DType::kF32, padding);
            Product product = product_of(x.view(), weight.view(), some_bias, y.view());
            product.x_bf16 = rounded.data();
            product.x_bf16_stride = bf16_row_width(K);
            const TaskGrid grid = split_product(kernel, product, 7);
            for (int64_t task = 0; task < grid.num_tasks; ++task) {
              run_kernel(kernel, product, grid.block(task, product));
            }
            expect_matches(
                truth, y.view(), K,
                kernel == ProductKernel::kRowDotBf16 || kernel == ProductKernel::kPanelBf16);
            if (HasFatalFailure()) return;
            EXPECT_TRUE(y.padding_untouched());
          }
        }
      }
    }
  }
}

TEST_P(LinearTest, MatchesTheReferenceInBothModes) {
  for (const auto& [exact, bf16] : {std::pair(false, false), {false, true}, {true, true}}) {
    CpuContext context(pool_, exact, testing::instructions(bf16));
    for (const int64_t T : {1, 4, 13, 130}) {
      for (const DType dtype : kWeightTypes) {
        SCOPED_TRACE(
            fmt::format("T = {}, {}, exact = {}, bf16 = {}", T, to_string(dtype), exact, bf16));
        constexpr int64_t kK = 192;
        constexpr int64_t kN = 320;
        GuardedTensor x({T, kK}, DType::kF32, 16);
        GuardedTensor weight({kN, kK}, dtype);
        GuardedTensor y({T, kN}, DType::kF32, 5);
        x.randomize(1);
        weight.randomize(2);
        std::vector<std::byte> workspace(
            static_cast<size_t>(linear_workspace_bytes(context, T, kK, kN, dtype)));
        const Status status = linear(context, {.x = x.view(),
                                               .weight = weight.view(),
                                               .bias = {},
                                               .y = y.view(),
                                               .workspace = workspace});
        ASSERT_TRUE(status.ok()) << status.to_string();
        expect_matches(linear_reference(x.view(), weight.view(), {}), y.view(), kK,
                       rounds_x(dtype, product_options(context)));
      }
    }
  }
}

TEST_P(LinearTest, ExactRowsHaveTheSameBitsWhateverTheyAreComputedWith) {
  constexpr int64_t kRows = 70;
  for (const DType dtype : kWeightTypes) {
    for (const int64_t K : {77, 512}) {
      constexpr int64_t kN = 61;
      GuardedTensor x({kRows, K}, DType::kF32, 1);
      GuardedTensor weight({kN, K}, dtype);
      GuardedTensor alone({kRows, kN}, DType::kF32);
      x.randomize(3);
      weight.randomize(4);
      device::ThreadPool one(1);
      device::ThreadPool three(3);
      CpuContext context(one, /*exact_mode=*/true);
      for (int64_t t = 0; t < kRows; ++t) {
        const TensorView row(x.view().row<float>(t), DType::kF32, {1, K});
        const MutableTensorView out(alone.view().row<float>(t), DType::kF32, {1, kN});
        ASSERT_TRUE(linear(context, {.x = row, .weight = weight.view(), .y = out}).ok());
      }
      for (int64_t T = 1; T <= kRows; ++T) {
        device::ThreadPool& pool = T % 3 == 0 ? one : T % 3 == 1 ? pool_ : three;
        CpuContext batched(pool, /*exact_mode=*/true);
        const int64_t first = kRows - T;  // other neighbours and another place each time
        GuardedTensor y({T, kN}, DType::kF32);
        const TensorView rows(x.view().row<float>(first), DType::kF32, {T, K}, x.view().row_stride);
        ASSERT_TRUE(linear(batched, {.x = rows, .weight = weight.view(), .y = y.view()}).ok());
        for (int64_t t = 0; t < T; ++t) {
          ASSERT_EQ(std::memcmp(y.view().row<float>(t), alone.view().row<float>(first + t),
                                kN * sizeof(float)),
                    0)
              << fmt::format("{}, K = {}, T = {}, row {}", to_string(dtype), K, T, t);
        }
      }
    }
  }
}

// 16-bit weights hold their values exactly in fp32: converting them in the kernel or beforehand is
// one.
TEST_P(LinearTest, ExactResultsDoNotDependOnTheDtypeThatHoldsTheWeights) {
  constexpr int64_t kT = 5, kK = 100, kN = 33;
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    GuardedTensor x({kT, kK}, DType::kF32);
    GuardedTensor weight({kN, kK}, dtype);
    GuardedTensor same({kN, kK}, DType::kF32);
    x.randomize(5);
    weight.randomize(6);
    for (int64_t n = 0; n < kN; ++n) {
      for (int64_t k = 0; k < kK; ++k) {
        testing::store_element(same.view().data, DType::kF32, n * kK + k,
                               static_cast<float>(element_of(weight.view(), n, k)));
      }
    }
    GuardedTensor y({kT, kN}, DType::kF32);
    GuardedTensor y_same({kT, kN}, DType::kF32);
    CpuContext context(pool_, /*exact_mode=*/true);
    ASSERT_TRUE(linear(context, {.x = x.view(), .weight = weight.view(), .y = y.view()}).ok());
    ASSERT_TRUE(linear(context, {.x = x.view(), .weight = same.view(), .y = y_same.view()}).ok());
    EXPECT_EQ(std::memcmp(y.view().data, y_same.view().data, kT * kN * sizeof(float)), 0);
  }
}

TEST_P(LinearTest, TakesWeightsAtOddAddresses) {
  constexpr int64_t kT = 12, kK = 70, kN = 67;
  GuardedTensor x({kT, kK}, DType::kF32);
  x.randomize(7);
  for (const DType dtype : kWeightTypes) {
    GuardedTensor weight({kN, kK}, dtype);
    weight.randomize(8);
    std::vector<std::byte> moved(static_cast<size_t>(weight.view().num_bytes()) + 2);
    std::memcpy(moved.data() + 2, weight.view().data, moved.size() - 2);
    const TensorView odd(moved.data() + 2, dtype, {kN, kK});
    for (const bool exact : {false, true}) {
      CpuContext context(pool_, exact);
      GuardedTensor y({kT, kN}, DType::kF32);
      std::vector<std::byte> workspace(
          static_cast<size_t>(linear_workspace_bytes(context, kT, kK, kN, dtype)));
      ASSERT_TRUE(
          linear(context, {.x = x.view(), .weight = odd, .y = y.view(), .workspace = workspace})
              .ok());
      expect_matches(linear_reference(x.view(), weight.view(), {}), y.view(), kK,
                     rounds_x(dtype, product_options(context)));
    }
  }
}

TEST_P(LinearTest, RoundsToBf16LikeTheDefinition) {
  if (!has_bf16_products()) GTEST_SKIP() << "needs a CPU with AVX512-BF16";
  GuardedTensor x({1, 1000}, DType::kF32);
  x.randomize(9, 100.0f);
  const float* values = x.view().as<float>();
  std::vector<uint16_t> rounded(static_cast<size_t>(bf16_row_width(1000)), 0xffff);
  round_to_bf16(values, 1000, rounded.data());
  for (size_t i = 0; i < rounded.size(); ++i) {
    EXPECT_EQ(rounded[i], i < 1000 ? to_bf16(values[i]).bits : 0) << i;
  }
}

TEST_P(LinearTest, TakesPartInEmptyProducts) {
  CpuContext context(pool_);
  GuardedTensor x({0, 8}, DType::kF32);
  GuardedTensor weight({3, 8}, DType::kF32);
  GuardedTensor y({0, 3}, DType::kF32);
  weight.randomize(1);
  EXPECT_TRUE(linear(context, {.x = x.view(), .weight = weight.view(), .y = y.view()}).ok());

  // K = 0: nothing to sum, only the bias.
  GuardedTensor no_x({2, 0}, DType::kF32);
  GuardedTensor no_weight({3, 0}, DType::kF32);
  GuardedTensor bias({3}, DType::kF32);
  GuardedTensor only_bias({2, 3}, DType::kF32);
  bias.randomize(2);
  ASSERT_TRUE(linear(context, {.x = no_x.view(),
                               .weight = no_weight.view(),
                               .bias = bias.view(),
                               .y = only_bias.view()})
                  .ok());
  EXPECT_EQ(only_bias.view().row<float>(1)[2], bias.view().as<float>()[2]);
}

TEST_P(LinearTest, SaysWhichTensorsDisagree) {
  CpuContext context(pool_);
  GuardedTensor x({2, 8}, DType::kF32);
  GuardedTensor weight({3, 9}, DType::kBf16);
  GuardedTensor y({2, 3}, DType::kF32);
  const Status shape = linear(context, {.x = x.view(), .weight = weight.view(), .y = y.view()});
  EXPECT_EQ(shape.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(shape.message(), "linear: weight has K = 9, x has K = 8");

  GuardedTensor fitting({3, 8}, DType::kBf16);
  MutableTensorView overlapping = y.view();
  overlapping.row_stride = 2;
  EXPECT_EQ(linear(context, {.x = x.view(), .weight = fitting.view(), .y = overlapping}).code(),
            StatusCode::kInvalidArgument);
  GuardedTensor short_bias({2}, DType::kF32);
  EXPECT_EQ(
      linear(context,
             {.x = x.view(), .weight = fitting.view(), .bias = short_bias.view(), .y = y.view()})
          .code(),
      StatusCode::kInvalidArgument);
}

// For what allocates and frees inside, as oneDNN does: a call in ten that kept the smallest block
// would show. A thread keeps the memory that it frees, so the first calls and some later ones take
// new memory.
template <typename Call>
void expect_heap_does_not_grow(const Call& call) {
  constexpr int kWarmUps = 500, kCalls = 20000;
  constexpr int64_t kSmallestBlock = 32;
  for (int i = 0; i < kWarmUps; ++i) ASSERT_TRUE(call());
  const struct mallinfo2 before = mallinfo2();
  for (int i = 0; i < kCalls; ++i) ASSERT_TRUE(call());
  const struct mallinfo2 after = mallinfo2();
  EXPECT_LT(static_cast<int64_t>(after.uordblks + after.hblkhd),
            static_cast<int64_t>(before.uordblks + before.hblkhd) + kCalls / 10 * kSmallestBlock);
}

TEST_P(LinearTest, AllocatesNothing) {
  constexpr int64_t kK = 256, kN = 192;
  GuardedTensor weight({kN, kK}, DType::kBf16);
  weight.randomize(1);
  CpuContext context(pool_);
  for (const int64_t T : {1, 40}) {
    GuardedTensor x({T, kK}, DType::kF32);
    GuardedTensor y({T, kN}, DType::kF32);
    x.randomize(2);
    std::vector<std::byte> workspace(
        static_cast<size_t>(linear_workspace_bytes(context, T, kK, kN, DType::kBf16)));
    const LinearArgs args{
        .x = x.view(), .weight = weight.view(), .bias = {}, .y = y.view(), .workspace = workspace};
    ASSERT_TRUE(linear(context, args).ok());
    if (context.products.tiles && T >= kMinDnnlRows) {
      expect_heap_does_not_grow([&] { return linear(context, args).ok(); });
      continue;
    }
    const struct mallinfo2 before = mallinfo2();
    ASSERT_TRUE(linear(context, args).ok());
    const struct mallinfo2 after = mallinfo2();
    EXPECT_EQ(before.uordblks, after.uordblks);
    EXPECT_EQ(before.hblkhd, after.hblkhd);
  }
}

TensorMeta f32_meta(std::initializer_list<SymbolicDim> shape) { return {DType::kF32, shape}; }

const SymbolicDim kT = SymbolicDim::of(Symbol::kTokens);

TEST(GemmOpsTest, WantOneBiasPerRowOfTheWeight) {
  const OpDef& op = *builtin_ops().find("linear_bias");
  const auto N = SymbolicDim::fixed(6), K = SymbolicDim::fixed(4);
  std::vector<TensorMeta> inputs{f32_meta({kT, K}), TensorMeta(DType::kBf16, {N, K}),
                                 f32_meta({N})};
  std::vector<TensorMeta> outputs;
  ASSERT_TRUE(op.infer(inputs, {}, outputs).ok());
  EXPECT_EQ(outputs[0], f32_meta({kT, N}));
  inputs[2] = f32_meta({K});
  EXPECT_THAT(op.infer(inputs, {}, outputs).to_string(),
              ::testing::HasSubstr("a float32 [N] beside [N, K]"));
  inputs[2] = TensorMeta(DType::kBf16, {N});
  EXPECT_THAT(op.infer(inputs, {}, outputs).to_string(), ::testing::HasSubstr("bfloat16"));
}

TEST(GemmOpsTest, AddTheBiasToEveryRow) {
  device::ThreadPool pool(1);
  CpuContext context(pool);
  Tensor x({2, 2}, DType::kF32), weight({3, 2}, DType::kF32), bias({3}, DType::kF32);
  Tensor y({2, 3}, DType::kF32);
  for (size_t i = 0; i < 4; ++i) x.span<float>()[i] = static_cast<float>(i);  // [0 1], [2 3]
  for (size_t i = 0; i < 6; ++i) weight.span<float>()[i] = 1;
  for (size_t i = 0; i < 3; ++i) bias.span<float>()[i] = static_cast<float>(10 * i);
  const TensorView inputs[] = {x.view(), weight.view(), bias.view()};
  const MutableTensorView outputs[] = {y.view()};
  const Attrs attrs;
  const ForwardContext forward;
  const OpDef& op = *builtin_ops().find("linear_bias");
  std::vector<TensorMeta> metas;
  for (const TensorView& input : inputs) metas.push_back(TensorMeta::of(input));
  std::vector<std::byte> workspace(
      static_cast<size_t>(op.workspace_bytes(metas, attrs, {.tokens = 2}, context)));
  const Status status = op.launch(context, {.inputs = inputs,
                                            .outputs = outputs,
                                            .attrs = attrs,
                                            .forward = forward,
                                            .workspace = workspace});
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(y.span<float>(), ::testing::ElementsAre(1, 11, 21, 5, 15, 25));
}

INSTANTIATE_TEST_SUITE_P(Targets, LinearTest,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const ::testing::TestParamInfo<int64_t>& target) {
                           return std::string(hwy::TargetName(target.param));
                         });

}  // namespace

}  // namespace heddle::ops
