// SPDX-License-Identifier: Apache-2.0
#include "ops/elementwise/elementwise.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/device_fixture.h"
#include "ops/registry.h"
#include "support/tensors.h"

namespace heddle::ops {
namespace {

using testing::random_tensor;
using testing::relative_error;
using testing::to_doubles;

constexpr double kTolerance = 1e-6;  // a few roundings of fp32
constexpr float kFactor = 0.246f;

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double reference(ElementwiseKind kind, double a, double b) {
  switch (kind) {
    case ElementwiseKind::kAdd:
      return a + b;
    case ElementwiseKind::kMul:
      return a * b;
    case ElementwiseKind::kScale:
      return a * kFactor;
    case ElementwiseKind::kSigmoid:
      return sigmoid(a);
    case ElementwiseKind::kSigmoidMul:
      return a * sigmoid(b);
    case ElementwiseKind::kSiluMul:
      return a * sigmoid(a) * b;
    case ElementwiseKind::kBoundedSiluMul:
      return std::min<double>(a * sigmoid(a), kFactor) * std::clamp<double>(b, -kFactor, kFactor);
    case ElementwiseKind::kGelu:
      return reference(ElementwiseKind::kGeluMul, a, kFactor);
    case ElementwiseKind::kGeluMul:
      return a / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (a + 0.044715 * a * a * a))) *
             b;
    case ElementwiseKind::kErfGelu:
      return reference(ElementwiseKind::kErfGeluMul, a, kFactor);
    case ElementwiseKind::kErfGeluMul:
      return a / 2 * (1 + std::erf(a / std::numbers::sqrt2)) * b;
    case ElementwiseKind::kSquaredRelu:
      return std::max(a, 0.0) * std::max(a, 0.0);
    case ElementwiseKind::kSoftcap:
      return kFactor * std::tanh(a / kFactor);
  }
  return NAN;
}

class ElementwiseTest : public DeviceTest {};

HEDDLE_ON_EVERY_DEVICE(ElementwiseTest);

constexpr ElementwiseKind kAllKinds[] = {ElementwiseKind::kAdd,
                                         ElementwiseKind::kMul,
                                         ElementwiseKind::kScale,
                                         ElementwiseKind::kSigmoid,
                                         ElementwiseKind::kSigmoidMul,
                                         ElementwiseKind::kSiluMul,
                                         ElementwiseKind::kBoundedSiluMul,
                                         ElementwiseKind::kGeluMul,
                                         ElementwiseKind::kErfGeluMul,
                                         ElementwiseKind::kGelu,
                                         ElementwiseKind::kErfGelu,
                                         ElementwiseKind::kSquaredRelu,
                                         ElementwiseKind::kSoftcap};

TEST_P(ElementwiseTest, MatchesTheReferenceOnRowsThatDoNotFillVectors) {
  for (const DType dtype : activation_dtypes()) {
    for (const ElementwiseKind kind : kAllKinds) {
      for (const auto& [T, N] : {std::pair<int64_t, int64_t>{1, 1}, {3, 7}, {5, 64}, {33, 1031}}) {
        SCOPED_TRACE(fmt::format("{} kind {}, T = {}, N = {}", to_string(dtype),
                                 static_cast<int>(kind), T, N));
        const Tensor a = random_tensor({T, N}, dtype, 1);
        const Tensor b = random_tensor({T, N}, dtype, 2);
        const DeviceTensor b_here = upload(b);
        DeviceTensor y = poisoned({T, N}, dtype);
        const bool unary = is_unary(kind);
        ASSERT_TRUE(elementwise(context(), {.kind = kind,
                                            .a = upload(a).view(),
                                            .b = unary ? TensorView() : b_here.view(),
                                            .y = y.view(),
                                            .factor = kFactor})
                        .ok());
        std::vector<double> want = to_doubles(a.view());
        const std::vector<double> other = to_doubles(b.view());
        for (size_t i = 0; i < want.size(); ++i) want[i] = reference(kind, want[i], other[i]);
        EXPECT_LT(relative_error(download(y).view(), want), kTolerance + rounding_of(dtype));
      }
    }
  }
}

// Router scores and gates stay fp32 beside activations that do not.
TEST_P(ElementwiseTest, MixesTheDtypesOfActivations) {
  for (const DType dtype : activation_dtypes()) {
    const Tensor a = random_tensor({6, 40}, dtype, 1);
    const Tensor b = random_tensor({6, 40}, DType::kF32, 2);
    DeviceTensor narrow = poisoned({6, 40}, dtype);
    DeviceTensor wide = poisoned({6, 40}, DType::kF32);
    const DeviceTensor a_here = upload(a), b_here = upload(b);
    const ElementwiseKind kind = ElementwiseKind::kSiluMul;
    ASSERT_TRUE(
        elementwise(context(),
                    {.kind = kind, .a = a_here.view(), .b = b_here.view(), .y = narrow.view()})
            .ok());
    ASSERT_TRUE(
        elementwise(context(),
                    {.kind = kind, .a = b_here.view(), .b = a_here.view(), .y = wide.view()})
            .ok());
    const std::vector<double> x = to_doubles(a.view()), z = to_doubles(b.view());
    std::vector<double> want_narrow, want_wide;
    for (size_t i = 0; i < x.size(); ++i) {
      want_narrow.push_back(reference(kind, x[i], z[i]));
      want_wide.push_back(reference(kind, z[i], x[i]));
    }
    EXPECT_LT(relative_error(download(narrow).view(), want_narrow),
              kTolerance + rounding_of(dtype));
    EXPECT_LT(relative_error(download(wide).view(), want_wide), kTolerance);
  }
}

