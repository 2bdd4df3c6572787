// SPDX-License-Identifier: Apache-2.0
#include "ops/moe/routed_moe.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include "ops/gemm/product_fixture.h"
#include "ops/gemm/product_tasks.h"
#include "ops/moe/expert_sort.h"
#include "ops/moe/routed_moe_reference.h"
#include "ops/registry.h"

namespace heddle::ops {

namespace {

using testing::GuardedTensor;

// A block with its weights and scratch.
struct Block {
  RoutedMoeShape shape;
  GuardedTensor w13;
  GuardedTensor w2;
  GuardedTensor w13_bias;
  GuardedTensor w2_bias;
  GuardedTensor scales;
  ExpertActivation activation;
  bool biased = false;
  bool scaled = false;
  device::ThreadPool pool;

  explicit Block(const RoutedMoeShape& s, int num_threads = 2)
      : shape(s),
        w13({s.E, 2 * s.I, s.H}, s.weight, 5),
        w2({s.E, s.H, s.I}, s.weight),
        w13_bias({s.E, 2 * s.I}, DType::kF32),
        w2_bias({s.E, s.H}, DType::kF32),
        scales({1, s.E}, DType::kF32),
        pool(num_threads) {
    w13.randomize(1, 0.3f);
    w2.randomize(2, 0.3f);
    w13_bias.randomize(9);
    w2_bias.randomize(10);
    scales.randomize(11);
  }

  [[nodiscard]] RoutedMoeArgs args(const TensorView& x, const TensorView& logits,
                                   const MutableTensorView& y) {
    RoutedMoeArgs moe{.x = x,
                      .router_logits = logits,
                      .w13 = w13.view(),
                      .w2 = w2.view(),
                      .y = y,
                      .activation = activation,
                      .experts_per_token = shape.A};
    if (biased) {
      moe.w13_bias = w13_bias.view();
      moe.w2_bias = w2_bias.view();
    }
    if (rows_per_hidden(activation.form) == 1) {  // the front of each expert's rows
      moe.w13.shape = {shape.E, shape.I, shape.H};
      if (biased) moe.w13_bias = {moe.w13_bias.data, DType::kF32, {shape.E, shape.I}};
    }
    if (scaled) moe.expert_scales = {scales.view().as<float>(), DType::kF32, {shape.E}};
    return moe;
  }

  Status run(const TensorView& x, const TensorView& logits, const MutableTensorView& y,
             bool exact) {
    CpuContext context(pool, exact);
    return run(context, x, logits, y);
  }

