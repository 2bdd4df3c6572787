// SPDX-License-Identifier: Apache-2.0
#include "sampling/sampler.h"

#include <limits>
#include <random>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/sampling/uniform_draw.h"
#include "sampling/sampler_reference.h"

namespace heddle::sampling {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Case {
  std::vector<float> logits;
  SamplingParams params;
  std::vector<TokenId> output;
  std::vector<TokenId> forbidden;
};

Result<TokenId> sample(Sampler& sampler, const Case& from, uint64_t seed = 1, int64_t position = 0,
                       int32_t choice = 0, TokenLogprob* logprob = nullptr, int32_t top = 0) {
  std::vector<float> logits = from.logits;
  return sampler.sample({.logits = logits,
                         .params = &from.params,
                         .output_tokens = from.output,
                         .forbidden_tokens = from.forbidden,
                         .seed = seed,
                         .position = position,
                         .choice_index = choice,
                         .top_logprobs = top},
                        logprob);
}

// The tokens that can be drawn at all.
std::set<TokenId> support(const Case& from, int draws = 2000) {
  Sampler sampler(static_cast<int64_t>(from.logits.size()));
  std::set<TokenId> tokens;
  for (int i = 0; i < draws; ++i) {
    const Result<TokenId> token = sample(sampler, from, 99, i);
    if (token.ok()) tokens.insert(*token);
  }
  return tokens;
}

TokenId greedy(std::vector<float> logits, SamplingParams params = {},
               std::vector<TokenId> output = {}, std::vector<TokenId> forbidden = {}) {
  params.temperature = 0;
  Sampler sampler(static_cast<int64_t>(logits.size()));
  const Result<TokenId> token =
      sample(sampler, {std::move(logits), params, std::move(output), std::move(forbidden)});
  EXPECT_TRUE(token.ok()) << token.status().to_string();
  return token.ok() ? *token : -1;
}

std::vector<float> random_row(std::mt19937& random, size_t V, float scale) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> row(V);
  for (float& x : row) x = normal(random);
  return row;
}

TEST(SamplerTest, TakesTheLowestIdAmongEqualsWhenGreedy) {
  EXPECT_EQ(greedy({1, 3, 3, 2}), 1);
  for (const size_t V : {1u, 7u, 64u, 65u, 1000u}) {
    EXPECT_EQ(greedy(std::vector<float>(V, 0.5f)), 0);
    for (const size_t best : {size_t{0}, V / 2, V - 1}) {
      std::vector<float> row(V, -1.0f);
      row[best] = 2;
      EXPECT_EQ(greedy(row), static_cast<TokenId>(best)) << "V = " << V;
    }
  }
}

TEST(SamplerTest, DrawsOnlyWhatTheMaskAllows) {
  std::vector<float> row(70);
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(i);
  Sampler sampler(70);
  const SamplingParams params{.temperature = 0, .logit_bias = {{69, 100.0f}}};
  TokenLogprob logprob;
  const auto draw = [&](std::vector<uint32_t> mask) {
    std::vector<float> logits = row;
    return sampler.sample({.logits = logits, .params = &params, .mask = mask, .top_logprobs = 2},
                          &logprob);
  };
  EXPECT_EQ(draw({~0u, ~0u, ~0u}).value(), 69);
  EXPECT_EQ(draw({~0u, 1u, 0u}).value(), 32);
  EXPECT_EQ(draw({6u}).value(), 2) << "what lies beyond the words is masked";
  EXPECT_NEAR(logprob.logprob, -0.3133f, 1e-3f) << "of what the mask leaves";
  EXPECT_THAT(draw({0u, 0u, 0u}).status().message(), HasSubstr("every token is masked"));
}

