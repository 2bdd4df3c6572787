// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/dnnl_product.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/gemm/linear.h"
#include "support/tensors.h"

namespace heddle::ops {
namespace {

using testing::poison;
using testing::random_tensor;
using testing::relative_error;
using testing::to_doubles;

// x is rounded to bf16: 2^-9 relative per element, less over a sum of many.
constexpr double kTolerance = 4e-3;

std::vector<double> reference(const Tensor& x, const Tensor& weight) {
  const int64_t T = x.shape()[0];
  const int64_t K = x.shape()[1];
  const int64_t N = weight.shape()[0];
  const std::vector<double> a = to_doubles(x.view());
  const std::vector<double> b = to_doubles(weight.view());
  std::vector<double> y(static_cast<size_t>(T * N));
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t n = 0; n < N; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < K; ++k)
        sum += a[static_cast<size_t>(t * K + k)] * b[static_cast<size_t>(n * K + k)];
      y[static_cast<size_t>(t * N + n)] = sum;
    }
  }
  return y;
}

class DnnlProductTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_dnnl_products())
      GTEST_SKIP() << "needs a build with oneDNN and a CPU with bf16 instructions";
  }

  device::ThreadPool pool_{2};
  // On a CPU without tiles oneDNN computes with its vector kernels.
  CpuContext context_{pool_, false, {.bf16 = true, .tiles = true}};
};

TEST_F(DnnlProductTest, MatchesTheReferenceOnWhateverNumberOfRows) {
  for (const int64_t T : {32, 33, 65, 200}) {
    for (const int64_t N : {64, 100, 257}) {
      SCOPED_TRACE(fmt::format("T = {}, N = {}", T, N));
      const Tensor x = random_tensor({T, 128}, DType::kF32, 1);
      const Tensor weight = random_tensor({N, 128}, DType::kBf16, 2);
      Tensor y({T, N}, DType::kF32);
      poison(y);
      std::vector<std::byte> workspace(
          static_cast<size_t>(linear_workspace_bytes(context_, T, 128, N, DType::kBf16)));
      ASSERT_TRUE(
          linear(context_,
                 {.x = x.view(), .weight = weight.view(), .y = y.view(), .workspace = workspace})
              .ok());
      EXPECT_LT(relative_error(y.view(), reference(x, weight)), kTolerance);
    }
  }
}

TEST_F(DnnlProductTest, LeavesTheFormsItDoesNotTakeToOurOwnKernels) {
  const Tensor x = random_tensor({40, 100}, DType::kF32, 3);  // K is no whole number of vectors
  const Tensor weight = random_tensor({70, 100}, DType::kBf16, 4);
  Tensor wide({40, 90}, DType::kF32);
  poison(wide);
  const MutableTensorView y(wide.view().data, DType::kF32, Shape{40, 70}, 90);
  std::vector<std::byte> workspace(
      static_cast<size_t>(linear_workspace_bytes(context_, 40, 100, 70, DType::kBf16)));
  ASSERT_TRUE(
      linear(context_, {.x = x.view(), .weight = weight.view(), .y = y, .workspace = workspace})
          .ok());
  EXPECT_LT(relative_error(y, reference(x, weight)), kTolerance);
}

TEST_F(DnnlProductTest, IsNotAskedInExactMode) {
  const Tensor x = random_tensor({64, 64}, DType::kF32, 5);
  const Tensor weight = random_tensor({64, 64}, DType::kBf16, 6);
  CpuContext exact(pool_, /*exact_mode=*/true, {.bf16 = true, .tiles = true});
  Tensor together({64, 64}, DType::kF32);
  Tensor alone({1, 64}, DType::kF32);
  ASSERT_TRUE(linear(exact, {.x = x.view(), .weight = weight.view(), .y = together.view()}).ok());
  const TensorView last(x.view().row<float>(63), DType::kF32, Shape{1, 64});
  ASSERT_TRUE(linear(exact, {.x = last, .weight = weight.view(), .y = alone.view()}).ok());
  EXPECT_TRUE(testing::same_bits(
      alone.view(), TensorView(together.view().row<float>(63), DType::kF32, Shape{1, 64})));
}

}  // namespace
}  // namespace heddle::ops