  Status run(CpuContext& context, const TensorView& x, const TensorView& logits,
             const MutableTensorView& y) {
    std::vector<std::byte> workspace(
        static_cast<size_t>(routed_moe_workspace_bytes(context, x.shape[0], shape)));
    RoutedMoeArgs moe = args(x, logits, y);
    moe.workspace = workspace;
    return routed_moe(context, moe);
  }
};

TEST(RoutedMoeTest, MatchesTheReference) {
  for (const auto& [exact, bf16] : {std::pair(false, false), {false, true}, {true, true}}) {
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
      for (const RoutedMoeShape& shape :
           {RoutedMoeShape{.H = 64, .I = 32, .E = 8, .A = 3, .weight = dtype},
            RoutedMoeShape{.H = 37, .I = 13, .E = 5, .A = 5, .weight = dtype}}) {
        for (const int64_t T : {1, 2, 9, 12, 13, 70}) {
          SCOPED_TRACE(fmt::format("T = {}, H = {}, {}, exact = {}, bf16 = {}", T, shape.H,
                                   to_string(dtype), exact, bf16));
          Block block(shape);
          block.biased = T % 2 == 0;
          block.scaled = T > 2;
          if (T == 2) block.activation = {.limit = 0.7f, .alpha = 1.702f};  // often reached
          if (T == 9) block.activation = {.form = ExpertForm::kGeglu};
          if (T == 12 || T == 13) block.activation = {.form = ExpertForm::kSquaredRelu};
          if (T == 70) block.activation = {.form = ExpertForm::kBoundedSwiglu, .limit = 0.7f};
          GuardedTensor x({T, shape.H}, DType::kF32, 3);
          GuardedTensor logits({T, shape.E}, DType::kF32, 1);
          GuardedTensor y({T, shape.H}, DType::kF32, 2);
          x.randomize(3);
          logits.randomize(4, 3.0f);
          CpuContext context(block.pool, exact, testing::instructions(bf16));
          const Status status = block.run(context, x.view(), logits.view(), y.view());
          ASSERT_TRUE(status.ok()) << status.to_string();
          // fp32: a few hundred roundings of 2^-24. With x and the hidden row rounded to bf16 two
          // factors are off by up to 2^-8 each, which average over the sums.
          const bool rounded = rounds_x(dtype, product_options(context));
          for (int64_t t = 0; t < T; ++t) {
            RouteReference route = moe_route_reference(logits.view(), t, shape.A, true);
            for (size_t a = 0; a < route.experts.size() && block.scaled; ++a) {
              route.weights[a] *=
                  static_cast<double>(block.scales.view().as<float>()[route.experts[a]]);
            }
            const std::vector<double> want =
                routed_moe_reference(block.args(x.view(), logits.view(), y.view()), t, route);
            double scale = 0;
            for (const double value : want) scale = std::max(scale, std::fabs(value));
            for (int64_t h = 0; h < shape.H; ++h) {
              ASSERT_NEAR(y.view().row<float>(t)[h], want[static_cast<size_t>(h)],
                          (rounded ? 2e-2 : 2e-5) * scale)
                  << fmt::format("y[{}, {}]", t, h);
            }
          }
          EXPECT_TRUE(y.padding_untouched());
        }
      }
    }
  }
}

TEST(RoutedMoeTest, ExactTokensHaveTheSameBitsInEveryBatch) {
  constexpr int64_t kT = 70;
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    const RoutedMoeShape shape{.H = 67, .I = 40, .E = 8, .A = 3, .weight = dtype};
    Block block(shape, 3);
    Block single(shape, 1);
    block.biased = single.biased = dtype != DType::kBf16;
    block.activation =
        single.activation = {.limit = dtype == DType::kF32 ? 0.7f : 0.0f, .alpha = 1.702f};
    GuardedTensor x({kT, shape.H}, DType::kF32);
    GuardedTensor logits({kT, shape.E}, DType::kF32);
    GuardedTensor alone({kT, shape.H}, DType::kF32);
    x.randomize(5);
    logits.randomize(6, 3.0f);
    for (int64_t t = 0; t < kT; ++t) {
      ASSERT_TRUE(single
                      .run({x.view().row<float>(t), DType::kF32, {1, shape.H}},
                           {logits.view().row<float>(t), DType::kF32, {1, shape.E}},
                           {alone.view().row<float>(t), DType::kF32, {1, shape.H}}, /*exact=*/true)
                      .ok());
    }
    for (const int64_t T : {2, 3, 7, 16, 33, 70}) {
      const int64_t first = kT - T;
      GuardedTensor y({T, shape.H}, DType::kF32);
      ASSERT_TRUE(block
                      .run({x.view().row<float>(first), DType::kF32, {T, shape.H}},
                           {logits.view().row<float>(first), DType::kF32, {T, shape.E}}, y.view(),
                           /*exact=*/true)
                      .ok());
      EXPECT_EQ(std::memcmp(y.view().data, alone.view().row<float>(first),
                            static_cast<size_t>(T * shape.H) * sizeof(float)),
                0)
          << to_string(dtype) << ", T = " << T;
    }
  }
}

