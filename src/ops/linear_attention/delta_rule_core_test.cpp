// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/delta_rule_core.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "ops/linear_attention/gated_delta_rule_reference.h"
#include "ops/simd/targets.h"

namespace heddle::ops {

namespace {

enum class Form { kRecurrent, kChunked };

// One log decay for the head, or one for each key channel.
enum class Decay { kHead, kChannel };

constexpr Decay kDecays[] = {Decay::kHead, Decay::kChannel};

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

// One head's inputs and what a run made of them.
struct Case {
  int64_t Dk, Dv;
  std::vector<float> q, k, v, g, beta, state;
  std::vector<float> f, dt_bias;  // of a decay per channel
  float neg_exp_a_log = 0;
  Decay decay_kind;

  Case(int64_t key_dim, int64_t value_dim, int64_t num_tokens, bool initial, float decay,
       uint64_t seed, Decay kind = Decay::kHead)
      : Dk(key_dim), Dv(value_dim), neg_exp_a_log(-decay), decay_kind(kind) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& to, int64_t count) {
      to.resize(static_cast<size_t>(count));
      std::ranges::generate(to, [&] { return normal(random); });
    };
    fill(q, num_tokens * Dk);
    fill(k, num_tokens * Dk);
    fill(v, num_tokens * Dv);
    fill(g, num_tokens);
    fill(beta, num_tokens);
    fill(state, Dv * Dk);
    if (!initial) std::ranges::fill(state, 0.0f);
    std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
    for (float& x : g) x = -decay * uniform(random) * uniform(random);
    for (float& x : beta) x = uniform(random);
    if (kind == Decay::kHead) return;
    fill(f, num_tokens * (Dk + 2));
    fill(dt_bias, Dk);
    std::ranges::fill(g, kPoison);
    for (float& x : f) x = 2 * x - 3;  // some channels keep almost everything, some lose it
  }

  [[nodiscard]] int64_t num_tokens() const { return static_cast<int64_t>(g.size()); }

  [[nodiscard]] DeltaRuleHead head(std::vector<float>& y, std::vector<float>& to_state) const {
    return {.q = q.data(),
            .k = k.data(),
            .v = v.data(),
            .q_stride = Dk,
            .k_stride = Dk,
            .v_stride = Dv,
            .g = g.data(),
            .channel = {.f = decay_kind == Decay::kHead ? nullptr : f.data(),
                        .stride = Dk + 2,
                        .dt_bias = dt_bias.data(),
                        .neg_exp_a_log = neg_exp_a_log},
            .beta = beta.data(),
            .y = y.data(),
            .y_stride = Dv,
            .state = to_state.data(),
            .num_tokens = num_tokens(),
            .key_dim = Dk,
            .value_dim = Dv};
  }
};

struct Outcome {
  std::vector<float> y, state;

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

void run_range(const DeltaRuleHead& whole, Form form, int64_t begin, int64_t end) {
  std::vector<float> scratch(static_cast<size_t>(delta_rule_scratch_floats(
                                 whole.key_dim, whole.value_dim, whole.channel.f != nullptr)),
                             kPoison);
  const DeltaRuleHead head = tokens_of(whole, begin, end);
  if (form == Form::kRecurrent) {
    delta_rule_recurrent(head, scratch.data());
  } else {
    delta_rule_chunked(head, {}, scratch.data());
  }
}

// The head's tokens, interrupted at each of `splits`.
Outcome run(const Case& inputs, Form form, const std::vector<int64_t>& splits = {}) {
  Outcome outcome{.y = std::vector<float>(inputs.v.size(), kPoison), .state = inputs.state};
  const DeltaRuleHead head = inputs.head(outcome.y, outcome.state);
  int64_t begin = 0;
  for (const int64_t split : splits) {
    run_range(head, form, begin, split);
    begin = split;
  }
  run_range(head, form, begin, inputs.num_tokens());
  return outcome;
}

double relative_error(const std::vector<float>& value, const std::vector<double>& truth) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    error +=
        (static_cast<double>(value[i]) - truth[i]) * (static_cast<double>(value[i]) - truth[i]);
    norm += truth[i] * truth[i];
  }
  if (norm == 0) return std::sqrt(error);
  return std::sqrt(error / norm);  // NaN wherever a value is
}

void expect_near_reference(const Case& inputs, const Outcome& outcome) {
  std::vector<float> unused_y(inputs.v.size()), unused_state(inputs.state);
  std::vector<double> state(inputs.state.begin(), inputs.state.end());
  const std::vector<double> y = delta_rule_reference(inputs.head(unused_y, unused_state), state);
  EXPECT_LT(relative_error(outcome.y, y), 2e-6);
  EXPECT_LT(relative_error(outcome.state, state), 2e-6);
}