TEST(SamplerTest, MasksThenBiasesThenPenalises) {
  EXPECT_EQ(greedy({1, 5, 3}, {}, {}, {1}), 2);
  EXPECT_EQ(greedy({1, 5, 3}, {.logit_bias = {{1, -3.0f}}}), 2);
  EXPECT_EQ(greedy({1, 5, 3}, {.logit_bias = {{0, 100.0f}}}), 0);
  // A bias does not bring back what was masked.
  EXPECT_EQ(greedy({1, 5, 3}, {.logit_bias = {{1, 100.0f}}}, {}, {1}), 2);
  // Bias before the repetition penalty: (4 + 2) / 2 = 3 < 3.5.
  EXPECT_EQ(greedy({4, 3.5f}, {.repetition_penalty = 2, .logit_bias = {{0, 2.0f}}}, {0}), 1);
  // Once per distinct token, dividing what is positive and multiplying what is negative.
  EXPECT_EQ(greedy({4, 1.9f}, {.repetition_penalty = 2}, {0, 0, 0}), 0);
  EXPECT_EQ(greedy({-1, -1.9f}, {.repetition_penalty = 2}, {0}), 1);
  // Frequency counts occurrences, presence does not.
  EXPECT_EQ(greedy({4, 2.1f}, {.frequency_penalty = 1}, {0}), 0);
  EXPECT_EQ(greedy({4, 2.1f}, {.frequency_penalty = 1}, {0, 0}), 1);
  EXPECT_EQ(greedy({4, 2.1f}, {.presence_penalty = 1}, {0, 0, 0}), 0);
}

TEST(SamplerTest, LeavesNoTraceOfEarlierPenalties) {
  Sampler sampler(3);
  const Case penalised{{4, 3.5f, 0}, {.temperature = 0, .frequency_penalty = 2}, {0, 0, 1}, {}};
  ASSERT_EQ(*sample(sampler, penalised), 1);
  ASSERT_EQ(*sample(sampler, penalised), 1);
  ASSERT_EQ(*sample(sampler, {{4, 3.5f, 0}, {.temperature = 0, .frequency_penalty = 2}, {1}, {}}),
            0);
}

TEST(SamplerTest, ReportsNumericalErrorsInsteadOfATokenAndRecovers) {
  Sampler sampler(100);
  const auto message = [&](const std::vector<float>& logits, const SamplingParams& params,
                           const std::vector<TokenId>& forbidden) {
    const Result<TokenId> token = sample(sampler, {logits, params, {}, forbidden});
    EXPECT_FALSE(token.ok());
    EXPECT_EQ(token.status().code(), StatusCode::kInternal);
    return token.status().message();
  };
  for (const float temperature : {0.0f, 1.0f}) {
    for (const size_t at : {0u, 50u, 99u}) {
      std::vector<float> row(100, 1.0f);
      row[at] = kNan;
      EXPECT_THAT(message(row, {.temperature = temperature}, {}), HasSubstr("not a number"));
      row[at] = kInf;
      EXPECT_THAT(message(row, {.temperature = temperature}, {}), HasSubstr("infinite"));
      // Masked tokens change nothing.
      Sampler other(100);
      row[at] = kNan;
      EXPECT_TRUE(
          sample(other, {row, {.temperature = temperature}, {}, {static_cast<TokenId>(at)}}).ok());
    }
    EXPECT_THAT(message(std::vector<float>(100, -kInf), {.temperature = temperature}, {}),
                HasSubstr("every token is masked"));
  }
  EXPECT_TRUE(sample(sampler, {std::vector<float>(100, 1.0f), {}, {}, {}}).ok());
}