// More tokens than one pass takes, and a token that is not a number among them.
TEST(RoutedMoeTest, KeepsABrokenTokenToItselfAcrossPasses) {
  constexpr int64_t kT = 1030;
  constexpr int64_t kBroken = 1026;
  const RoutedMoeShape shape{.H = 16, .I = 8, .E = 4, .A = 2, .weight = DType::kBf16};
  Block block(shape);
  GuardedTensor x({kT, shape.H}, DType::kF32);
  GuardedTensor logits({kT, shape.E}, DType::kF32);
  GuardedTensor y({kT, shape.H}, DType::kF32);
  x.randomize(7);
  logits.randomize(8);
  logits.view().row<float>(kBroken)[1] = testing::kNaN;
  for (const bool exact : {false, true}) {
    ASSERT_TRUE(block.run(x.view(), logits.view(), y.view(), exact).ok());
    for (int64_t t = 0; t < kT; ++t) {
      for (int64_t h = 0; h < shape.H; ++h) {
        ASSERT_EQ(std::isnan(y.view().row<float>(t)[h]), t == kBroken) << t;
      }
    }
  }
}

// One expert whose hidden row is its bias and whose second product copies it: the published values
// of the bounded SwiGLU, far outside its limit on either side.
TEST(RoutedMoeTest, BoundsGateFromAboveAndUpFromBothSides) {
  struct Sample {
    float gate, up, hidden;
  };

  const Sample samples[] = {{1, 1, 1.69159153f},
                            {9, -9, -41.9997188f},
                            {-9, 9, -1.60254239e-5f},
                            {7.5f, 0.25f, 8.74994141f}};
  Block block({.H = 4, .I = 4, .E = 1, .A = 1, .weight = DType::kF32});
  block.biased = true;
  block.activation = {.limit = 7.0f, .alpha = 1.702f};
  block.w13.randomize(1, 0.0f);
  block.w2_bias.randomize(1, 0.0f);
  for (int64_t i = 0; i < 4; ++i) {
    const Sample& sample = samples[i];
    block.w13_bias.view().row<float>(0)[i] = sample.gate;
    block.w13_bias.view().row<float>(0)[4 + i] = sample.up;
    for (int64_t h = 0; h < 4; ++h) block.w2.view().row<float>(0)[h * 4 + i] = h == i ? 1.0f : 0.0f;
  }
  GuardedTensor x({1, 4}, DType::kF32), logits({1, 1}, DType::kF32), y({1, 4}, DType::kF32);
  x.randomize(3);
  logits.randomize(4);
  for (const bool exact : {false, true}) {
    ASSERT_TRUE(block.run(x.view(), logits.view(), y.view(), exact).ok());
    for (int64_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(y.view().row<float>(0)[i], samples[i].hidden,
                  2e-6f * std::fabs(samples[i].hidden));
    }
  }
}

TEST(RoutedMoeTest, WeighsAndChoosesAsTheScoringSays) {
  const RoutedMoeShape shape{.H = 24, .I = 16, .E = 8, .A = 3, .weight = DType::kF32};
  constexpr int64_t kT = 9;
  Block block(shape);
  GuardedTensor x({kT, shape.H}, DType::kF32), logits({kT, shape.E}, DType::kF32);
  GuardedTensor y({kT, shape.H}, DType::kF32), correction({1, shape.E}, DType::kF32);
  x.randomize(1);
  logits.randomize(2, 3.0f);
  correction.randomize(3, 0.5f);
  RoutedMoeArgs args = block.args(x.view(), logits.view(), y.view());
  args.scoring = {.score = RouterScore::kSigmoid,
                  .num_groups = 4,
                  .groups_kept = 2,
                  .group_terms = 2,
                  .scale = 2.5f};
  args.correction = TensorView(correction.view().as<float>(), DType::kF32, {shape.E});
  CpuContext context(block.pool, true);
  std::vector<std::byte> workspace(
      static_cast<size_t>(routed_moe_workspace_bytes(context, kT, shape)));
  args.workspace = workspace;
  ASSERT_TRUE(routed_moe(context, args).ok());
  const MoeRouteArgs route{.logits = args.router_logits,
                           .experts = {},
                           .weights = {},
                           .scoring = args.scoring,
                           .correction = args.correction};
  for (int64_t t = 0; t < kT; ++t) {
    const std::vector<double> want =
        routed_moe_reference(args, t, scored_route_reference(route, t, shape.A));
    for (int64_t h = 0; h < shape.H; ++h) {
      EXPECT_NEAR(y.view().row<float>(t)[h], want[static_cast<size_t>(h)], 2e-5);
    }
  }
  args.scoring.groups_kept = 5;
  EXPECT_EQ(routed_moe(context, args).message(),
            "routed_moe: 5 of 4 groups of 8 experts cannot be kept");
}

