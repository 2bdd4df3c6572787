// SPDX-License-Identifier: Apache-2.0
// Logprobs of prompts through the engine: whatever is cached, cut, sent back to the queue or in
// company, every token that is wanted is scored once, behind all tokens before it.
#include <algorithm>
#include <map>
#include <random>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_fixture.h"

namespace heddle::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The logprobs of its prompt that a request got, and when.
struct Scores {
  std::vector<TokenLogprob> logprobs;
  int64_t num_later = 0;  // in events after the first
  int64_t num_events = 0;
  Finish finish;
  CacheReport cache;

  void take(const RequestEvent& event) {
    if (num_events++ > 0) num_later += std::ssize(event.prompt_logprobs);
    logprobs.insert(logprobs.end(), event.prompt_logprobs.begin(), event.prompt_logprobs.end());
    if (event.finish) finish = *event.finish;
    cache = event.cache;
  }
};

std::vector<TokenLogprob> expected_scores(const Request& request) {
  std::vector<TokenLogprob> all;
  for (size_t i = static_cast<size_t>(std::max<int64_t>(request.prompt_logprobs->from, 1));
       i < request.prompt.size(); ++i) {
    all.push_back(testing::FakeRunner::score(std::span(request.prompt).first(i), request.prompt[i],
                                             request.prompt_logprobs->top));
  }
  return all;
}

void expect_scores(const std::vector<TokenLogprob>& got, const std::vector<TokenLogprob>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].token, want[i].token) << "entry " << i;
    EXPECT_EQ(got[i].logprob, want[i].logprob) << "entry " << i;
    EXPECT_EQ(got[i].top, want[i].top) << "entry " << i;
  }
}

class EnginePromptLogprobsTest : public ::testing::Test {
 protected:
  static EngineFixture::Options options(int64_t max_scored_rows = 16) {
    EngineFixture::Options options;
    options.limits.max_scored_rows = max_scored_rows;
    return options;
  }

  // Counts the rows that steps of the fixture score.
  void watch(EngineFixture& fixture) {
    fixture.runner->on_step = [this](const request::BatchPlan& plan) {
      num_scored_ += plan.num_scored_rows();
      most_in_a_step_ = std::max(most_in_a_step_, plan.num_scored_rows());
      return Status();
    };
  }

  static Request scored(std::string id, int64_t prompt_tokens, int64_t from, int32_t top = 0) {
    Request request = EngineFixture::request(std::move(id), prompt_tokens);
    request.prompt_logprobs = {.from = from, .top = top};
    return request;
  }

  static Scores run(EngineFixture& fixture, Request request) {
    Scores scores;
    const Status status = fixture.engine->submit(
        std::move(request), [&scores](const RequestEvent& event) { scores.take(event); });
    EXPECT_TRUE(status.ok()) << status.to_string();
    while (fixture.engine->step()) fixture.engine->check_invariants();
    EXPECT_THAT(fixture.runner->complaints(), IsEmpty());
    return scores;
  }

  int64_t num_scored_ = 0;
  int64_t most_in_a_step_ = 0;
};

TEST_F(EnginePromptLogprobsTest, EveryTokenFromTheFirstOneIsScoredInTheFirstEvent) {
  for (const int64_t rows : {1, 7, 16, 64}) {
    for (const int64_t length : {1, 2, 5, 40, 101}) {
      for (const int64_t from : {int64_t{0}, int64_t{1}, length / 2, length - 1, length}) {
        SCOPED_TRACE(fmt::format("{} rows, tokens {} to {}", rows, from, length));
        EngineFixture fixture(options(rows));
        watch(fixture);
        num_scored_ = most_in_a_step_ = 0;
        const Request request = scored("r", length, from, 3);
        const Scores scores = run(fixture, request);
        expect_scores(scores.logprobs, expected_scores(request));
        EXPECT_EQ(scores.num_later, 0);
        EXPECT_EQ(num_scored_, std::ssize(scores.logprobs)) << "each once";
        EXPECT_LE(most_in_a_step_, rows);
        EXPECT_EQ(scores.finish.reason, FinishReason::kLength);
      }
    }
  }
}

