// SPDX-License-Identifier: Apache-2.0
// The promises of moe_route and routed_moe on every device; the tests beside this one look at the
// CPU's kernels one by one.
#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/device_fixture.h"
#include "ops/gemm/packed_fixture.h"
#include "ops/gemm/product_tasks.h"
#include "ops/moe/few_experts.h"
#include "ops/moe/routed_moe.h"
#include "ops/moe/routed_moe_reference.h"
#include "support/tensors.h"

namespace heddle::ops {

namespace {

using heddle::testing::random_tensor;
using heddle::testing::same_bits;

// Uniform in [-scale, scale).
Tensor scaled_tensor(const Shape& shape, DType dtype, uint64_t seed, float scale) {
  Tensor tensor = random_tensor(shape, DType::kF32, seed);
  for (float& value : tensor.span<float>()) value *= scale;
  if (dtype == DType::kF32) return tensor;
  Tensor narrow(shape, dtype);
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    const float value = tensor.span<float>()[static_cast<size_t>(i)];
    if (dtype == DType::kBf16) {
      narrow.span<Bf16>()[static_cast<size_t>(i)] = to_bf16(value);
    } else {
      narrow.span<F16>()[static_cast<size_t>(i)] = to_f16(value);
    }
  }
  return narrow;
}

TensorView rows_of(const TensorView& view, int64_t first, int64_t T) {
  return {view.as<std::byte>() + bytes_of(view.dtype, first * view.shape[1]), view.dtype,
          Shape{T, view.shape[1]}};
}

struct Routed {
  Tensor experts, weights;

  [[nodiscard]] int32_t expert(int64_t t, int64_t a) const {
    return experts.view().row<int32_t>(t)[a];
  }

  [[nodiscard]] float weight(int64_t t, int64_t a) const { return weights.view().row<float>(t)[a]; }
};

struct ExpertsCase {
  int64_t T, H, I, E, A;
  bool same_expert;  // all tokens choose the first experts
  ExpertForm form = ExpertForm::kSwiglu;
};

class MoeDeviceTest : public DeviceTest {
 protected:
  Routed route(const TensorView& logits_here, int64_t A, bool renormalize = true,
               const RouterScoring& scoring = {}, const TensorView& correction = {}) {
    const int64_t T = logits_here.shape[0];
    DeviceTensor experts = poisoned({T, A}, DType::kI32), weights = poisoned({T, A}, DType::kF32);
    const Status status = moe_route(context(), {.logits = logits_here,
                                                .experts = experts.view(),
                                                .weights = weights.view(),
                                                .renormalize = renormalize,
                                                .scoring = scoring,
                                                .correction = correction});
    EXPECT_TRUE(status.ok()) << status.to_string();
    return {download(experts), download(weights)};
  }

  Routed route_one(const std::vector<float>& logits, int64_t A, const RouterScoring& scoring = {}) {
    const TensorView row(logits.data(), DType::kF32, Shape{1, std::ssize(logits)});
    return route(upload(row).view(), A, true, scoring);
  }

  Status run(RoutedMoeArgs args, bool exact) {
    const RoutedMoeShape shape{.H = args.x.shape[1],
                               .I = args.w2.shape[2],
                               .E = args.w2.shape[0],
                               .A = args.experts_per_token,
                               .weight = expert_dtype(args.w13.dtype, args.w2.dtype),
                               .x = args.x.dtype};
    scratch_ = workspace(routed_moe_workspace_bytes(context(exact), args.x.shape[0], shape));
    args.workspace = scratch_.bytes();
    return routed_moe(context(exact), args);
  }

  void expect_reference(const ExpertsCase& experts, DType dtype, DType weight, bool exact);

  // The last tokens, so many of them together, have the bits that they have among all T.
  void expect_bits_of_more(const ExpertsCase& experts, DType dtype, bool exact,
                           std::initializer_list<int64_t> counts);