TEST(MoeOpsTest, InferScoredBlocksOrSayWhy) {
  const std::span<const OpDef> ops = moe_ops();
  const auto find = [&](std::string_view name) {
    return *std::ranges::find(ops, name, &OpDef::name);
  };
  const auto fixed = SymbolicDim::fixed;
  const SymbolicDim T = SymbolicDim::of(Symbol::kTokens);
  std::vector<TensorMeta> inputs{{DType::kF32, {T, fixed(24)}},
                                 {DType::kF32, {T, fixed(8)}},
                                 {DType::kBf16, {fixed(8), fixed(32), fixed(24)}},
                                 {DType::kBf16, {fixed(8), fixed(24), fixed(16)}}};
  Attrs attrs{{"top_k", 3},       {"normalize", 1},   {"sigmoid", 1}, {"groups", 4},
              {"groups_kept", 2}, {"group_terms", 2}, {"scale", 2.5}};
  std::vector<TensorMeta> outputs;
  ASSERT_TRUE(find("routed_moe_scored").infer(inputs, attrs, outputs).ok());
  EXPECT_EQ(outputs[0], inputs[0]);
  inputs.push_back({DType::kF32, {fixed(8)}});
  ASSERT_TRUE(find("routed_moe_corrected").infer(inputs, attrs, outputs).ok());
  inputs[4] = {DType::kF32, {fixed(7)}};
  EXPECT_EQ(find("routed_moe_corrected").infer(inputs, attrs, outputs).message(),
            "routed_moe_corrected: the correction is float32[7], router logits are float32[T, 8]");
  attrs.set("groups", 3);
  EXPECT_EQ(find("routed_moe_scored").infer(inputs, attrs, outputs).message(),
            "routed_moe_scored: 2 of 3 groups of 8 experts cannot be kept");
}