TEST_F(EnginePromptLogprobsTest, ARequestThatWantsNoOutputHasThemInItsOnlyEvent) {
  EngineFixture fixture(options());
  Request request = scored("r", 30, 0);
  request.stop.max_new_tokens = 0;
  const Scores scores = run(fixture, request);
  expect_scores(scores.logprobs, expected_scores(request));
  EXPECT_EQ(scores.num_events, 1);
  EXPECT_EQ(scores.finish.reason, FinishReason::kLength);
}

TEST_F(EnginePromptLogprobsTest, OnlyTokensBeforeTheFirstScoredOneComeFromTheCache) {
  for (const int64_t states : {0, 8}) {
    SCOPED_TRACE(fmt::format("{} state slots", states));
    EngineFixture::Options with_states = options();
    with_states.sizes.num_state_slots = states;
    with_states.sizes.keeps_hidden = states > 0;
    EngineFixture fixture(with_states);
    watch(fixture);
    Request plain = EngineFixture::request("plain", 100);
    const std::vector<TokenId> prompt = plain.prompt;
    (void)run(fixture, plain);
    EXPECT_EQ(num_scored_, 0);
    for (const int64_t from : {0, 1, 50, 66, 99, 100}) {
      SCOPED_TRACE(fmt::format("from {}", from));
      num_scored_ = 0;
      Request request = scored("scored", 100, from, 2);
      request.prompt = prompt;
      const Scores scores = run(fixture, request);
      expect_scores(scores.logprobs, expected_scores(request));
      EXPECT_EQ(num_scored_, std::ssize(scores.logprobs));
      if (from < 100) {
        EXPECT_LE(scores.cache.reused_tokens, std::max<int64_t>(from - 1, 0));
        EXPECT_FALSE(scores.cache.exact_repeat);
      } else {
        EXPECT_GE(scores.cache.reused_tokens, 96) << "nothing is left to score";
      }
      if (from == 99) {
        EXPECT_GE(scores.cache.reused_tokens, 64) << "the rest is reused";
      }
      const CacheLoss& lost = scores.cache.lost;
      EXPECT_EQ(lost.eviction + lost.missing_state + lost.grid + lost.last_token,
                std::max(scores.cache.matched_tokens, scores.cache.reused_tokens + lost.eviction) -
                    scores.cache.reused_tokens);
    }
  }
}

TEST_F(EnginePromptLogprobsTest, ATokenIsScoredOnceHoweverOftenItsRequestStartsAgain) {
  EngineFixture::Options small = options(4);
  small.sizes.max_sequences = 1;
  small.scheduling.enable_priority = true;
  small.scheduling.preemption_min_run_seconds = 0;
  EngineFixture fixture(small);
  watch(fixture);
  const Request request = scored("slow", 60, 0, 1);
  Scores scores;
  ASSERT_TRUE(
      fixture.engine->submit(request, [&scores](const RequestEvent& event) { scores.take(event); })
          .ok());
  int64_t num_urgent = 0;
  for (int step = 0; fixture.engine->step(); ++step) {
    fixture.engine->check_invariants();
    if (step % 5 != 2 || num_urgent >= 3) continue;
    Request urgent = EngineFixture::request(fmt::format("urgent {}", num_urgent++), 9, 2);
    urgent.priority = 100;
    ASSERT_TRUE(fixture.engine->submit(urgent, [](const RequestEvent&) {}).ok());
  }
  EXPECT_THAT(fixture.runner->complaints(), IsEmpty());
  expect_scores(scores.logprobs, expected_scores(request));
  EXPECT_EQ(num_scored_, 59);
  EXPECT_GE(fixture.engine->stats().steps, 15 + 3);
  EXPECT_THAT(fixture.engine->metrics_text(),
              HasSubstr("heddle_preemptions_total{model_name=\"fake\"} 3"));
}