TEST(DeltaRuleReferenceTest, GivesThePublishedNumbersOfThreeSteps) {
  // k and q of unit length, so that normalising changes nothing but the 1e-6 under the root and the
  // factor 1 / sqrt(2) of q, which is undone here. S is stored [Dv, Dk].
  const std::vector<float> k{1, 0, 0.6f, 0.8f, 0, 1}, q{1, 0, 0, 1, 0.8f, 0.6f};
  const std::vector<float> v{1, 2, 3, -1, 0.5f, 0.5f}, beta{1, 0.5f, 0.25f};
  const std::vector<float> g{0, std::log(0.5f), std::log(0.8f)};
  const std::vector<std::vector<double>> states{
      {1, 0, 2, 0}, {1.31, 1.08, 0.52, -0.64}, {1.048, 0.773, 0.416, -0.259}};
  const std::vector<double> outputs{1, 2, 1.08, -0.64, 1.3022, 0.1774};
  for (const Form form : {Form::kRecurrent, Form::kChunked}) {
    for (int64_t n = 1; n <= 3; ++n) {
      std::vector<float> y(static_cast<size_t>(2 * n)), state(4);
      std::vector<float> scratch(static_cast<size_t>(delta_rule_scratch_floats(2, 2, false)));
      const DeltaRuleHead head{.q = q.data(),
                               .k = k.data(),
                               .v = v.data(),
                               .q_stride = 2,
                               .k_stride = 2,
                               .v_stride = 2,
                               .g = g.data(),
                               .beta = beta.data(),
                               .y = y.data(),
                               .y_stride = 2,
                               .state = state.data(),
                               .num_tokens = n,
                               .key_dim = 2,
                               .value_dim = 2};
      if (form == Form::kRecurrent) {
        delta_rule_recurrent(head, scratch.data());
      } else {
        delta_rule_chunked(head, {}, scratch.data());
      }
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(static_cast<double>(state[i]), states[static_cast<size_t>(n - 1)][i], 3e-6);
      }
      for (size_t i = 0; i < y.size(); ++i) {
        EXPECT_NEAR(static_cast<double>(y[i]) * std::sqrt(2.0), outputs[i], 3e-6);
      }
    }
  }
}

// The same steps with decay vectors (1, 1), (0.5, 0.25), (0.8, 0.4).
TEST(DeltaRuleReferenceTest, GivesThePublishedNumbersWithADecayPerChannel) {
  const std::vector<float> k{1, 0, 0.6f, 0.8f, 0, 1}, q{1, 0, 0, 1, 0.8f, 0.6f};
  const std::vector<float> v{1, 2, 3, -1, 0.5f, 0.5f}, beta{1, 0.5f, 0.25f}, dt_bias{0, 0};
  std::vector<float> f;  // softplus(f) = -log(decay)
  for (const double decay : {1.0, 1.0, 0.5, 0.25, 0.8, 0.4}) {
    f.push_back(decay == 1.0 ? -100.0f : static_cast<float>(std::log(1.0 / decay - 1.0)));
  }
  const std::vector<std::vector<double>> states{
      {1, 0, 2, 0}, {1.31, 1.08, 0.52, -0.64}, {1.048, 0.449, 0.416, -0.067}};
  const std::vector<double> outputs{1, 2, 1.08, -0.64, 1.1078, 0.2926};
  for (const Form form : {Form::kRecurrent, Form::kChunked}) {
    for (int64_t n = 1; n <= 3; ++n) {
      std::vector<float> y(static_cast<size_t>(2 * n)), state(4);
      run_range(
          {.q = q.data(),
           .k = k.data(),
           .v = v.data(),
           .q_stride = 2,
           .k_stride = 2,
           .v_stride = 2,
           .g = nullptr,
           .channel = {.f = f.data(), .stride = 2, .dt_bias = dt_bias.data(), .neg_exp_a_log = -1},
           .beta = beta.data(),
           .y = y.data(),
           .y_stride = 2,
           .state = state.data(),
           .num_tokens = n,
           .key_dim = 2,
           .value_dim = 2},
          form, 0, n);
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(static_cast<double>(state[i]), states[static_cast<size_t>(n - 1)][i], 3e-6);
      }
      for (size_t i = 0; i < y.size(); ++i) {
        EXPECT_NEAR(static_cast<double>(y[i]) * std::sqrt(2.0), outputs[i], 3e-6);
      }
    }
  }
}

