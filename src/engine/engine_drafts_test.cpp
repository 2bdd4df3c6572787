// SPDX-License-Identifier: Apache-2.0
// Drafts that the runner makes, through the engine: the cost of rejected ones, and the reports
// about them.
#include <algorithm>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_fixture.h"
#include "support/exposition.h"

namespace heddle::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kStepSeconds = 1e-3;
constexpr double kRowSeconds = 2.5e-4;  // of a draft that is verified
constexpr double kDraftSeconds = 2e-4;  // of one that is made

// An engine whose runner makes drafts, as many as pay, by a clock that steps move on.
class EngineDraftsTest : public ::testing::Test {
 protected:
  EngineDraftsTest() : fixture_(options()) {
    fixture_.runner->on_step = [this](const request::BatchPlan& plan) {
      double seconds = kStepSeconds;
      for (const auto& sequence : plan.sequences) {
        seconds += kRowSeconds * sequence.drafts.count + kDraftSeconds * sequence.wanted_drafts;
        num_made_ += sequence.wanted_drafts;
      }
      ++num_steps_;
      const bool wants = std::ranges::any_of(
          plan.sequences, [](const auto& sequence) { return sequence.wanted_drafts > 0; });
      if (plan.computes_draft_slots && !wants) ++num_followed_prompts_;
      fixture_.clock.advance_seconds(seconds);
      return Status();
    };
  }

  static EngineFixture::Options options() {
    request::StepLimits limits = roomy_limits();
    limits.max_made_drafts = 7;
    return {.limits = limits,
            .context_length = 2048,
            .speculative = SpeculativeOptions{.algorithm = DraftAlgorithm::kMtp}};
  }

  EngineFixture fixture_;
  int64_t num_steps_ = 0;
  int64_t num_followed_prompts_ = 0;  // steps in which the network that drafts reads prompts only
  int64_t num_made_ = 0;
};

TEST_F(EngineDraftsTest, WhereNothingHoldsHardlyAnyStepDrafts) {
  fixture_.runner->make_draft = [](TokenId right) {
    return std::optional<TokenId>((right + 1) % testing::FakeRunner::kVocabSize);
  };
  for (int i = 0; i < 12; ++i) {
    Request request = EngineFixture::request(fmt::format("{}", i), 5, 200);
    request.stop.ignore_eos = true;
    EXPECT_EQ(std::ssize(fixture_.run(std::move(request)).tokens), 200);
  }
  EXPECT_THAT(fixture_.runner->complaints(), IsEmpty());
  const double plain = kStepSeconds * 12 * 200;
  EXPECT_LT(fixture_.clock.now_seconds(), 1.015 * plain);
  EXPECT_LT(num_made_, num_steps_ / 25);
  EXPECT_GT(num_made_, 0) << "they were tried";
  EXPECT_LE(num_followed_prompts_, 2) << "nor do prompts pass through the network";
}

TEST_F(EngineDraftsTest, AcceptedDraftsSaveStepsAndAreReported) {
  fixture_.runner->make_draft = [](TokenId right) { return std::optional<TokenId>(right); };
  Request request = EngineFixture::request("one", 5, 400);
  request.stop.ignore_eos = true;
  const Received received = fixture_.run(std::move(request));
  EXPECT_EQ(std::ssize(received.tokens), 400);
  EXPECT_LT(fixture_.clock.now_seconds(), 0.65 * kStepSeconds * 400);
  EXPECT_GT(received.last.drafts.accepted_tokens, 250);
  const EngineStats stats = fixture_.engine->stats();
  EXPECT_EQ(stats.accepted_drafts, received.last.drafts.accepted_tokens);
  EXPECT_GE(stats.draft_tokens, stats.accepted_drafts);
  EXPECT_EQ(stats.decode_steps + stats.accepted_drafts, 399) << "the prompt's step drew one";
  const std::string metrics = fixture_.engine->metrics_text();
  EXPECT_THAT(metrics, HasSubstr("heddle_speculation_info{algorithm=\"mtp\""));
  EXPECT_THAT(metrics, HasSubstr("heddle_tokens_per_step"));
  const auto text = testing::parse_exposition(metrics);
  EXPECT_EQ(text.value("heddle_draft_acceptance_ratio"),
            static_cast<double>(stats.accepted_drafts) / static_cast<double>(stats.draft_tokens));
  EXPECT_EQ(text.value("heddle_verified_drafts_sum"), stats.draft_tokens);
  EXPECT_EQ(text.value("heddle_accepted_drafts_sum"), stats.accepted_drafts);
  EXPECT_EQ(text.value("heddle_verified_drafts_count"), text.value("heddle_accepted_drafts_count"));
}

}  // namespace
}  // namespace heddle::engine