  device::Buffer scratch_;
};

HEDDLE_ON_EVERY_DEVICE(MoeDeviceTest);

TEST_P(MoeDeviceTest, RoutesAsTheReferenceOfASparsemixer) {
  const RouterScoring scoring{.score = RouterScore::kSparsemixer, .nearness = 0.3f};
  for (const int64_t E : {2, 16, 67}) {
    const Tensor logits = scaled_tensor({37, E}, DType::kF32, 5, 4.0f);
    const Routed got = route(upload(logits).view(), 2, false, scoring);
    const MoeRouteArgs args{
        .logits = logits.view(), .experts = {}, .weights = {}, .scoring = scoring};
    for (int64_t t = 0; t < 37; ++t) {
      const RouteReference want = scored_route_reference(args, t, 2);
      for (int64_t a = 0; a < 2; ++a) {
        const auto i = static_cast<size_t>(a);
        ASSERT_EQ(got.expert(t, a), want.experts[i]) << t << ", " << a;
        EXPECT_NEAR(static_cast<double>(got.weight(t, a)), want.weights[i], 4e-6 * want.weights[i]);
      }
    }
  }
}

TEST_P(MoeDeviceTest, RoutesAsTheReferenceForEveryScoring) {
  struct Case {
    int64_t E, A, groups, kept;
  };

  constexpr int64_t kT = 37;
  for (const auto& [E, A, groups, kept] :
       {Case{1, 1, 1, 1}, Case{8, 3, 4, 2}, Case{15, 4, 3, 1}, Case{67, 64, 1, 1},
        Case{160, 6, 8, 3}, Case{512, 10, 1, 1}, Case{1024, 64, 32, 8}}) {
    for (int variant = 0; variant < 16; ++variant) {
      if (E / groups < 2 && (variant & 2) != 0) continue;
      SCOPED_TRACE(fmt::format("E = {}, A = {}, groups = {}, variant = {}", E, A, groups, variant));
      const RouterScoring scoring{
          .score = (variant & 1) != 0 ? RouterScore::kSigmoid : RouterScore::kSoftmax,
          .num_groups = groups,
          .groups_kept = kept,
          .group_terms = (variant & 2) != 0 ? 2 : 1,
          .scale = (variant & 1) != 0 ? 1.5f : 1.0f};
      const Tensor logits =
          scaled_tensor({kT, E}, DType::kF32, static_cast<uint64_t>(E + variant), 4.0f);
      const Tensor correction = scaled_tensor({E}, DType::kF32, 9, 0.2f);
      const bool corrected = (variant & 8) != 0;
      const DeviceTensor correction_here = upload(correction);
      const bool renormalize = (variant & 4) != 0;
      const Routed got = route(upload(logits).view(), A, renormalize, scoring,
                               corrected ? correction_here.view() : TensorView());
      const MoeRouteArgs args{.logits = logits.view(),
                              .experts = {},
                              .weights = {},
                              .renormalize = renormalize,
                              .scoring = scoring,
                              .correction = corrected ? correction.view() : TensorView()};
      for (int64_t t = 0; t < kT; ++t) {
        const RouteReference want = scored_route_reference(args, t, A);
        for (int64_t a = 0; a < A; ++a) {
          const auto i = static_cast<size_t>(a);
          ASSERT_EQ(got.expert(t, a), want.experts[i]) << t << ", " << a;
          // An exponential of fp32, a sum of E terms, two divisions.
          EXPECT_NEAR(static_cast<double>(got.weight(t, a)), want.weights[i],
                      4e-6 * want.weights[i]);
        }
      }
    }
  }
}

TEST_P(MoeDeviceTest, PrefersTheLowerIdAmongEqualScores) {
  const auto experts = [](const Routed& routed) {
    const auto ids = routed.experts.span<int32_t>();
    return std::vector<int32_t>(ids.begin(), ids.end());
  };
  std::vector<float> logits(40, 1.0f);
  const RouterScoring grouped{
      .score = RouterScore::kSigmoid, .num_groups = 4, .groups_kept = 2, .group_terms = 2};
  EXPECT_EQ(experts(route_one(logits, 4)), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(experts(route_one(logits, 4, grouped)), (std::vector<int32_t>{0, 1, 2, 3}));
  logits[33] = logits[35] = 2.0f;
  EXPECT_EQ(experts(route_one(logits, 4)), (std::vector<int32_t>{33, 35, 0, 1}));
  EXPECT_EQ(experts(route_one(logits, 4, grouped)), (std::vector<int32_t>{33, 35, 0, 1}));
}

TEST_P(MoeDeviceTest, RoutesWhatIsNotANumberSomewhere) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& pattern : std::vector<std::vector<float>>{
           {nan}, {nan, 1.0f}, {inf, 0.0f}, {-inf}, {inf}, {nan, inf, -inf}}) {
    for (const RouterScoring& scoring :
         {RouterScoring{}, RouterScoring{.num_groups = 5, .groups_kept = 2}}) {
      std::vector<float> logits;
      for (size_t i = 0; i < 50; ++i) logits.push_back(pattern[i % pattern.size()]);
      const Routed got = route_one(logits, 8, scoring);
      const auto ids = got.experts.span<int32_t>();
      const std::set<int32_t> distinct(ids.begin(), ids.end());
      EXPECT_EQ(distinct.size(), 8u);
      EXPECT_GE(*distinct.begin(), 0);
      EXPECT_LT(*distinct.rbegin(), 50);
      for (const float weight : got.weights.span<float>()) EXPECT_TRUE(std::isnan(weight));
    }
  }
  std::vector<float> masked(20, 0.0f);
  masked[0] = -inf;
  masked[1] = nan;
  EXPECT_EQ(route_one(masked, 2).expert(0, 0), 2) << "a NaN is never preferred to a number";
}

