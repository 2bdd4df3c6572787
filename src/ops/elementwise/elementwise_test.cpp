// SPDX-License-Identifier: Apache-2.0
#include "ops/elementwise/elementwise.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/tensors.h"

namespace heddle::ops {
namespace {

using testing::poison;
using testing::random_tensor;
using testing::relative_error;
using testing::to_doubles;

constexpr double kTolerance = 1e-6;  // a few roundings of fp32

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double reference(ElementwiseKind kind, double a, double b) {
  switch (kind) {
    case ElementwiseKind::kAdd:
      return a + b;
    case ElementwiseKind::kMul:
      return a * b;
    case ElementwiseKind::kSigmoid:
      return sigmoid(a);
    case ElementwiseKind::kSigmoidMul:
      return a * sigmoid(b);
    case ElementwiseKind::kSiluMul:
      return a * sigmoid(a) * b;
  }
  return NAN;
}

class ElementwiseTest : public ::testing::TestWithParam<ElementwiseKind> {
 protected:
  device::ThreadPool pool_{2};
  CpuContext context_{pool_};
};

TEST_P(ElementwiseTest, MatchesTheReferenceOnRowsThatDoNotFillVectors) {
  for (const auto& [T, N] : {std::pair<int64_t, int64_t>{1, 1}, {3, 7}, {5, 64}, {33, 1031}}) {
    SCOPED_TRACE(fmt::format("T = {}, N = {}", T, N));
    const Tensor a = random_tensor({T, N}, DType::kF32, 1);
    const Tensor b = random_tensor({T, N}, DType::kF32, 2);
    Tensor y({T, N}, DType::kF32);
    poison(y);
    const bool unary = GetParam() == ElementwiseKind::kSigmoid;
    ASSERT_TRUE(elementwise(context_, {.kind = GetParam(),
                                       .a = a.view(),
                                       .b = unary ? TensorView() : b.view(),
                                       .y = y.view()})
                    .ok());
    std::vector<double> want = to_doubles(a.view());
    const std::vector<double> other = to_doubles(b.view());
    for (size_t i = 0; i < want.size(); ++i) want[i] = reference(GetParam(), want[i], other[i]);
    EXPECT_LT(relative_error(y.view(), want), kTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(AllKinds, ElementwiseTest,
                         ::testing::Values(ElementwiseKind::kAdd, ElementwiseKind::kMul,
                                           ElementwiseKind::kSigmoid, ElementwiseKind::kSigmoidMul,
                                           ElementwiseKind::kSiluMul));

TEST(ElementwiseOps, AppliesAGateOfOneColumnToTheWholeRow) {
  device::ThreadPool pool(1);
  CpuContext context(pool);
  const Tensor a = random_tensor({4, 37}, DType::kF32, 3);
  const Tensor gate = random_tensor({4, 1}, DType::kF32, 4);
  Tensor y({4, 37}, DType::kF32);
  poison(y);
  ASSERT_TRUE(
      elementwise(
          context,
          {.kind = ElementwiseKind::kSigmoidMul, .a = a.view(), .b = gate.view(), .y = y.view()})
          .ok());
  std::vector<double> want = to_doubles(a.view());
  for (size_t i = 0; i < want.size(); ++i) {
    want[i] *= sigmoid(static_cast<double>(gate.span<float>()[i / 37]));
  }
  EXPECT_LT(relative_error(y.view(), want), kTolerance);

  Tensor wide({4, 37}, DType::kF32);
  for (size_t i = 0; i < want.size(); ++i) wide.span<float>()[i] = gate.span<float>()[i / 37];
  Tensor same({4, 37}, DType::kF32);
  ASSERT_TRUE(
      elementwise(
          context,
          {.kind = ElementwiseKind::kSigmoidMul, .a = a.view(), .b = wide.view(), .y = same.view()})
          .ok());
  EXPECT_TRUE(std::ranges::equal(y.span<float>(), same.span<float>()));
}

TEST(ElementwiseOps, GivesAnElementTheSameBitsAtAnyPlaceInTheRow) {
  device::ThreadPool pool(1);
  CpuContext context(pool);
  Tensor a({1, 40}, DType::kF32);
  for (float& value : a.span<float>()) value = 0.7318f;
  Tensor y({1, 40}, DType::kF32);
  ASSERT_TRUE(
      elementwise(context, {.kind = ElementwiseKind::kSigmoid, .a = a.view(), .y = y.view()}).ok());
  for (const float value : y.span<float>()) EXPECT_EQ(value, y.span<float>()[0]);
}

TEST(ElementwiseOps, NamesWhatDoesNotFit) {
  device::ThreadPool pool(1);
  CpuContext context(pool);
  const Tensor a({3, 8}, DType::kF32);
  const Tensor b({3, 9}, DType::kF32);
  Tensor y({3, 8}, DType::kF32);
  EXPECT_EQ(elementwise(context, {.a = a.view(), .b = b.view(), .y = y.view()}).message(),
            "elementwise: b has N = 9, a has N = 8");
}

}  // namespace
}  // namespace heddle::ops