TEST(DeltaRuleTest, MatchesTheReferenceForAnyWidths) {
  const int64_t widths[][2] = {{16, 16},  {7, 7},     {16, 32}, {32, 16}, {64, 64}, {96, 128},
                               {128, 96}, {128, 128}, {64, 7},  {1, 1},   {20, 65}};
  for (const auto& [Dk, Dv] : widths) {
    for (const int64_t n : {1, 5, 16, 33}) {
      for (const Form form : {Form::kRecurrent, Form::kChunked}) {
        for (const Decay kind : kDecays) {
          SCOPED_TRACE(fmt::format("Dk {} Dv {} n {} form {} decay {}", Dk, Dv, n,
                                   static_cast<int>(form), static_cast<int>(kind)));
          const Case inputs(Dk, Dv, n, true, 1.0f, 7, kind);
          expect_near_reference(inputs, run(inputs, form));
        }
      }
    }
  }
}

TEST(DeltaRuleTest, MatchesTheReferenceAtAllLengthsAndDecays) {
  for (const int64_t n : {1, 2, 3, 4, 15, 16, 17, 63, 64, 65, 127, 128, 200}) {
    for (const bool initial : {false, true}) {
      for (const float decay : {0.0f, 0.3f, 20.0f}) {
        for (const Form form : {Form::kRecurrent, Form::kChunked}) {
          for (const Decay kind : kDecays) {
            SCOPED_TRACE(fmt::format("n {} initial {} decay {} form {} kind {}", n, initial, decay,
                                     static_cast<int>(form), static_cast<int>(kind)));
            const Case inputs(32, 32, n, initial, decay, 11, kind);
            expect_near_reference(inputs, run(inputs, form));
          }
        }
      }
    }
  }
}

TEST(DeltaRuleTest, StaysFiniteWhenEveryTokenForgetsEverything) {
  for (const Decay kind : kDecays) {
    Case inputs(16, 16, 130, true, 1.0f, 3, kind);
    std::ranges::fill(inputs.g, -20.0f);
    for (size_t i = 0; i < inputs.f.size(); ++i) inputs.f[i] = i % 3 == 0 ? -1.0f : 40.0f;
    for (const Form form : {Form::kRecurrent, Form::kChunked}) {
      expect_near_reference(inputs, run(inputs, form));
    }
    std::ranges::fill(inputs.k, 0.0f);  // nothing to normalise, and nothing is left
    std::ranges::fill(inputs.f, 40.0f);
    for (const Form form : {Form::kRecurrent, Form::kChunked}) {
      expect_near_reference(inputs, run(inputs, form));
    }
  }
}

class DeltaRuleDecayTest : public ::testing::TestWithParam<Decay> {};

INSTANTIATE_TEST_SUITE_P(OfHeadsAndChannels, DeltaRuleDecayTest, ::testing::ValuesIn(kDecays));

TEST_P(DeltaRuleDecayTest, RecurrentGivesTheSameBitsWhereverItIsInterrupted) {
  for (const int64_t D : {64, 24}) {
    const Case inputs(D, D, 130, true, 1.0f, 5, GetParam());
    const Outcome whole = run(inputs, Form::kRecurrent);
    for (int64_t split = 1; split < inputs.num_tokens(); ++split) {
      ASSERT_EQ(whole, run(inputs, Form::kRecurrent, {split})) << "split at " << split;
    }
    std::vector<int64_t> every;
    for (int64_t split = 1; split < inputs.num_tokens(); ++split) every.push_back(split);
    EXPECT_EQ(whole, run(inputs, Form::kRecurrent, every)) << "one token at a time";
  }
}

TEST_P(DeltaRuleDecayTest, RecurrentRowsDoNotDependOnTheirNeighbours) {
  const Case inputs(32, 100, 70, true, 1.0f, 6, GetParam());
  const Outcome whole = run(inputs, Form::kRecurrent);
  for (const int64_t rows : {1, 3, 17, 64}) {
    Outcome parts{.y = std::vector<float>(inputs.v.size(), kPoison), .state = inputs.state};
    for (int64_t first = 0; first < inputs.Dv; first += rows) {
      DeltaRuleHead head = inputs.head(parts.y, parts.state);
      head.value_dim = std::min(rows, inputs.Dv - first);
      head.v += first;
      head.y += first;
      head.state += first * inputs.Dk;
      run_range(head, Form::kRecurrent, 0, inputs.num_tokens());
    }
    EXPECT_EQ(whole, parts) << rows << " rows at a time";
  }
}