TEST_P(ElementwiseTest, WorksInPlaceOnColumnsOfAWiderTensor) {
  for (const DType dtype : activation_dtypes()) {
    for (const int64_t first : {8, 3}) {  // a vector's boundary and none
      const Tensor before = random_tensor({5, 64}, dtype, 5);
      DeviceTensor wide = upload(before);
      auto* start = wide.view().as<std::byte>() + bytes_of(dtype, first);
      const MutableTensorView part(start, dtype, Shape{5, 19}, 64);
      ASSERT_TRUE(
          elementwise(context(), {.kind = ElementwiseKind::kAdd, .a = part, .b = part, .y = part})
              .ok());
      const std::vector<double> was = to_doubles(before.view());
      const std::vector<double> is = to_doubles(download(wide).view());
      for (size_t i = 0; i < was.size(); ++i) {
        const auto column = static_cast<int64_t>(i % 64);
        const bool changed = column >= first && column < first + 19;
        EXPECT_EQ(is[i], changed ? 2 * was[i] : was[i]) << column;
      }
    }
  }
}

TEST_P(ElementwiseTest, AppliesAGateOfOneColumnToTheWholeRow) {
  const Tensor a = random_tensor({4, 37}, DType::kF32, 3);
  const Tensor gate = random_tensor({4, 1}, DType::kF32, 4);
  const DeviceTensor a_here = upload(a);
  DeviceTensor y = poisoned({4, 37}, DType::kF32);
  ASSERT_TRUE(elementwise(context(), {.kind = ElementwiseKind::kSigmoidMul,
                                      .a = a_here.view(),
                                      .b = upload(gate).view(),
                                      .y = y.view()})
                  .ok());
  std::vector<double> want = to_doubles(a.view());
  for (size_t i = 0; i < want.size(); ++i) {
    want[i] *= sigmoid(static_cast<double>(gate.span<float>()[i / 37]));
  }
  EXPECT_LT(relative_error(download(y).view(), want), kTolerance);

  Tensor wide({4, 37}, DType::kF32);
  for (size_t i = 0; i < want.size(); ++i) wide.span<float>()[i] = gate.span<float>()[i / 37];
  DeviceTensor same = poisoned({4, 37}, DType::kF32);
  ASSERT_TRUE(elementwise(context(), {.kind = ElementwiseKind::kSigmoidMul,
                                      .a = a_here.view(),
                                      .b = upload(wide).view(),
                                      .y = same.view()})
                  .ok());
  EXPECT_TRUE(testing::same_bits(download(y).view(), download(same).view()));
}

// A gate for each head: runs of columns, of lengths that fill vectors and that do not.
TEST_P(ElementwiseTest, AppliesEachColumnOfAGateToARunOfColumns) {
  for (const auto& [gates, width] : {std::pair<int64_t, int64_t>{6, 16}, {3, 11}, {8, 1}, {1, 5}}) {
    const Tensor a = random_tensor({4, gates * width}, DType::kF32, 3);
    const Tensor gate = random_tensor({4, gates}, DType::kF32, 4);
    const DeviceTensor a_here = upload(a);
    DeviceTensor y = poisoned({4, gates * width}, DType::kF32);
    ASSERT_TRUE(elementwise(context(), {.kind = ElementwiseKind::kMul,
                                        .a = a_here.view(),
                                        .b = upload(gate).view(),
                                        .y = y.view()})
                    .ok());
    std::vector<double> want = to_doubles(a.view());
    for (size_t i = 0; i < want.size(); ++i) {
      want[i] *= static_cast<double>(gate.span<float>()[i / static_cast<size_t>(width)]);
    }
    EXPECT_LT(relative_error(download(y).view(), want), kTolerance) << gates << " of " << width;
  }
}

TEST_P(ElementwiseTest, GivesAnElementTheSameBitsAtAnyPlaceInTheRow) {
  Tensor a({1, 43}, DType::kF32);
  for (float& value : a.span<float>()) value = 0.7318f;
  DeviceTensor y = poisoned({1, 43}, DType::kF32);
  ASSERT_TRUE(elementwise(context(),
                          {.kind = ElementwiseKind::kSigmoid, .a = upload(a).view(), .y = y.view()})
                  .ok());
  const Tensor got = download(y);
  for (const float value : got.span<float>()) EXPECT_EQ(value, got.span<float>()[0]);
}

TEST_P(ElementwiseTest, NamesWhatDoesNotFit) {
  const DeviceTensor a = poisoned({3, 8}, DType::kF32);
  const DeviceTensor b = poisoned({3, 9}, DType::kF32);
  DeviceTensor y = poisoned({3, 8}, DType::kF32);
  EXPECT_EQ(elementwise(context(), {.a = a.view(), .b = b.view(), .y = y.view()}).message(),
            "elementwise: b has N = 9, a has N = 8");
}

TEST(ElementwiseOps, GiveTheirOutputTheDtypeOfANodeThatAsksForOne) {
  const TensorMeta gate_up(DType::kF32, {SymbolicDim::of(Symbol::kTokens), SymbolicDim::fixed(8)});
  const OpDef& op = *builtin_ops().find("silu_mul");
  std::vector<TensorMeta> outputs;
  ASSERT_TRUE(op.infer({{gate_up}}, {}, outputs).ok());
  const Attrs asks{{"output_dtype", static_cast<double>(DType::kBf16)}};
  ASSERT_TRUE(op.infer({{gate_up}}, asks, outputs).ok());
  EXPECT_EQ(outputs[0].to_string(), "float32[T, 4]");
  EXPECT_EQ(outputs[1].to_string(), "bfloat16[T, 4]");
}

}  // namespace
}  // namespace heddle::ops