void MoeDeviceTest::expect_reference(const ExpertsCase& experts, DType dtype, DType weight,
                                     bool exact) {
  const auto& [T, H, I, E, A, same_expert, form] = experts;
  SCOPED_TRACE(fmt::format("{} x {}, T = {}, H = {}, form {}, exact = {}", to_string(dtype),
                           to_string(weight), T, H, static_cast<int>(form), exact));
  const bool biased = T % 2 == 1;  // with limits that are often reached
  const Tensor x = random_tensor({T, H}, dtype, 3);
  Tensor logits = scaled_tensor({T, E}, DType::kF32, 4, 3.0f);
  if (same_expert) std::ranges::fill(logits.span<float>(), 0.5f);
  const int64_t rows = rows_per_hidden(form) * I;
  Tensor w13 = scaled_tensor({E, rows, H}, weight, 1, 0.3f);
  Tensor w2 = scaled_tensor({E, H, I}, weight, 2, 0.3f);
  if (same_expert) {  // what no token chooses is not to be seen
    for (Tensor* all : {&w13, &w2}) {
      const int64_t chosen = bytes_of(weight, A * all->view().row_stride);
      auto* const bytes = all->view().as<std::byte>();
      std::fill(bytes + chosen, bytes + all->num_bytes(), std::byte{0xff});
    }
  }
  const Tensor w13_bias = random_tensor({E, rows}, DType::kF32, 9);
  const Tensor w2_bias = random_tensor({E, H}, DType::kF32, 10);
  RoutedMoeArgs args{.x = x.view(),
                     .router_logits = logits.view(),
                     .w13 = w13.view(),
                     .w2 = w2.view(),
                     .y = {},
                     .experts_per_token = A};
  if (biased) {
    args.w13_bias = w13_bias.view();
    args.w2_bias = w2_bias.view();
    args.activation = {.limit = 0.7f, .alpha = 1.702f};
  }
  if (form != ExpertForm::kSwiglu) args.activation = {.form = form, .limit = 0.7f};
  const bool scaled = T == 9 || T == 70;  // by a factor of each expert
  Tensor scales = random_tensor({E}, DType::kF32, 11);
  if (scaled) args.expert_scales = scales.view();
  RoutedMoeArgs here = args;
  const DeviceTensor x_here = upload(x), logits_here = upload(logits);
  const DeviceTensor w13_here = upload(w13), w2_here = upload(w2);
  const DeviceTensor w13_bias_here = upload(w13_bias), w2_bias_here = upload(w2_bias);
  DeviceTensor y = poisoned({T, H}, dtype);
  here.x = x_here.view();
  here.router_logits = logits_here.view();
  here.w13 = w13_here.view();
  here.w2 = w2_here.view();
  if (biased) {
    here.w13_bias = w13_bias_here.view();
    here.w2_bias = w2_bias_here.view();
  }
  const DeviceTensor scales_here = upload(scales);
  if (scaled) here.expert_scales = scales_here.view();
  here.y = y.view();
  const Status status = run(here, exact);
  ASSERT_TRUE(status.ok()) << status.to_string();
  // fp32: a few hundred roundings of 2^-24. The activation and y are rounded to the dtype,
  // which averages over the sum; x, too, where the CPU multiplies bf16.
  const bool rounded = !on_cuda() && rounds_x(weight, product_options(context(exact)));
  const double tolerance =
      2e-5 + (rounded ? 2e-2 : 0.0) + (dtype == DType::kF32 ? 0.0 : 4 * rounding_of(dtype));
  const std::vector<double> got = heddle::testing::to_doubles(download(y).view());
  for (int64_t t = 0; t < T; ++t) {
    RouteReference route = moe_route_reference(logits.view(), t, A, true);
    for (size_t a = 0; a < route.experts.size() && scaled; ++a) {
      route.weights[a] *= element_of(scales.view(), 0, route.experts[a]);
    }
    const std::vector<double> want = routed_moe_reference(args, t, route);
    double scale = 0;
    for (const double value : want) scale = std::max(scale, std::fabs(value));
    for (int64_t h = 0; h < H; ++h) {
      ASSERT_NEAR(got[static_cast<size_t>(t * H + h)], want[static_cast<size_t>(h)],
                  tolerance * scale)
          << fmt::format("y[{}, {}]", t, h);
    }
  }
}

TEST_P(MoeDeviceTest, MatchesTheReference) {
  for (const DType dtype : activation_dtypes()) {
    for (const DType weight : {DType::kF32, dtype}) {
      for (const ExpertsCase& experts :
           {ExpertsCase{1, 64, 32, 8, 3, false},
            ExpertsCase{9, 37, 13, 5, 5, false, ExpertForm::kBoundedSwiglu},
            ExpertsCase{70, 64, 32, 16, 2, false, ExpertForm::kGeglu},
            ExpertsCase{33, 40, 24, 64, 4, true},
            ExpertsCase{4, 64, 32, 32, 2, false, ExpertForm::kSquaredRelu},
            ExpertsCase{9, 64, 33, 8, 3, false, ExpertForm::kSquaredRelu}}) {
        for (const bool exact : {false, true}) expect_reference(experts, dtype, weight, exact);
      }
    }
  }
}

// Widths that tensor cores take, tiles of every size, more than one for an expert, and more of them
// than the GPU has multiprocessors.
TEST_P(MoeDeviceTest, SmallestTilesMatchTheReference) {
  if (!on_cuda()) GTEST_SKIP() << "the CPU has no such tiles";
  for (const ExpertsCase& experts :
       {ExpertsCase{32, 256, 128, 4, 2, false}, ExpertsCase{33, 256, 128, 1, 1, true},
        ExpertsCase{65, 512, 256, 3, 1, true}, ExpertsCase{230, 256, 128, 3, 2, true},
        ExpertsCase{200, 256, 128, 2, 1, true}, ExpertsCase{301, 256, 128, 40, 4, false},
        ExpertsCase{301, 256, 128, 300, 4, false},
        // Widths that end within a block of weight rows.
        ExpertsCase{40, 320, 192, 3, 2, true}, ExpertsCase{65, 128, 320, 5, 2, false},
        ExpertsCase{230, 192, 192, 3, 2, true}, ExpertsCase{33, 576, 576, 2, 1, true},
        ExpertsCase{32, 2880, 192, 3, 1, false}}) {
    expect_reference(experts, DType::kBf16, DType::kBf16, false);
  }
  for (const ExpertForm form : {ExpertForm::kGeglu, ExpertForm::kSquaredRelu}) {
    for (const ExpertsCase& experts : {ExpertsCase{32, 256, 128, 4, 2, false, form},
                                       ExpertsCase{65, 128, 320, 5, 2, false, form},
                                       ExpertsCase{230, 192, 192, 3, 2, true, form},
                                       ExpertsCase{301, 256, 448, 40, 4, false, form},
                                       ExpertsCase{193, 320, 192, 2, 1, true, form}}) {
      expect_reference(experts, DType::kBf16, DType::kBf16, false);
    }
  }
}

