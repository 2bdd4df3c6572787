// SPDX-License-Identifier: Apache-2.0
// Inspections: what they show of requests and the cache, and that each is answered exactly once.
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_fixture.h"

namespace heddle::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class EngineInspectionTest : public ::testing::Test {
 protected:
  // Asks, runs a round and returns the answer.
  static Result<Inspection> look(EngineFixture& fixture, InspectionOptions options = {}) {
    std::optional<Result<Inspection>> answer;
    int num_answers = 0;
    fixture.engine->inspect(std::move(options), [&](Result<Inspection> seen) {
      answer.emplace(std::move(seen));
      ++num_answers;
    });
    fixture.engine->step();
    EXPECT_EQ(num_answers, 1);
    return answer ? std::move(*answer) : Result<Inspection>(internal_error("no answer"));
  }
};

TEST_F(EngineInspectionTest, AnIdleEngineShowsItsPoolsAndNoRequests) {
  EngineFixture fixture;
  const Inspection seen = look(fixture).value();
  EXPECT_EQ(seen.num_requests, 0);
  EXPECT_THAT(seen.requests, IsEmpty());
  EXPECT_EQ(seen.kv_pages.total, 256);
  EXPECT_EQ(seen.states.total, 8);
}

TEST_F(EngineInspectionTest, RequestsAreSeenWaitingInPrefillAndDecoding) {
  EngineFixture fixture({.sizes = one_batch_slot(), .chunked_prefill_tokens = 32});
  Received first;
  Received second;
  Request urgent = EngineFixture::request("first", 40, 8);
  urgent.stop.ignore_eos = true;
  urgent.tenant = "alice";
  ASSERT_TRUE(fixture.submit(urgent, first).ok());
  ASSERT_TRUE(fixture.submit(EngineFixture::request("second", 3, 4), second).ok());
  fixture.engine->step();  // the first chunk
  fixture.clock.advance_seconds(2);

  const Inspection filling = look(fixture).value();  // before the rest of the prompt
  EXPECT_EQ(filling.num_requests, 2);
  ASSERT_THAT(filling.requests, SizeIs(2));
  EXPECT_EQ(filling.requests[0].id, "first");
  EXPECT_EQ(filling.requests[0].tenant, "alice");
  EXPECT_EQ(filling.requests[0].phase, RequestPhase::kPrefill);
  EXPECT_EQ(filling.requests[0].prompt_tokens, 40);
  EXPECT_EQ(filling.requests[0].computed_tokens, 32);
  EXPECT_EQ(filling.requests[0].max_new_tokens, 8);
  EXPECT_DOUBLE_EQ(filling.requests[0].age_seconds, 2);
  EXPECT_EQ(filling.requests[1].id, "second");
  EXPECT_EQ(filling.requests[1].phase, RequestPhase::kWaiting);
  EXPECT_EQ(filling.requests[1].computed_tokens, 0);

  const Inspection drawing = look(fixture, {.max_requests = 1}).value();
  EXPECT_EQ(drawing.num_requests, 2);
  ASSERT_THAT(drawing.requests, SizeIs(1));
  EXPECT_EQ(drawing.requests[0].phase, RequestPhase::kDecode);
  EXPECT_EQ(drawing.requests[0].output_tokens, 1);

  while (fixture.engine->step()) {
  }
  EXPECT_THAT(look(fixture).value().requests, IsEmpty());
}

TEST_F(EngineInspectionTest, APromptThatRanBeforeIsFoundInTheTree) {
  EngineFixture fixture;
  const Request ran = EngineFixture::request("a", 20, 2);
  fixture.run(ran);
  Request again = EngineFixture::request("a", 30, 2);
  const Inspection seen = look(fixture, {.max_nodes = 10, .prompt = again.prompt}).value();
  EXPECT_FALSE(seen.tree.nodes.empty());
  ASSERT_TRUE(seen.reuse);
  EXPECT_EQ(seen.reuse->prompt_tokens, 30);
  EXPECT_EQ(seen.reuse->matched_tokens, 20);
  const Inspection apart =
      look(fixture, {.prompt = again.prompt, .cache_namespace = "other"}).value();
  EXPECT_EQ(apart.reuse->matched_tokens, 0);
}

TEST_F(EngineInspectionTest, ALongPromptMatchesOnlyPrefixesOfItsRotaryTable) {
  EngineFixture::Options options;
  options.limits.short_rope_tokens = 25;
  EngineFixture fixture(options);
  fixture.run(EngineFixture::request("a", 20, 2));
  const Request longer = EngineFixture::request("a", 30, 2);
  EXPECT_EQ(look(fixture, {.prompt = longer.prompt}).value().reuse->matched_tokens, 0);
  fixture.run(longer);
  EXPECT_EQ(look(fixture, {.prompt = longer.prompt}).value().reuse->matched_tokens, 30);
}

TEST_F(EngineInspectionTest, APausedEngineAnswers) {
  EngineFixture fixture;
  fixture.engine->pause(PauseMode::kInPlace, [](const Status&) {});
  fixture.engine->step();
  EXPECT_TRUE(look(fixture).ok());
}

TEST_F(EngineInspectionTest, AnEngineThatFailedRefuses) {
  EngineFixture fixture;
  fixture.runner->on_step = [](const request::BatchPlan&) { return internal_error("lost"); };
  Received received;
  ASSERT_TRUE(fixture.submit(EngineFixture::request("a"), received).ok());
  fixture.engine->step();
  const Result<Inspection> refused = look(fixture);
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable);
}

TEST_F(EngineInspectionTest, ManyWaitAndMoreAreRefused) {
  EngineFixture fixture;
  int num_seen = 0;
  Status refused;
  for (int i = 0; i < 17; ++i) {
    fixture.engine->inspect({}, [&](const Result<Inspection>& seen) {
      if (seen.ok()) {
        ++num_seen;
      } else {
        refused = seen.status();
      }
    });
  }
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("16 inspections wait"));
  for (int round = 1; round <= 16; ++round) {
    fixture.engine->step();
    EXPECT_EQ(num_seen, round) << "one between two steps";
  }
}

TEST_F(EngineInspectionTest, TheEndOfTheEngineAnswersWhatWaits) {
  std::vector<StatusCode> answers;
  {
    EngineFixture fixture;
    for (int i = 0; i < 3; ++i) {
      fixture.engine->inspect(
          {}, [&](const Result<Inspection>& seen) { answers.push_back(seen.status().code()); });
    }
    EXPECT_THAT(answers, IsEmpty());
  }
  EXPECT_THAT(answers, ElementsAre(StatusCode::kUnavailable, StatusCode::kUnavailable,
                                   StatusCode::kUnavailable));
}

}  // namespace
}  // namespace heddle::engine
