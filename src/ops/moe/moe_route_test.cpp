// SPDX-License-Identifier: Apache-2.0
#include "ops/moe/moe_route.h"

#include <cmath>
#include <limits>
#include <set>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/gemm/product_fixture.h"
#include "ops/moe/routed_moe_reference.h"
#include "ops/simd/targets.h"

// clang-format off
#include <hwy/targets.h>  // after targets.h, which says what is compiled
// clang-format on

namespace heddle::ops {

namespace {

using testing::GuardedTensor;

struct Routing {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

Routing route(const TensorView& logits, int64_t A, bool renormalize, int num_threads = 2) {
  device::ThreadPool pool(num_threads);
  CpuContext context(pool);
  const int64_t T = logits.shape[0];
  Routing result{std::vector<int32_t>(static_cast<size_t>(T * A), -1),
                 std::vector<float>(static_cast<size_t>(T * A), -1.0f)};
  const Status status = moe_route(context, {.logits = logits,
                                            .experts = {result.experts.data(), DType::kI32, {T, A}},
                                            .weights = {result.weights.data(), DType::kF32, {T, A}},
                                            .renormalize = renormalize});
  EXPECT_TRUE(status.ok()) << status.to_string();
  return result;
}

Routing route_one(std::vector<float> logits, int64_t A) {
  return route({logits.data(), DType::kF32, {1, static_cast<int64_t>(logits.size())}}, A, true);
}

TEST(MoeRouteTest, MatchesTheReference) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    for (const auto& [E, A] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 1}, {8, 3}, {16, 4}, {60, 4}, {67, 64}, {512, 10}}) {
      for (const bool renormalize : {false, true}) {
        constexpr int64_t kT = 37;
        GuardedTensor logits({kT, E}, DType::kF32, 3);
        logits.randomize(static_cast<uint64_t>(E), 8.0f);
        const Routing got = route(logits.view(), A, renormalize);
        for (int64_t t = 0; t < kT; ++t) {
          const RouteReference want = moe_route_reference(logits.view(), t, A, renormalize);
          for (int64_t a = 0; a < A; ++a) {
            const auto i = static_cast<size_t>(t * A + a);
            ASSERT_EQ(got.experts[i], want.experts[static_cast<size_t>(a)])
                << fmt::format("E = {}, t = {}, a = {}", E, t, a);
            // exp to 1.5 ulp at arguments rounded to fp32, a sum of E terms, two divisions.
            EXPECT_NEAR(got.weights[i], want.weights[static_cast<size_t>(a)],
                        4e-6 * want.weights[static_cast<size_t>(a)]);
          }
        }
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(MoeRouteTest, PrefersTheLowerIdAmongEqualLogits) {
  std::vector<float> logits(40, 1.0f);
  EXPECT_EQ(route_one(logits, 4).experts, (std::vector<int32_t>{0, 1, 2, 3}));
  logits[33] = 2.0f;
  logits[35] = 2.0f;
  EXPECT_EQ(route_one(logits, 4).experts, (std::vector<int32_t>{33, 35, 0, 1}));
  // Softmax cannot tell these apart any more: the logits still can.
  std::vector<float> far(40, -1e4f);
  far[20] = 0.0f;
  far[39] = -1e3f;
  EXPECT_EQ(route_one(far, 2).experts, (std::vector<int32_t>{20, 39}));
}

TEST(MoeRouteTest, SurvivesWhatIsNotANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& pattern : std::vector<std::vector<float>>{
           {nan}, {nan, 1.0f}, {inf, 0.0f}, {-inf}, {inf}, {nan, inf, -inf}}) {
    std::vector<float> logits;
    for (size_t i = 0; i < 50; ++i) logits.push_back(pattern[i % pattern.size()]);
    const Routing got = route_one(logits, 8);
    const std::set<int32_t> distinct(got.experts.begin(), got.experts.end());
    EXPECT_EQ(distinct.size(), 8u);
    EXPECT_GE(*distinct.begin(), 0);
    EXPECT_LT(*distinct.rbegin(), 50);
    for (const float weight : got.weights) EXPECT_TRUE(std::isnan(weight));
  }
  // A NaN is never preferred to a number.
  std::vector<float> one_nan(20, 0.0f);
  one_nan[0] = nan;
  EXPECT_EQ(route_one(one_nan, 3).experts, (std::vector<int32_t>{1, 2, 3}));
  // -inf excludes an expert without harming the others.
  std::vector<float> masked(20, 0.0f);
  masked[0] = -inf;
  const Routing got = route_one(masked, 2);
  EXPECT_EQ(got.experts, (std::vector<int32_t>{1, 2}));
  EXPECT_FLOAT_EQ(got.weights[0], 0.5f);
}

TEST(MoeRouteTest, GivesATokenTheSameBitsInEveryBatch) {
  GuardedTensor logits({300, 64}, DType::kF32);
  logits.randomize(5, 4.0f);
  const Routing together = route(logits.view(), 8, true);
  for (int64_t t = 0; t < 300; ++t) {
    const Routing alone = route({logits.view().row<float>(t), DType::kF32, {1, 64}}, 8, true, 1);
    for (size_t a = 0; a < 8; ++a) {
      ASSERT_EQ(alone.experts[a], together.experts[static_cast<size_t>(t) * 8 + a]);
      ASSERT_EQ(alone.weights[a], together.weights[static_cast<size_t>(t) * 8 + a]);
    }
  }
}

struct Scored {
  std::vector<float> correction;
  RouterScoring scoring;
  bool renormalize = true;
};

MoeRouteArgs scored_args(const Scored& how, const TensorView& logits, int64_t A, Routing& result) {
  const int64_t T = logits.shape[0];
  result.experts.assign(static_cast<size_t>(T * A), -1);
  result.weights.assign(static_cast<size_t>(T * A), -1.0f);
  MoeRouteArgs args{.logits = logits,
                    .experts = {result.experts.data(), DType::kI32, {T, A}},
                    .weights = {result.weights.data(), DType::kF32, {T, A}},
                    .renormalize = how.renormalize,
                    .scoring = how.scoring};
  if (!how.correction.empty()) {
    args.correction = TensorView(how.correction.data(), DType::kF32,
                                 {static_cast<int64_t>(how.correction.size())});
  }
  return args;
}

Status route_scored(const Scored& how, const TensorView& logits, int64_t A, Routing& result,
                    int num_threads = 2) {
  device::ThreadPool pool(num_threads);
  CpuContext context(pool);
  return moe_route(context, scored_args(how, logits, A, result));
}

// The published values: eight experts in four groups of two, and the best raw expert, 3, is not
// among the chosen.
TEST(MoeRouteTest, ChoosesByCorrectedScoresOfTheBestGroups) {
  std::vector<float> logits{0.2f, 1, -0.5f, 2, 0.1f, 0.3f, 1.5f, -1};
  const Scored how{.correction = {0, 0.3f, 0, -0.5f, 0, 0, 0, 0.2f},
                   .scoring = {.score = RouterScore::kSigmoid,
                               .num_groups = 4,
                               .groups_kept = 2,
                               .group_terms = 2,
                               .scale = 2.5f}};
  Routing got;
  ASSERT_TRUE(route_scored(how, {logits.data(), DType::kF32, {1, 8}}, 2, got).ok());
  EXPECT_EQ(got.experts, (std::vector<int32_t>{1, 6}));
  EXPECT_NEAR(got.weights[0], 1.18016753f, 1e-6f);
  EXPECT_NEAR(got.weights[1], 1.31983247f, 1e-6f);
}

TEST(MoeRouteTest, MatchesTheReferenceForEveryScoring) {
  struct Case {
    int64_t E, A, groups, kept;
  };

  constexpr int64_t kT = 64;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    for (const auto& [E, A, groups, kept] : {Case{8, 3, 4, 2}, Case{15, 4, 3, 1}, Case{64, 6, 1, 1},
                                             Case{160, 6, 8, 3}, Case{256, 8, 8, 4}}) {
      for (int variant = 0; variant < 16; ++variant) {
        Scored how{
            .correction = {},
            .scoring = {.score = (variant & 1) != 0 ? RouterScore::kSigmoid : RouterScore::kSoftmax,
                        .num_groups = groups,
                        .groups_kept = kept,
                        .group_terms = (variant & 2) != 0 ? 2 : 1,
                        .scale = 1.5f,
                        .sum_epsilon = (variant & 2) != 0 ? 1e-6f : 0.25f},
            .renormalize = (variant & 4) != 0};
        if ((variant & 8) != 0) {
          GuardedTensor correction({1, E}, DType::kF32);
          correction.randomize(static_cast<uint64_t>(variant), 0.2f);
          how.correction.assign(correction.view().as<float>(), correction.view().as<float>() + E);
        }
        GuardedTensor logits({kT, E}, DType::kF32, 3);
        logits.randomize(static_cast<uint64_t>(E + variant), 4.0f);
        Routing got;
        ASSERT_TRUE(route_scored(how, logits.view(), A, got).ok());
        Routing unused;
        const MoeRouteArgs args = scored_args(how, logits.view(), A, unused);
        for (int64_t t = 0; t < kT; ++t) {
          const RouteReference want = scored_route_reference(args, t, A);
          for (int64_t a = 0; a < A; ++a) {
            const auto i = static_cast<size_t>(t * A + a);
            ASSERT_EQ(got.experts[i], want.experts[static_cast<size_t>(a)])
                << fmt::format("{} E = {}, variant = {}, t = {}, a = {}", hwy::TargetName(target),
                               E, variant, t, a);
            EXPECT_NEAR(got.weights[i], want.weights[static_cast<size_t>(a)],
                        4e-6 * want.weights[static_cast<size_t>(a)]);
          }
        }
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

// Expected values follow the published code: ties, negative logits, and a second choice whose
// weight does not count the first.
TEST(MoeRouteTest, SparsemixerWeighsAChoiceAmongCloseLogits) {
  const Scored how{.correction = {},
                   .scoring = {.score = RouterScore::kSparsemixer, .nearness = 0.02f},
                   .renormalize = false};
  const auto logistic = [](float x) { return 1 / (1 + std::exp(-x)); };
  const float inf = std::numeric_limits<float>::infinity();
  for (const auto& [row, experts, weights] :
       std::vector<std::tuple<std::vector<float>, std::vector<int32_t>, std::vector<float>>>{
           {{2, 1.99f, 1, -3}, {0, 1}, {0.50249998f, 1}},
           {{0, 0, 0, 0}, {0, 1}, {1.0f / 4, 1.0f / 3}},
           {{-5, -1.01f, -1, -1.02f},
            {2, 1},
            {1 / (1 + std::exp(-0.01f) + std::exp(-0.02f)), logistic(0.01f)}},
           {{-3, 1, 2, -inf}, {2, 1}, {1, 1}},
           {{std::nanf(""), 1, 2, 0}, {2, 1}, {NAN, NAN}}}) {
    Routing got;
    ASSERT_TRUE(route_scored(how, {row.data(), DType::kF32, {1, 4}}, 2, got).ok());
    EXPECT_EQ(got.experts, experts);
    for (size_t a = 0; a < 2; ++a) {
      if (std::isnan(weights[a])) {
        EXPECT_TRUE(std::isnan(got.weights[a]));
      } else {
        EXPECT_NEAR(got.weights[a], weights[a], 1e-6f) << row[0] << ", " << a;
      }
    }
  }
  GuardedTensor logits({300, 16}, DType::kF32, 3);
  logits.randomize(7, 4.0f);
  Scored far = how;
  far.scoring.nearness = 0.4f;
  Routing got, unused;
  ASSERT_TRUE(route_scored(far, logits.view(), 2, got).ok());
  for (int64_t t = 0; t < 300; ++t) {
    const RouteReference want =
        scored_route_reference(scored_args(far, logits.view(), 2, unused), t, 2);
    for (size_t a = 0; a < 2; ++a) {
      const auto i = static_cast<size_t>(t) * 2 + a;
      ASSERT_EQ(got.experts[i], want.experts[a]) << t;
      EXPECT_NEAR(got.weights[i], want.weights[a], 1e-6 * want.weights[a]) << t;
    }
  }
  far.correction.assign(16, 0);
  EXPECT_FALSE(route_scored(far, logits.view(), 2, got).ok());
}

TEST(MoeRouteTest, ScoredTokensHaveTheSameBitsInEveryBatch) {
  GuardedTensor logits({300, 64}, DType::kF32);
  logits.randomize(5, 4.0f);
  const Scored how{
      .correction = std::vector<float>(64, 0.25f),
      .scoring = {
          .score = RouterScore::kSigmoid, .num_groups = 8, .groups_kept = 3, .group_terms = 2}};
  Routing together;
  ASSERT_TRUE(route_scored(how, logits.view(), 8, together, 3).ok());
  for (int64_t t = 0; t < 300; ++t) {
    Routing alone;
    const TensorView row{logits.view().row<float>(t), DType::kF32, {1, 64}};
    ASSERT_TRUE(route_scored(how, row, 8, alone, 1).ok());
    for (size_t a = 0; a < 8; ++a) {
      ASSERT_EQ(alone.experts[a], together.experts[static_cast<size_t>(t) * 8 + a]);
      ASSERT_EQ(alone.weights[a], together.weights[static_cast<size_t>(t) * 8 + a]);
    }
  }
}

TEST(MoeRouteTest, ScoredTokensSurviveTiesAndWhatIsNotANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Scored how{
      .correction = {},
      .scoring = {
          .score = RouterScore::kSigmoid, .num_groups = 4, .groups_kept = 2, .group_terms = 2}};
  std::vector<float> logits(16, 1.0f);
  const TensorView row{logits.data(), DType::kF32, {1, 16}};
  Routing got;
  ASSERT_TRUE(route_scored(how, row, 3, got).ok());
  EXPECT_EQ(got.experts, (std::vector<int32_t>{0, 1, 2})) << "ties go to the lower ids";
  logits[0] = nan;  // the last within its group
  ASSERT_TRUE(route_scored(how, row, 8, got).ok());
  EXPECT_EQ(got.experts, (std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 0}));
  for (const auto score : {RouterScore::kSigmoid, RouterScore::kSoftmax}) {
    how.scoring.score = score;
    std::ranges::fill(logits, nan);
    ASSERT_TRUE(route_scored(how, row, 8, got).ok());
    EXPECT_EQ(std::set<int32_t>(got.experts.begin(), got.experts.end()).size(), 8u);
    for (const float weight : got.weights) EXPECT_TRUE(std::isnan(weight));
  }
}

TEST(MoeRouteTest, NamesScoringThatDoesNotFit) {
  GuardedTensor logits({1, 12}, DType::kF32);
  logits.randomize(1);
  const auto message = [&](const RouterScoring& scoring, int64_t A, size_t num_corrections) {
    Routing got;
    return route_scored({.correction = std::vector<float>(num_corrections), .scoring = scoring},
                        logits.view(), A, got)
        .message();
  };
  EXPECT_EQ(message({.num_groups = 5}, 2, 0),
            "moe_route: 1 of 5 groups of 12 experts cannot be kept");
  EXPECT_EQ(message({.num_groups = 3, .groups_kept = 4}, 2, 0),
            "moe_route: 4 of 3 groups of 12 experts cannot be kept");
  EXPECT_EQ(message({.num_groups = 4, .groups_kept = 2}, 7, 0),
            "moe_route: 2 groups of 3 experts have no 7 to choose");
  EXPECT_EQ(message({.group_terms = 3}, 2, 0),
            "moe_route: groups of 12 experts are ranked by 3 of them; 1 and 2 are served");
  EXPECT_EQ(message({}, 2, 11), "moe_route: correction has E = 11, the contract has E = 12");
}

TEST(MoeRouteTest, RefusesMoreExpertsThanThereAre) {
  device::ThreadPool pool(1);
  CpuContext context(pool);
  GuardedTensor logits({1, 4}, DType::kF32);
  std::vector<int32_t> ids(5);
  std::vector<float> weights(5);
  const Status status = moe_route(context, {.logits = logits.view(),
                                            .experts = {ids.data(), DType::kI32, {1, 5}},
                                            .weights = {weights.data(), DType::kF32, {1, 5}}});
  EXPECT_EQ(status.message(),
            "moe_route: A, the experts per token, is 5, it must be in [1, min(E, 64)]");
}

}  // namespace

}  // namespace heddle::ops