TEST_P(MoeDeviceTest, LongTilesOfEveryLengthMatchTheReference) {
  if (!on_cuda()) GTEST_SKIP() << "the CPU has no such tiles";
  for (const ExpertsCase& experts :
       {ExpertsCase{50, 256, 256, 1, 1, true}, ExpertsCase{65, 256, 128, 1, 1, true},
        ExpertsCase{127, 512, 128, 1, 1, true}, ExpertsCase{129, 256, 128, 1, 1, true},
        ExpertsCase{161, 256, 128, 1, 1, true}, ExpertsCase{193, 512, 256, 1, 1, true},
        ExpertsCase{900, 256, 128, 12, 3, false}, ExpertsCase{193, 320, 192, 2, 1, true}}) {
    expect_reference(experts, DType::kBf16, DType::kBf16, false);
  }
}

// So few that each pair has an expert of its own; lists of loads of every length.
TEST_P(MoeDeviceTest, SmallestFewTokensMatchTheReference) {
  if (!on_cuda()) GTEST_SKIP() << "the CPU multiplies them as it does more";
  for (const ExpertsCase& experts :
       {ExpertsCase{1, 256, 256, 4, 3, false}, ExpertsCase{1, 512, 768, 12, 10, true},
        ExpertsCase{2, 2304, 256, 16, 1, false}, ExpertsCase{3, 256, 512, 48, 2, false},
        // Rows that end within a step.
        ExpertsCase{1, 2880, 2880, 4, 3, true}, ExpertsCase{1, 576, 576, 12, 4, false},
        ExpertsCase{2, 24, 328, 16, 2, false}, ExpertsCase{3, 264, 1408, 20, 2, false}}) {
    expect_reference(experts, DType::kBf16, DType::kBf16, false);
  }
  for (const ExpertForm form : {ExpertForm::kGeglu, ExpertForm::kSquaredRelu}) {
    for (const ExpertsCase& experts : {ExpertsCase{1, 512, 768, 12, 10, true, form},
                                       ExpertsCase{3, 264, 1408, 20, 2, false, form},
                                       ExpertsCase{1, 576, 8, 12, 4, false, form}}) {
      expect_reference(experts, DType::kBf16, DType::kBf16, false);
    }
  }
}

void MoeDeviceTest::expect_bits_of_more(const ExpertsCase& experts, DType dtype, bool exact,
                                        std::initializer_list<int64_t> counts) {
  const int64_t all = experts.T, H = experts.H, E = experts.E;
  const DeviceTensor x = upload(random_tensor({all, H}, dtype, 5));
  const DeviceTensor logits = upload(scaled_tensor({all, E}, DType::kF32, 6, 3.0f));
  const int64_t rows = rows_per_hidden(experts.form) * experts.I;
  const DeviceTensor w13 = upload(scaled_tensor({E, rows, H}, dtype, 7, 0.3f));
  const DeviceTensor w2 = upload(scaled_tensor({E, H, experts.I}, dtype, 8, 0.3f));
  const auto last = [&](int64_t T) {
    DeviceTensor y = poisoned({T, H}, dtype);
    EXPECT_TRUE(run({.x = rows_of(x.view(), all - T, T),
                     .router_logits = rows_of(logits.view(), all - T, T),
                     .w13 = w13.view(),
                     .w2 = w2.view(),
                     .y = y.view(),
                     .activation = {.form = experts.form},
                     .experts_per_token = experts.A},
                    exact)
                    .ok());
    return download(y);
  };
  const Tensor together = last(all);
  for (const int64_t T : counts) {
    EXPECT_TRUE(same_bits(last(T).view(), rows_of(together.view(), all - T, T)))
        << to_string(dtype) << ", T = " << T;
  }
}

TEST_P(MoeDeviceTest, AFewTokensHaveTheBitsOfSomeMore) {
  const DType dtype = activation_dtypes().size() > 1 ? DType::kBf16 : DType::kF32;
  expect_bits_of_more({9, 512, 256, 48, 3, false}, dtype, !on_cuda(), {1, 2});
  expect_bits_of_more({9, 576, 328, 48, 3, false}, dtype, !on_cuda(), {1, 2});
  expect_bits_of_more({9, 576, 328, 48, 3, false, ExpertForm::kSquaredRelu}, dtype, !on_cuda(),
                      {1, 2, 5});
}

TEST_P(MoeDeviceTest, ExactTokensHaveTheSameBitsInEveryBatch) {
  for (const DType dtype : activation_dtypes()) {
    expect_bits_of_more({70, 72, 40, 8, 3, false}, dtype, true, {1, 2, 3, 7, 16, 33});
  }
}