// Pools too small for everybody, in company, with and without states, some cancelled on the way.
TEST_F(EnginePromptLogprobsTest, CompanyAndShortageChangeNothing) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    const auto below = [&](int64_t end) {
      return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
    };
    EngineFixture::Options options;
    options.sizes = {.num_pages = 24 + below(40),
                     .page_size = 1 << below(4),
                     .num_state_slots = below(2) * 6,
                     .max_sequences = 5};
    options.limits = {.max_tokens = 16 + below(40), .max_scored_rows = 1 + below(12)};
    options.sizes.num_pages = 160 / options.sizes.page_size + below(20);
    options.sizes.keeps_hidden = options.sizes.num_state_slots > 0;
    options.chunked_prefill_tokens = 1 + below(32);
    options.scheduling.overlap = below(2) == 0;
    options.scheduling.mixed_batches = below(3) > 0;
    EngineFixture fixture(options);
    watch(fixture);
    num_scored_ = 0;
    std::map<std::string, Request> requests;
    std::map<std::string, Scores> received;
    int64_t num_wanted = 0;
    for (int i = 0; i < 12; ++i) {
      Request request = EngineFixture::request(fmt::format("{}", i), 1 + below(70), below(30));
      // Many begin alike.
      if (i > 0 && below(2) == 0) {
        const std::vector<TokenId>& other = requests.at(fmt::format("{}", below(i))).prompt;
        const auto shared = std::min(request.prompt.size(), other.size());
        std::copy_n(other.begin(), shared, request.prompt.begin());
      }
      request.stop.ignore_eos = true;
      if (below(3) > 0) {
        request.prompt_logprobs = {.from = below(std::ssize(request.prompt) + 1),
                                   .top = static_cast<int32_t>(below(3))};
        num_wanted += std::ssize(expected_scores(request));
      }
      requests[request.id] = request;
      const Status status = fixture.engine->submit(
          request,
          [&received, id = request.id](const RequestEvent& event) { received[id].take(event); });
      ASSERT_TRUE(status.ok()) << status.to_string();
      for (int64_t steps = below(4); steps > 0; --steps) (void)fixture.engine->step();
    }
    while (fixture.engine->step()) fixture.engine->check_invariants();
    EXPECT_THAT(fixture.runner->complaints(), IsEmpty());
    for (const auto& [id, request] : requests) {
      SCOPED_TRACE("request " + id);
      EXPECT_EQ(received[id].finish.reason, FinishReason::kLength);
      EXPECT_EQ(received[id].num_later, 0);
      expect_scores(received[id].logprobs, request.prompt_logprobs ? expected_scores(request)
                                                                   : std::vector<TokenLogprob>());
    }
    EXPECT_EQ(num_scored_, num_wanted);
  }
}

TEST_F(EnginePromptLogprobsTest, AScoreThatFailsEndsItsOwnRequest) {
  EngineFixture fixture(options());
  fixture.runner->score_error = [](const request::PlannedSequence&, int64_t position) {
    return position == 20 ? internal_error("numerical error") : Status();
  };
  Received other;
  ASSERT_TRUE(fixture.submit(EngineFixture::request("other"), other).ok());
  const Scores scores = run(fixture, scored("r", 30, 0));
  EXPECT_EQ(scores.finish.reason, FinishReason::kError);
  EXPECT_EQ(scores.finish.error.message(), "numerical error");
  EXPECT_LT(std::ssize(scores.logprobs), 20);
  EXPECT_EQ(other.reason(), FinishReason::kLength);
}

TEST_F(EnginePromptLogprobsTest, ACancelledRequestEndsWithWhatWasScored) {
  EngineFixture fixture(options(4));
  const Request request = scored("r", 40, 0);
  Scores scores;
  ASSERT_TRUE(
      fixture.engine->submit(request, [&scores](const RequestEvent& event) { scores.take(event); })
          .ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(fixture.engine->step());
  fixture.engine->cancel("r");
  while (fixture.engine->step()) fixture.engine->check_invariants();
  EXPECT_EQ(scores.finish.reason, FinishReason::kAbort);
  std::vector<TokenLogprob> want = expected_scores(request);
  ASSERT_LT(scores.logprobs.size(), want.size());
  want.resize(scores.logprobs.size());
  expect_scores(scores.logprobs, want);
}

TEST_F(EnginePromptLogprobsTest, WhereNoneCanBeComputedTheyAreRefused) {
  Received received;  // outlives the engine, which ends the request that is left
  EngineFixture fixture;
  const Status status = fixture.submit(scored("r", 3, 0), received);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_TRUE(fixture.submit(scored("nothing to score", 3, 3), received).ok());
}

}  // namespace
}  // namespace heddle::engine