TEST(SamplerTest, KeepsTheTopKWithTheLowerIdsAmongEquals) {
  EXPECT_THAT(support({{1, 2, 2, 2, 0}, {.top_k = 2}, {}, {}}), ElementsAre(1, 2));
  EXPECT_THAT(support({{1, 2, 2, 2, 0}, {.top_k = 1}, {}, {}}), ElementsAre(1));
  EXPECT_THAT(support({{1, 2, 2, 2, 0}, {.top_k = 100}, {}, {}}), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(support({{1, 2, -kInf, 2, 0}, {.top_k = 5}, {}, {3}}), ElementsAre(0, 1, 4));
}

TEST(SamplerTest, KeepsTheSmallestSetWhoseMassBeforeItsLastTokenIsAtMostTopP) {
  const std::vector<float> quarters(4, 1.0f);
  EXPECT_THAT(support({quarters, {.top_p = 1e-6f}, {}, {}}), ElementsAre(0));
  EXPECT_THAT(support({quarters, {.top_p = 0.2f}, {}, {}}), ElementsAre(0));
  EXPECT_THAT(support({quarters, {.top_p = 0.5f}, {}, {}}),
              ElementsAre(0, 1, 2));  // exactly: one more
  EXPECT_THAT(support({quarters, {.top_p = 0.6f}, {}, {}}), ElementsAre(0, 1, 2));
  EXPECT_THAT(support({quarters, {.top_p = 1.0f}, {}, {}}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(support({{0, 10, 0, 9}, {.top_p = 0.5f}, {}, {}}), ElementsAre(1));
  // On the probabilities before top_k: the best two have a half, so the second stays.
  EXPECT_THAT(support({quarters, {.top_p = 0.4f, .top_k = 2}, {}, {}}), ElementsAre(0, 1));
}

TEST(SamplerTest, NoShareOfTheMassLeavesTheMostProbableToken) {
  Sampler sampler(4);
  const SamplingParams params{.temperature = 2, .top_p = 0, .repetition_penalty = 2};
  const auto draw = [&](std::span<const TokenId> output, uint64_t seed) {
    std::vector<float> logits = {1, 2, 2, 0};
    return sampler
        .sample({.logits = logits, .params = &params, .output_tokens = output, .seed = seed})
        .value();
  };
  const std::vector<TokenId> output = {1};
  for (uint64_t seed = 0; seed < 50; ++seed) {
    EXPECT_EQ(draw({}, seed), 1) << "the lower id among equals";
    EXPECT_EQ(draw(output, seed), 2) << "after the penalties";
  }
}

TEST(SamplerTest, DropsWhatIsLessLikelyThanMinPTimesTheBest) {
  const std::vector<float> row = {0, std::log(0.5f), std::log(0.1f), -20};
  EXPECT_THAT(support({row, {.min_p = 0.4f}, {}, {}}), ElementsAre(0, 1));
  EXPECT_THAT(support({row, {.min_p = 0.6f}, {}, {}}), ElementsAre(0));
  EXPECT_THAT(support({row, {.min_p = 1.0f}, {}, {}}), ElementsAre(0));
  EXPECT_THAT(support({{1, 1, 0}, {.min_p = 1.0f}, {}, {}}), ElementsAre(0, 1));
  EXPECT_THAT(support({row, {.temperature = 10, .min_p = 0.6f}, {}, {}}), ElementsAre(0, 1, 2));
}

TEST(SamplerTest, StandsExtremeTemperatures) {
  EXPECT_THAT(support({{1, 2, 2.1f}, {.temperature = 1e-5f}, {}, {}}), ElementsAre(2));
  EXPECT_THAT(support({{1, 2, -kInf}, {.temperature = 3e38f}, {}, {}}), ElementsAre(0, 1));
  EXPECT_THAT(support({{1, 2, -kInf}, {.temperature = 3e38f, .top_p = 0.9f}, {}, {}}),
              ElementsAre(0, 1));
  EXPECT_THAT(support({{-3e38f, 3e38f}, {.top_p = 0.99f}, {}, {}}), ElementsAre(1));
  EXPECT_THAT(support({{-3e38f, 3e38f}, {}, {}, {}}), ElementsAre(1));
}

TEST(SamplerTest, DrawsDependOnSeedPositionAndChoiceOnly) {
  std::mt19937 random(5);
  Case from{random_row(random, 500, 1), {}, {}, {}};
  Sampler sampler(500);
  const TokenId token = *sample(sampler, from, 7, 100, 2);
  (void)sample(sampler, from, 8, 3, 1);
  EXPECT_EQ(*sample(sampler, from, 7, 100, 2), token);
  int equal = 0;
  for (int i = 1; i <= 50; ++i) {
    equal += *sample(sampler, from, 7, 100 + i, 2) == token;
    equal += *sample(sampler, from, 7 + static_cast<uint64_t>(i), 100, 2) == token;
    equal += *sample(sampler, from, 7, 100, 2 + i) == token;
  }
  EXPECT_LT(equal, 20);
}

// Drawn frequencies against the reference's probabilities.
TEST(SamplerTest, DrawsWithTheProbabilitiesOfTheReference) {
  const SamplingParams all_params[] = {
      {},
      {.temperature = 0.7f, .top_p = 0.9f, .top_k = 20},
      {.temperature = 1.5f, .top_p = 0.8f},
      {.top_k = 7},
      {.temperature = 2, .min_p = 0.1f},
      {.top_p = 0.95f,
       .frequency_penalty = 0.5f,
       .presence_penalty = 0.3f,
       .repetition_penalty = 1.3f},
  };
  std::mt19937 random(11);
  for (const SamplingParams& params : all_params) {
    Case from{random_row(random, 200, 1.5f), params, {3, 3, 17, 40}, {5, 6}};
    SCOPED_TRACE(fmt::format("top_p = {}, top_k = {}", params.top_p, params.top_k));
    const ReferenceDistribution want =
        reference_distribution(from.logits, from.params, from.output, from.forbidden);
    constexpr int kDraws = 40000;
    Sampler sampler(200);
    std::vector<int> counts(200, 0);
    for (int i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(*sample(sampler, from, 123, i))];
    double chi_square = 0;
    int degrees = -1;
    double rare_expected = 0;  // one bin for all rare tokens
    int rare_count = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      const double expected = want.kept[i] * kDraws;
      if (expected <= 0) {
        ASSERT_EQ(counts[i], 0) << "token " << i << " was dropped";
      } else if (expected < 10) {
        rare_expected += expected;
        rare_count += counts[i];
      } else {
        chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
        ++degrees;
      }
    }
    if (rare_expected > 5) {
      chi_square += (rare_count - rare_expected) * (rare_count - rare_expected) / rare_expected;
      ++degrees;
    }
    EXPECT_LT(chi_square, degrees + 4 * std::sqrt(2.0 * degrees) + 8) << degrees << " degrees";
  }
}

// Token by token against the reference, passing over draws that rounding may decide.
TEST(SamplerTest, DrawsTheReferencesTokenForRandomParameters) {
  std::mt19937 random(2);
  const auto unit = [&] { return static_cast<float>(random() % 10001) / 10000.0f; };
  int compared = 0;
  for (int round = 0; round < 6000; ++round) {
    const size_t V = 1 + random() % (round % 10 == 0 ? 5000 : 300);
    Case from;
    from.logits = random_row(random, V, 0.2f + 5 * unit());
    if (round % 3 == 0) {
      for (float& x : from.logits) x = std::round(x);  // many ties
    }
    if (round % 5 == 0) {
      for (float& x : from.logits) x = random() % 4 == 0 ? -kInf : x;
      from.logits[random() % V] = 1;
    }
    from.params.temperature = random() % 4 == 0 ? 1.0f : 0.05f + 3 * unit();
    if (random() % 2 == 0) from.params.top_p = std::max(0.001f, unit());
    if (random() % 2 == 0) from.params.top_k = static_cast<int32_t>(1 + random() % (V + 3));
    if (random() % 3 == 0) from.params.min_p = unit() * unit();
    if (random() % 3 == 0) {
      from.params.frequency_penalty = 4 * unit() - 2;
      from.params.presence_penalty = 4 * unit() - 2;
      from.params.repetition_penalty = 0.1f + 1.9f * unit();
      for (size_t i = random() % 20; i-- > 0;)
        from.output.push_back(static_cast<TokenId>(random() % V));
    }
    if (random() % 3 == 0) {
      from.params.logit_bias = {{static_cast<TokenId>(random() % V), 20 * unit() - 10}};
    }
    if (random() % 4 == 0 && V > 1) from.forbidden = {static_cast<TokenId>(random() % V)};
    const ReferenceDistribution want =
        reference_distribution(from.logits, from.params, from.output, from.forbidden);
    Sampler sampler(static_cast<int64_t>(V));
    for (int64_t position = 0; position < 5; ++position) {
      const Result<TokenId> token = sample(sampler, from, 77, position, round % 3);
      if (want.logits[static_cast<size_t>(want.best)] == -kInf) {
        ASSERT_FALSE(token.ok());
        continue;
      }
      ASSERT_TRUE(token.ok()) << token.status().to_string();
      double margin = 0;
      const TokenId expected =
          reference_draw(want, ops::uniform_draw(77, position, round % 3), margin);
      if (want.margin < 1e-5 || margin < 1e-5) continue;
      ASSERT_EQ(*token, expected) << fmt::format(
          "round {}, V = {}, temperature {}, top_p {}, top_k {}, min_p {}", round, V,
          from.params.temperature, from.params.top_p, from.params.top_k, from.params.min_p);
      ++compared;
    }
  }
  EXPECT_GT(compared, 20000);
}

TEST(SamplerTest, ReportsLogprobsOfTheTemperedDistributionBestFirst) {
  const Case from{{1, 3, 2, -kInf, 3}, {.temperature = 0.5f, .top_k = 1}, {}, {0}};
  Sampler sampler(5);
  TokenLogprob logprob;
  ASSERT_EQ(*sample(sampler, from, 1, 0, 0, &logprob, 20), 1);
  const double total = std::log(std::exp(6.0) + std::exp(4.0) + std::exp(6.0));
  EXPECT_EQ(logprob.token, 1);
  EXPECT_NEAR(logprob.logprob, 6 - total, 1e-6);
  ASSERT_EQ(logprob.top.size(), 3u);  // masked tokens are no alternatives
  EXPECT_EQ(logprob.top[0].first, 1);
  EXPECT_EQ(logprob.top[1].first, 4);
  EXPECT_EQ(logprob.top[2].first, 2);
  EXPECT_NEAR(logprob.top[2].second, 4 - total, 1e-6);
  ASSERT_TRUE(sample(sampler, from, 1, 0, 0, &logprob, 0).ok());
  EXPECT_THAT(logprob.top, IsEmpty());
}

TEST(SamplerTest, ReportsTheReferencesLogprobsInALargeVocabulary) {
  std::mt19937 random(4);
  for (const float temperature : {0.0f, 0.7f, 2.0f}) {
    const Case from{random_row(random, 20011, 3), {.temperature = temperature}, {}, {}};
    const ReferenceDistribution want = reference_distribution(from.logits, from.params, {}, {});
    Sampler sampler(20011);
    TokenLogprob logprob;
    const TokenId token = *sample(sampler, from, 6, 0, 0, &logprob, 20);
    EXPECT_NEAR(logprob.logprob, std::log(want.probabilities[static_cast<size_t>(token)]), 2e-5);
    ASSERT_EQ(logprob.top.size(), 20u);
    EXPECT_EQ(logprob.top[0].first, want.best);
    for (size_t i = 0; i < 20; ++i) {
      EXPECT_NEAR(logprob.top[i].second,
                  std::log(want.probabilities[static_cast<size_t>(logprob.top[i].first)]), 2e-5);
      EXPECT_LE(logprob.top[i].second, logprob.top[i - std::min<size_t>(i, 1)].second);
    }
  }
}

TEST(SamplerTest, ScoresATokenInTheDistributionAsItIs) {
  std::mt19937 random(5);
  Sampler sampler(3000);
  for (int round = 0; round < 20; ++round) {
    const std::vector<float> logits = random_row(random, 3000, 4);
    const auto token = static_cast<TokenId>(random() % 3000);
    const ReferenceDistribution want = reference_distribution(logits, {}, {}, {});
    TokenLogprob scored;
    const std::vector<TokenId> listed = {token, 2999, want.best};
    ASSERT_TRUE(sampler.score(logits, token, 9, 3, listed, scored).ok());
    EXPECT_EQ(scored.token, token);
    ASSERT_EQ(scored.listed.size(), 3u);
    EXPECT_EQ(scored.listed[0], scored.logprob);
    EXPECT_NEAR(scored.listed[1], std::log(want.probabilities[2999]), 2e-5);
    EXPECT_EQ(scored.listed[2], scored.top[0].second);
    EXPECT_NEAR(scored.logprob, std::log(want.probabilities[static_cast<size_t>(token)]), 1e-5);
    ASSERT_EQ(scored.top.size(), 3u);
    EXPECT_EQ(scored.top[0].first, want.best);

    // The same bits as those of the token that is drawn from the row.
    TokenLogprob drawn;
    const Result<TokenId> best =
        sample(sampler, {.logits = logits, .params = {.temperature = 0}}, 1, 0, 0, &drawn, 3);
    ASSERT_TRUE(sampler.score(logits, *best, 9, 3, {}, scored).ok());
    EXPECT_EQ(scored.logprob, drawn.logprob);
    EXPECT_EQ(scored.top, drawn.top);
    EXPECT_THAT(scored.listed, IsEmpty());
  }
  std::vector<float> row(3000, 1.0f);
  row[7] = -kInf;
  TokenLogprob scored;
  ASSERT_TRUE(sampler.score(row, 7, 9, 0, {}, scored).ok());
  EXPECT_EQ(scored.logprob, kMaskedLogprob);
  row[8] = kNan;
  EXPECT_THAT(std::string(sampler.score(row, 7, 9, 0, {}, scored).message()),
              HasSubstr("a logit for position 9 is not a number"));
}

TEST(LogitRowTest, SumsTheWeightsOfItsTokensExactly) {
  std::mt19937 random(3);
  for (const size_t V : {1u, 63u, 64u, 65u, 1000u, 20011u}) {
    for (const float scale : {0.0f, 0.01f, 1.0f, 8.0f, 40.0f}) {
      std::vector<float> row = random_row(random, V, scale);
      if (V > 70) row[69] = -kInf;
      const float max = *std::max_element(row.begin(), row.end());
      std::vector<uint64_t> block_sums(num_blocks(V));
      const uint64_t total = sum_weights(row, max, 1.25f, block_sums);
      uint64_t want = 0;
      for (size_t b = 0; b < block_sums.size(); ++b) {
        uint64_t block = 0;
        for (const float logit : block_of(std::span(row), b)) {
          block += ops::token_weight(logit, max, 1.25f);
        }
        EXPECT_EQ(block_sums[b], block) << "block " << b << " of V = " << V;
        want += block;
      }
      EXPECT_EQ(total, want);
    }
  }
}

TEST(SamplerTest, HoldsTheLargestVocabularyOfEqualLogits) {
  const auto V = static_cast<size_t>(kMaxVocabSize);
  Sampler sampler(kMaxVocabSize);
  std::vector<float> row(V, 2.5f);
  const SamplingParams open;
  TokenLogprob logprob;
  for (int64_t position = 0; position < 3; ++position) {
    const Result<TokenId> token =
        sampler.sample({.logits = row, .params = &open, .seed = 4, .position = position}, &logprob);
    ASSERT_TRUE(token.ok());
    EXPECT_EQ(*token, static_cast<TokenId>(ops::uniform_draw(4, position, 0) *
                                           static_cast<double>(kMaxVocabSize)));
    EXPECT_NEAR(logprob.logprob, -std::log(static_cast<double>(kMaxVocabSize)), 1e-5);
  }
}

}  // namespace
}  // namespace heddle::sampling