// Few tokens with an expert each, and more than that. The rows of padding are no numbers.
TEST_P(MoeDeviceTest, PaddingGoesWhereTheFirstRowGoesAndChangesNoOther) {
  if (!on_cuda()) GTEST_SKIP() << "batches are padded on a device that captures";
  constexpr int64_t kH = 256, kI = 256, kA = 3;
  for (const auto& [T, real, E] : {std::array<int64_t, 3>{4, 3, 48}, {8, 5, 9}, {48, 33, 9}}) {
    Tensor scores = scaled_tensor({T, E}, DType::kF32, 6, 3.0f);
    std::vector<int32_t> sequences(static_cast<size_t>(T), -1);
    std::iota(sequences.begin(), sequences.begin() + real, 0);
    std::ranges::fill(scores.span<float>().subspan(static_cast<size_t>(real * E)),
                      std::numeric_limits<float>::quiet_NaN());
    const DeviceTensor x = upload(scaled_tensor({T, kH}, DType::kBf16, 5, 1.0f));
    const DeviceTensor logits = upload(scores);
    const MirroredSpan<int32_t> rows = mirrored(sequences);
    DeviceTensor experts = poisoned({T, kA}, DType::kI32);
    DeviceTensor weights = poisoned({T, kA}, DType::kF32);
    ASSERT_TRUE(moe_route(context(), {.logits = logits.view(),
                                      .experts = experts.view(),
                                      .weights = weights.view(),
                                      .row_sequences = rows.device})
                    .ok());
    const Routed routed{download(experts), download(weights)};
    for (int64_t t = real; t < T; ++t) {
      for (int64_t a = 0; a < kA; ++a) EXPECT_EQ(routed.expert(t, a), routed.expert(0, a)) << t;
    }
    const DeviceTensor w13 = upload(scaled_tensor({E, 2 * kI, kH}, DType::kBf16, 7, 0.3f));
    const DeviceTensor w2 = upload(scaled_tensor({E, kH, kI}, DType::kBf16, 8, 0.3f));
    const auto run_rows = [&](int64_t count, const int32_t* row_sequences) {
      DeviceTensor y = poisoned({count, kH}, DType::kBf16);
      EXPECT_TRUE(run({.x = rows_of(x.view(), 0, count),
                       .router_logits = rows_of(logits.view(), 0, count),
                       .w13 = w13.view(),
                       .w2 = w2.view(),
                       .y = y.view(),
                       .experts_per_token = kA,
                       .row_sequences = row_sequences},
                      /*exact=*/true)
                      .ok());
      return download(y);
    };
    const Tensor padded = run_rows(T, rows.device);
    EXPECT_TRUE(same_bits(rows_of(padded.view(), 0, real), run_rows(real, nullptr).view())) << T;
  }
}

// More tokens than one pass takes, and a token that is not a number among them.
TEST_P(MoeDeviceTest, KeepsABrokenTokenToItselfAcrossPasses) {
  constexpr int64_t kT = 2060, kBroken = 2055, kH = 16, kI = 8, kE = 4;
  const DeviceTensor x = upload(random_tensor({kT, kH}, DType::kF32, 7));
  Tensor logits = random_tensor({kT, kE}, DType::kF32, 8);
  logits.view().row<float>(kBroken)[1] = std::numeric_limits<float>::quiet_NaN();
  DeviceTensor y = poisoned({kT, kH}, DType::kF32);
  ASSERT_TRUE(run({.x = x.view(),
                   .router_logits = upload(logits).view(),
                   .w13 = upload(random_tensor({kE, 2 * kI, kH}, DType::kF32, 1)).view(),
                   .w2 = upload(random_tensor({kE, kH, kI}, DType::kF32, 2)).view(),
                   .y = y.view(),
                   .experts_per_token = 2},
                  false)
                  .ok());
  const std::vector<double> got = heddle::testing::to_doubles(download(y).view());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::isnan(got[i]), i / kH == static_cast<size_t>(kBroken)) << i;
  }
}

// Experts that are quantised give the bits of dense ones: in exact mode, and where the default mode
// has nothing else for either.
TEST_P(MoeDeviceTest, QuantisedExpertsGiveTheBitsOfDequantisedOnes) {
  // Rows of each expert: none, tiles that are not full, and more than a tile of tensor cores.
  constexpr std::array<int64_t, 10> kCounts = {0, 1, 7, 8, 9, 16, 17, 192, 193, 2};
  constexpr int64_t kE = kCounts.size();
  const int64_t all = std::accumulate(kCounts.begin(), kCounts.end(), int64_t{0});
  const auto forms = testing::packed_forms(!on_cuda());
  for (size_t i = 0; i < forms.size(); ++i) {
    const int64_t H = i % 2 == 0 ? 72 : 200, I = i % 2 == 0 ? 40 : 136;
    const testing::PackedForm& down_form = forms[(i + 5) % forms.size()];
    SCOPED_TRACE(fmt::format("{} and {}", forms[i].name, down_form.name));
    const testing::PackedTensor w13({kE, 2 * I, H},
                                    testing::random_matrix(forms[i], kE * 2 * I, H, i), false);
    const testing::PackedTensor w2({kE, H, I}, testing::random_matrix(down_form, kE * H, I, i + 50),
                                   false);
    const DevicePacked w13_here = upload(w13.weight()), w2_here = upload(w2.weight());
    const DeviceTensor dense13 = upload(w13.dequantised()), dense2 = upload(w2.dequantised());
    for (const int64_t T : {int64_t{1}, int64_t{5}, all}) {
      Tensor logits({T, kE}, DType::kF32);
      for (int64_t t = 0, e = T == all ? 0 : 5, left = kCounts[0]; t < T; ++t, --left) {
        while (T == all && left == 0) left = kCounts[static_cast<size_t>(++e)];
        logits.view().row<float>(t)[e] = 1;
      }
      const DeviceTensor logits_here = upload(logits);
      for (const DType dtype : activation_dtypes()) {
        const DeviceTensor x = upload(random_tensor({T, H}, dtype, i + 9));
        const auto result = [&](const TensorView& up, const TensorView& down, bool exact) {
          DeviceTensor y = poisoned({T, H}, dtype);
          const Status status = run({.x = x.view(),
                                     .router_logits = logits_here.view(),
                                     .w13 = up,
                                     .w2 = down,
                                     .y = y.view(),
                                     .experts_per_token = 1},
                                    exact);
          EXPECT_TRUE(status.ok()) << status.to_string();
          return download(y);
        };
        const TensorView up = w13_here.view({kE, 2 * I, H}), down = w2_here.view({kE, H, I});
        const Tensor want = result(dense13.view(), dense2.view(), true);
        EXPECT_TRUE(same_bits(result(up, down, true).view(), want.view())) << T;
        EXPECT_TRUE(same_bits(result(up, dense2.view(), true).view(), want.view())) << T;
        if (!on_cuda()) continue;  // widths that tensor cores do not take
        EXPECT_TRUE(same_bits(result(up, down, false).view(), want.view())) << T;
      }
    }
  }
}