// Ranks with whole experts: the sums of what each has give the block's result, and the terms apart,
// joined, have its very bits.
TEST(RoutedMoeTest, IsSharedByRanksWithSomeOfTheExperts) {
  const RoutedMoeShape shape{.H = 37, .I = 16, .E = 6, .A = 3, .weight = DType::kF32};
  constexpr int64_t kTokens = 9;
  Block block(shape);
  GuardedTensor x({kTokens, shape.H}, DType::kF32, 3);
  GuardedTensor logits({kTokens, shape.E}, DType::kF32, 1);
  GuardedTensor y({kTokens, shape.H}, DType::kF32, 2);
  x.randomize(3);
  logits.randomize(4, 3.0f);
  for (const auto& [form, biased] : {std::pair(ExpertForm::kSwiglu, false),
                                     {ExpertForm::kSquaredRelu, false},
                                     {ExpertForm::kSwiglu, true}}) {
    block.activation.form = form;
    block.biased = biased;
    CpuContext context(block.pool, /*exact_mode=*/true);
    ASSERT_TRUE(block.run(context, x.view(), logits.view(), y.view()).ok());
    std::vector<std::byte> workspace(
        static_cast<size_t>(routed_moe_workspace_bytes(context, kTokens, shape)));
    for (const int64_t R : {2, 3, 6}) {
      SCOPED_TRACE(fmt::format("{} ranks", R));
      const int64_t each = shape.E / R;
      Tensor sum({kTokens, shape.H}, DType::kF32);
      Tensor joined({kTokens, shape.A * shape.H}, DType::kF32);
      for (int64_t rank = 0; rank < R; ++rank) {
        const auto run_own = [&](const MutableTensorView& own_y, bool in_terms) {
          RoutedMoeArgs own = block.args(x.view(), logits.view(), own_y);
          own.own = {.first = rank * each, .in_terms = in_terms};
          for (TensorView* weight : {&own.w13, &own.w2}) {
            weight->data = weight->as<float>() + rank * each * weight->row_stride;
            weight->shape = {each, weight->shape[1], weight->shape[2]};
          }
          for (TensorView* bias : {&own.w13_bias, &own.w2_bias}) {
            if (bias->data == nullptr) continue;
            bias->data = bias->as<float>() + rank * each * bias->row_stride;
            bias->shape = {each, bias->shape[1]};
          }
          own.workspace = workspace;
          const Status status = routed_moe(context, own);
          ASSERT_TRUE(status.ok()) << status.to_string();
        };
        Tensor part(sum.shape(), DType::kF32);
        Tensor terms(joined.shape(), DType::kF32);
        run_own(part.view(), false);
        run_own(terms.view(), true);
        for (size_t i = 0; i < part.span<float>().size(); ++i)
          sum.span<float>()[i] += part.span<float>()[i];
        for (size_t i = 0; i < terms.span<float>().size(); ++i) {
          const float term = terms.span<float>()[i];
          if (term == 0) continue;
          EXPECT_EQ(joined.span<float>()[i], 0) << "only one rank has a term";
          joined.span<float>()[i] = term;
        }
      }
      for (int64_t t = 0; t < kTokens; ++t) {
        for (int64_t h = 0; h < shape.H; ++h) {
          const float want = y.view().row<float>(t)[h];
          EXPECT_NEAR(sum.view().row<float>(t)[h], want, 1e-5);
          const float* const terms = joined.view().row<float>(t) + h;
          EXPECT_EQ(terms[0] + terms[shape.H] + terms[2 * shape.H], want);
        }
      }
    }
  }
  RoutedMoeArgs outside = block.args(x.view(), logits.view(), y.view());
  outside.own = {.first = 1};
  CpuContext context(block.pool);
  EXPECT_THAT(routed_moe(context, outside).message(),
              ::testing::HasSubstr("own.first is 1, it must leave the rank's experts among all"));
}

TEST(RoutedMoeTest, SaysWhichTensorsDisagree) {
  const RoutedMoeShape shape{.H = 16, .I = 8, .E = 4, .A = 2, .weight = DType::kF32};
  Block block(shape);
  GuardedTensor x({2, 16}, DType::kF32);
  GuardedTensor logits({2, 5}, DType::kF32);
  GuardedTensor y({2, 16}, DType::kF32);
  EXPECT_EQ(block.run(x.view(), logits.view(), y.view(), false).message(),
            "routed_moe: w13 has E = 4, router_logits has E = 5");
  GuardedTensor fitting({2, 4}, DType::kF32);
  block.shape.A = 5;
  EXPECT_EQ(block.run(x.view(), fitting.view(), y.view(), false).message(),
            "routed_moe: experts_per_token is 5, it must be in [1, min(E, 64)]");
  block.shape.A = 2;
  block.biased = true;
  block.activation.limit = -1;
  EXPECT_EQ(block.run(x.view(), fitting.view(), y.view(), false).message(),
            "routed_moe: activation.limit is -1, it must be positive, or 0 for none");
  CpuContext context(block.pool);
  const Status small = routed_moe(context, {.x = x.view(),
                                            .router_logits = fitting.view(),
                                            .w13 = block.w13.view(),
                                            .w2 = block.w2.view(),
                                            .y = y.view(),
                                            .experts_per_token = 2,
                                            .workspace = {}});
  EXPECT_EQ(small.code(), StatusCode::kInvalidArgument);
}