TEST_P(DeltaRuleDecayTest, ChunkedContinuesFromAnySplit) {
  const Case inputs(32, 32, 80, true, 1.0f, 9, GetParam());
  const Outcome whole = run(inputs, Form::kChunked);
  for (int64_t split = 1; split < inputs.num_tokens(); ++split) {
    const Outcome parts = run(inputs, Form::kChunked, {split});
    SCOPED_TRACE(fmt::format("split at {}", split));
    expect_near_reference(inputs, parts);
    if (split % kDeltaChunk == 0) {
      EXPECT_EQ(whole, parts) << "the same chunks must give the same bits";
    }
  }
}

// A snapshot cuts a chunk: what it keeps are the bits of a head that ends there, and what follows
// goes on in the chunks that there would be without it.
TEST_P(DeltaRuleDecayTest, ASnapshotKeepsWhatAHeadThatEndsThereHas) {
  constexpr int64_t D = 32;
  const Case inputs(D, D, 80, true, 1.0f, 9, GetParam());
  const Outcome uncut = run(inputs, Form::kChunked);
  std::vector<float> scratch(
      static_cast<size_t>(delta_rule_scratch_floats(D, D, GetParam() == Decay::kChannel)), kPoison);
  for (int32_t split = 1; split <= inputs.num_tokens(); ++split) {
    SCOPED_TRACE(fmt::format("snapshot at {}", split));
    std::vector<float> kept(static_cast<size_t>(D * D), kPoison);
    const StateSnapshot wanted[] = {{.num_tokens = split}};
    const DeltaSnapshots snapshots{
        .wanted = wanted,
        .layer = {.recurrent = MutableTensorView(kept.data(), DType::kF32, {1, 1, D, D})}};
    Outcome cut{.y = std::vector<float>(inputs.v.size(), kPoison), .state = inputs.state};
    delta_rule_chunked(inputs.head(cut.y, cut.state), snapshots, scratch.data());
    expect_near_reference(inputs, cut);

    Outcome ends_there{.y = std::vector<float>(inputs.v.size(), kPoison), .state = inputs.state};
    run_range(inputs.head(ends_there.y, ends_there.state), Form::kChunked, 0, split);
    ASSERT_EQ(kept, ends_there.state);
    if (split % kDeltaChunk == 0) {
      EXPECT_EQ(cut, uncut);
    }
  }
}

TEST_P(DeltaRuleDecayTest, EveryInstructionSetMatchesTheReference) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    for (const int64_t D : {64, 20}) {
      const Case inputs(D, D, 50, true, 1.0f, 13, GetParam());
      expect_near_reference(inputs, run(inputs, Form::kChunked));
      const Outcome whole = run(inputs, Form::kRecurrent);
      expect_near_reference(inputs, whole);
      EXPECT_EQ(whole, run(inputs, Form::kRecurrent, {1, 2, 33}));
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(DeltaRuleGatesTest, MatchTheFormulaAndDoNotDependOnTheBlocking) {
  const std::vector<float> a{-30, -1, 0, 0.5f, 3, 19, 21, 40}, b{-80, -2, 0, 0.5f, 3, 8, 15, 90};
  std::vector<float> g(8), beta(8);
  delta_rule_gates({.a = a.data(),
                    .b = b.data(),
                    .a_stride = 1,
                    .b_stride = 1,
                    .neg_exp_a_log = -2.5f,
                    .dt_bias = 0.25f,
                    .num_tokens = 8},
                   g.data(), beta.data());
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]) + 0.25;
    const double expected = -2.5 * (x > 20 ? x : std::log1p(std::exp(x)));
    EXPECT_NEAR(static_cast<double>(g[i]), expected, 1e-6 * std::fabs(expected));
    const double sigmoid = 1.0 / (1.0 + std::exp(-static_cast<double>(b[i])));
    EXPECT_NEAR(static_cast<double>(beta[i]), sigmoid, 1e-6 * sigmoid);
    float one_g = 0, one_beta = 0;
    delta_rule_gates({.a = &a[i],
                      .b = &b[i],
                      .a_stride = 9,
                      .b_stride = 9,
                      .neg_exp_a_log = -2.5f,
                      .dt_bias = 0.25f,
                      .num_tokens = 1},
                     &one_g, &one_beta);
    EXPECT_EQ(one_g, g[i]);
    EXPECT_EQ(one_beta, beta[i]);
  }
}

}  // namespace

}  // namespace heddle::ops