// Few tokens have kernels of their own for most formats; widths that end within a load, a shared
// expert of the same format, experts without a gate. Out of exact mode integer codes are multiplied
// with activations as integers.
TEST_P(MoeDeviceTest, AFewTokensOfQuantisedExpertsHaveTheBitsOfDequantisedOnes) {
  if (!on_cuda()) GTEST_SKIP() << "the CPU multiplies them as it does more";
  constexpr int64_t kE = 20, kA = 2;
  int num_taken = 0;
  for (const testing::PackedForm& form : testing::packed_forms()) {
    for (const auto& [H, I] : {std::pair<int64_t, int64_t>{512, 256}, {584, 328}, {1416, 576}}) {
      const bool gated = H != 584;
      const int64_t rows = gated ? 2 * I : I;
      const auto random = [&](const Shape& shape, uint64_t seed) {
        const int64_t K = shape[shape.rank() - 1];
        return testing::PackedTensor(
            shape, testing::random_matrix(form, shape.num_elements() / K, K, seed), false);
      };
      const testing::PackedTensor w13 = random({kE, rows, H}, 1), w2 = random({kE, H, I}, 2);
      const testing::PackedTensor own = random({H, I}, 3);
      const DevicePacked w13_here = upload(w13.weight()), w2_here = upload(w2.weight());
      const DevicePacked own_here = upload(own.weight());
      const DeviceTensor dense13 = upload(w13.dequantised()), dense2 = upload(w2.dequantised());
      const DeviceTensor dense_own = upload(own.dequantised());
      for (const int64_t T : {1, 3}) {
        SCOPED_TRACE(fmt::format("{}, {} x {}, T = {}", form.name, H, I, T));
        const DeviceTensor x = upload(random_tensor({T, H}, DType::kBf16, 4));
        const DeviceTensor logits = upload(scaled_tensor({T, kE}, DType::kF32, 5, 3.0f));
        const DeviceTensor gate_up = upload(random_tensor({T, 2 * I}, DType::kF32, 6));
        const DeviceTensor gate = upload(random_tensor({T, 1}, DType::kF32, 7));
        const DeviceTensor biases = upload(random_tensor({kE, rows}, DType::kF32, 8));
        DeviceTensor hidden = poisoned({T, I}, DType::kBf16);
        DeviceTensor shared_y = poisoned({T, H}, DType::kBf16);
        const auto result = [&](const TensorView& up, const TensorView& down,
                                const TensorView& shared_down,
                                bool exact) -> std::optional<Tensor> {
          DeviceTensor y = poisoned({T, H}, DType::kBf16);
          RoutedMoeArgs args{.x = x.view(),
                             .router_logits = logits.view(),
                             .w13 = up,
                             .w2 = down,
                             .w13_bias = biases.view(),
                             .y = y.view(),
                             .experts_per_token = kA};
          if (gated) {
            args.shared = SharedExpert{.gate_up = gate_up.view(),
                                       .down = shared_down,
                                       .gate = gate.view(),
                                       .hidden = hidden.view(),
                                       .y = shared_y.view()};
          } else {
            args.activation = {.form = ExpertForm::kSquaredRelu};
          }
          if (up.packed != nullptr) {
            const bool few =
                few_experts_add(static_cast<const CudaContext&>(context(exact)), args, T);
            if (!few) return {};
            ++num_taken;
          }
          const Status status = run(args, exact);
          EXPECT_TRUE(status.ok()) << status.to_string();
          return download(y);
        };
        const Tensor want = result(dense13.view(), dense2.view(), dense_own.view(), true).value();
        for (const bool exact : {false, true}) {
          const std::optional<Tensor> got = result(
              w13_here.view({kE, rows, H}), w2_here.view({kE, H, I}), own_here.view({H, I}), exact);
          if (!got) continue;
          const bool as_integers =
              !exact && (form.code == quant::Code::kU4 || form.code == quant::Code::kU8);
          if (!as_integers) {
            EXPECT_TRUE(same_bits(got->view(), want.view())) << exact;
            continue;
          }
          const std::vector<double> near = heddle::testing::to_doubles(want.view());
          const std::vector<double> values = heddle::testing::to_doubles(got->view());
          double scale = 0;
          for (const double value : near) scale = std::max(scale, std::fabs(value));
          for (size_t i = 0; i < near.size(); ++i) {
            ASSERT_NEAR(values[i], near[i], 2 * rounding_of(DType::kBf16) * scale) << i;
          }
        }
      }
    }
  }
  EXPECT_EQ(num_taken, (9 + 4) * 3 * 2)
      << "all forms but those of groups that are no whole loads, in exact mode no integers";
}