TEST(RoutedMoeTest, AllocatesNothing) {
  const RoutedMoeShape shape{.H = 64, .I = 32, .E = 8, .A = 2, .weight = DType::kBf16};
  Block block(shape);
  CpuContext context(block.pool);
  for (const int64_t T : {1, 100}) {
    GuardedTensor x({T, shape.H}, DType::kF32);
    GuardedTensor logits({T, shape.E}, DType::kF32);
    GuardedTensor y({T, shape.H}, DType::kF32);
    x.randomize(1);
    logits.randomize(2);
    std::vector<std::byte> workspace(
        static_cast<size_t>(routed_moe_workspace_bytes(context, T, shape)));
    const RoutedMoeArgs args{.x = x.view(),
                             .router_logits = logits.view(),
                             .w13 = block.w13.view(),
                             .w2 = block.w2.view(),
                             .y = y.view(),
                             .experts_per_token = shape.A,
                             .workspace = workspace};
    ASSERT_TRUE(routed_moe(context, args).ok());
    const struct mallinfo2 before = mallinfo2();
    ASSERT_TRUE(routed_moe(context, args).ok());
    const struct mallinfo2 after = mallinfo2();
    EXPECT_EQ(before.uordblks, after.uordblks);
    EXPECT_EQ(before.hblkhd, after.hblkhd);
  }
}

TEST(ExpertSortTest, IsAStablePermutation) {
  constexpr int64_t kT = 50, kA = 4, kE = 9;
  std::vector<int32_t> experts;
  for (int64_t i = 0; i < kT * kA; ++i)
    experts.push_back(static_cast<int32_t>((i * i + 3 * i) % kE));
  std::vector<int32_t> offsets(kE + 1), token(kT * kA), row(kT * kA);
  sort_by_expert(
      experts.data(), kT, kA, kE,
      {.row_offsets = offsets.data(), .row_token = token.data(), .slot_row = row.data()});
  EXPECT_EQ(offsets.front(), 0);
  EXPECT_EQ(offsets.back(), kT * kA);
  std::vector<int> seen(static_cast<size_t>(kT * kA));
  for (size_t i = 0; i < row.size(); ++i) {
    const auto r = static_cast<size_t>(row[i]);
    ++seen[r];
    EXPECT_EQ(token[r], static_cast<int32_t>(i / kA));
    EXPECT_GE(row[i], offsets[static_cast<size_t>(experts[i])]);
    EXPECT_LT(row[i], offsets[static_cast<size_t>(experts[i]) + 1]);
  }
  EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
  for (int64_t e = 0; e < kE; ++e) {
    for (int32_t r = offsets[static_cast<size_t>(e)] + 1; r < offsets[static_cast<size_t>(e) + 1];
         ++r) {
      EXPECT_LE(token[static_cast<size_t>(r) - 1], token[static_cast<size_t>(r)]);
    }
  }
}

TEST(MoeOpsTest, WantABiasForEveryRowOfEveryExpert) {
  const OpDef& op = *builtin_ops().find("routed_moe_bias");
  const auto T = SymbolicDim::of(Symbol::kTokens);
  const auto H = SymbolicDim::fixed(16), E = SymbolicDim::fixed(4), I = SymbolicDim::fixed(8);
  const auto I2 = SymbolicDim::fixed(16);
  const auto floats = [](std::initializer_list<SymbolicDim> shape) {
    return TensorMeta(DType::kF32, shape);
  };
  const Attrs attrs{{"top_k", 2}, {"normalize", 1}, {"swiglu_limit", 7}, {"swiglu_alpha", 1.702}};
  std::vector<TensorMeta> inputs{floats({T, H}),    floats({T, E}),  floats({E, I2, H}),
                                 floats({E, H, I}), floats({E, I2}), floats({E, H})};
  std::vector<TensorMeta> outputs;
  const Status status = op.infer(inputs, attrs, outputs);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(outputs[0], floats({T, H}));
  inputs[4] = floats({E, I});
  EXPECT_THAT(op.infer(inputs, attrs, outputs).to_string(),
              ::testing::HasSubstr("biases [E, 2I] and [E, H]"));
}

}  // namespace

}  // namespace heddle::ops