// Some tokens for each expert: codes on tensor cores. Tiles of one row, of eight and of more than
// sixteen; padding, which goes where the first row goes, changes no bit of the others.
TEST_P(MoeDeviceTest, SomeTokensOfQuantisedExpertsMatchTheReferenceAndPaddingChangesNone) {
  if (!on_cuda()) GTEST_SKIP() << "batches are padded on a device that captures";

  struct Case {
    int64_t T, H, I, E, A;
  };

  std::vector<std::string> other_bits;  // than row products'
  for (const testing::PackedForm& form : testing::packed_forms()) {
    for (const auto& [T, H, I, E, A] :
         {Case{17, 256, 128, 20, 2}, Case{40, 640, 384, 7, 2}, Case{18, 1152, 640, 40, 1}}) {
      SCOPED_TRACE(fmt::format("{}, T = {}, H = {}", form.name, T, H));
      const testing::PackedTensor w13({E, 2 * I, H}, testing::random_matrix(form, E * 2 * I, H, 1),
                                      false);
      const testing::PackedTensor w2({E, H, I}, testing::random_matrix(form, E * H, I, 2), false);
      const Tensor dense13 = w13.dequantised(), dense2 = w2.dequantised();
      const DevicePacked w13_here = upload(w13.weight()), w2_here = upload(w2.weight());
      const int64_t padded = T + 5;
      Tensor x = scaled_tensor({padded, H}, DType::kBf16, 3, 0.1f);
      Tensor logits = scaled_tensor({padded, E}, DType::kF32, 4, 3.0f);
      std::ranges::fill(x.span<Bf16>().subspan(static_cast<size_t>(T * H)), Bf16{0x7fc0});
      std::vector<int32_t> sequences(static_cast<size_t>(padded), -1);
      std::iota(sequences.begin(), sequences.begin() + T, 0);
      const MirroredSpan<int32_t> rows = mirrored(sequences);
      const Tensor w13_bias = random_tensor({E, 2 * I}, DType::kF32, 5);
      const Tensor w2_bias = random_tensor({E, H}, DType::kF32, 6);
      const DeviceTensor x_here = upload(x), logits_here = upload(logits);
      const DeviceTensor w13_bias_here = upload(w13_bias), w2_bias_here = upload(w2_bias);
      const auto result = [&](int64_t count, const int32_t* row_sequences, bool exact) {
        DeviceTensor y = poisoned({count, H}, DType::kBf16);
        const Status status = run({.x = rows_of(x_here.view(), 0, count),
                                   .router_logits = rows_of(logits_here.view(), 0, count),
                                   .w13 = w13_here.view({E, 2 * I, H}),
                                   .w2 = w2_here.view({E, H, I}),
                                   .w13_bias = w13_bias_here.view(),
                                   .w2_bias = w2_bias_here.view(),
                                   .y = y.view(),
                                   .experts_per_token = A,
                                   .row_sequences = row_sequences},
                                  exact);
        EXPECT_TRUE(status.ok()) << status.to_string();
        return download(y);
      };
      const Tensor alone = result(T, nullptr, false);
      const Tensor together = result(padded, rows.device, false);
      EXPECT_TRUE(same_bits(rows_of(together.view(), 0, T), alone.view()));
      // Of the widest case, where so many sums do not all round alike; longer steps are not row
      // products in any form.
      if (T == 18 && !same_bits(alone.view(), result(T, nullptr, true).view())) {
        other_bits.emplace_back(form.name);
      }
      const RoutedMoeArgs truth{.x = x.view(),
                                .router_logits = logits.view(),
                                .w13 = dense13.view(),
                                .w2 = dense2.view(),
                                .w13_bias = w13_bias.view(),
                                .w2_bias = w2_bias.view(),
                                .y = {},
                                .experts_per_token = A};
      const std::vector<double> got = heddle::testing::to_doubles(alone.view());
      for (int64_t t = 0; t < T; ++t) {
        const std::vector<double> want =
            routed_moe_reference(truth, t, moe_route_reference(logits.view(), t, A, true));
        double scale = 0;
        for (const double value : want) scale = std::max(scale, std::fabs(value));
        for (int64_t h = 0; h < H; ++h) {
          ASSERT_NEAR(got[static_cast<size_t>(t * H + h)], want[static_cast<size_t>(h)],
                      (2e-5 + 4 * rounding_of(DType::kBf16)) * scale)
              << fmt::format("y[{}, {}]", t, h);
        }
      }
    }
  }
  EXPECT_THAT(other_bits, ::testing::ElementsAre("AWQ in wide groups", "compressed-tensors, 4 bits",
                                                 "INT8", "FP8, a scale a row", "FP8 in blocks",
                                                 "FP8 in blocks of 16 rows", "MXFP4"))
      << "wide groups of integers, E4M3 and MXFP4 are tensor cores' sums";
}

// Long steps make quantised experts dense, in the last case in two rounds.
TEST_P(MoeDeviceTest, LongStepsOfQuantisedExpertsHaveTheBitsOfDenseOnes) {
  if (!on_cuda()) GTEST_SKIP() << "the CPU dequantises a few rows at a time";

  struct Case {
    int64_t T, H, I, E, A;
    size_t form;
    bool plain_down;
  };

  const auto forms = testing::packed_forms();
  for (const auto& [T, H, I, E, A, form, plain_down] :
       {Case{64, 256, 128, 4, 1, 0, false}, Case{130, 320, 192, 3, 2, 9, false},
        Case{200, 192, 320, 5, 2, 11, false}, Case{200, 256, 128, 5, 2, 5, true},
        Case{2180, 1024, 512, 68, 1, 9, false}}) {
    SCOPED_TRACE(fmt::format("{}, T = {}", forms[form].name, T));
    const auto bf16 = [](const testing::PackedTensor& packed) {
      const Tensor floats = packed.dequantised();
      Tensor narrow(floats.shape(), DType::kBf16);
      std::ranges::transform(floats.span<float>(), narrow.span<Bf16>().begin(), to_bf16);
      return narrow;
    };
    const testing::PackedTensor w13({E, 2 * I, H},
                                    testing::random_matrix(forms[form], E * 2 * I, H, 1), false);
    const testing::PackedTensor w2({E, H, I}, testing::random_matrix(forms[form], E * H, I, 2),
                                   false);
    const DevicePacked w13_here = upload(w13.weight()), w2_here = upload(w2.weight());
    const DeviceTensor dense13 = upload(bf16(w13)), dense2 = upload(bf16(w2));
    const DeviceTensor x = upload(random_tensor({T, H}, DType::kBf16, 3));
    const DeviceTensor logits = upload(scaled_tensor({T, E}, DType::kF32, 4, 3.0f));
    const DeviceTensor w13_bias = upload(random_tensor({E, 2 * I}, DType::kF32, 5));
    const DeviceTensor w2_bias = upload(random_tensor({E, H}, DType::kF32, 6));
    const auto result = [&](const TensorView& up, const TensorView& down) {
      DeviceTensor y = poisoned({T, H}, DType::kBf16);
      const Status status = run({.x = x.view(),
                                 .router_logits = logits.view(),
                                 .w13 = up,
                                 .w2 = down,
                                 .w13_bias = w13_bias.view(),
                                 .w2_bias = w2_bias.view(),
                                 .y = y.view(),
                                 .activation = {.limit = 7.0f, .alpha = 1.702f},
                                 .experts_per_token = A},
                                false);
      EXPECT_TRUE(status.ok()) << status.to_string();
      return download(y);
    };
    const Tensor want = result(dense13.view(), dense2.view());
    const TensorView down = plain_down ? dense2.view() : w2_here.view({E, H, I});
    EXPECT_TRUE(same_bits(result(w13_here.view({E, 2 * I, H}), down).view(), want.view()));
  }
}

TEST_P(MoeDeviceTest, PaddingChangesNoTokenOfQuantisedExperts) {
  if (!on_cuda()) GTEST_SKIP() << "batches are padded on a device that captures";
  constexpr int64_t kT = 8, kReal = 5, kE = 9, kH = 2880, kI = 576, kA = 3;
  Tensor scores = scaled_tensor({kT, kE}, DType::kF32, 6, 3.0f);
  Tensor x = scaled_tensor({kT, kH}, DType::kBf16, 5, 1.0f);
  std::ranges::fill(scores.span<float>().subspan(kReal * kE),
                    std::numeric_limits<float>::quiet_NaN());
  std::ranges::fill(x.span<Bf16>().subspan(kReal * kH), Bf16{0x7fc0});
  std::vector<int32_t> sequences(kT, -1);
  std::iota(sequences.begin(), sequences.begin() + kReal, 0);
  const MirroredSpan<int32_t> rows = mirrored(sequences);
  const DeviceTensor x_here = upload(x), logits = upload(scores);
  // Of integers eight tokens and five have other kernels, but in exact mode.
  for (const auto& [form, exact] : {std::pair<size_t, bool>{0, true}, {9, false}, {11, false}}) {
    const testing::PackedForm chosen = testing::packed_forms()[form];
    const testing::PackedTensor w13({kE, 2 * kI, kH},
                                    testing::random_matrix(chosen, kE * 2 * kI, kH, 1), false);
    const testing::PackedTensor w2({kE, kH, kI}, testing::random_matrix(chosen, kE * kH, kI, 2),
                                   false);
    const DevicePacked w13_here = upload(w13.weight()), w2_here = upload(w2.weight());
    const auto result = [&, is_exact = exact](int64_t count, const int32_t* row_sequences) {
      DeviceTensor y = poisoned({count, kH}, DType::kBf16);
      EXPECT_TRUE(run({.x = rows_of(x_here.view(), 0, count),
                       .router_logits = rows_of(logits.view(), 0, count),
                       .w13 = w13_here.view({kE, 2 * kI, kH}),
                       .w2 = w2_here.view({kE, kH, kI}),
                       .y = y.view(),
                       .experts_per_token = kA,
                       .row_sequences = row_sequences},
                      is_exact)
                      .ok());
      return download(y);
    };
    const Tensor padded = result(kT, rows.device);
    const Tensor alone = result(kReal, nullptr);
    EXPECT_TRUE(same_bits(rows_of(padded.view(), 0, kReal), alone.view())) << chosen.name;
    for (const double value : heddle::testing::to_doubles(alone.view())) {
      ASSERT_TRUE(std::isfinite(value));
    }
  }
}

}  // namespace

}  // namespace heddle::ops
