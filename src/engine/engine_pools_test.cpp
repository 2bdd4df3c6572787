// SPDX-License-Identifier: Apache-2.0
// After thousands of random requests with drafts, of which many are aborted, the pools are as they
// were at the start: no page, no state and no row of the tree is lost. A sample in every run,
// 10,000 requests with HEDDLE_TEST_FULL=1.
#include <algorithm>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_fixture.h"
#include "support/test_data.h"

namespace heddle::engine {
namespace {

using ::testing::IsEmpty;

struct PoolSetting {
  const char* name;
  int32_t page_size;
  bool overlap;
  bool adapts;
  bool with_states;
  bool reads_texts = false;  // a model of its own makes the drafts
};

class EnginePoolsTest : public ::testing::TestWithParam<PoolSetting> {
 protected:
  static EngineFixture::Options options() {
    const PoolSetting& setting = GetParam();
    runner::PoolSizes sizes = roomy_pools();
    sizes.page_size = setting.page_size;
    sizes.num_pages = 600 / setting.page_size;  // not enough for all at once
    request::StepLimits limits = roomy_limits();
    limits.max_made_drafts = 7;
    limits.drafter_reads_texts = setting.reads_texts;
    if (!setting.with_states) sizes.num_state_slots = 0;
    SchedulingOptions scheduling;
    scheduling.overlap = setting.overlap;
    SpeculativeOptions speculative{.algorithm = DraftAlgorithm::kMtp};
    if (!setting.adapts) speculative.num_draft_tokens = 8;
    return {.sizes = sizes,
            .limits = limits,
            .context_length = 256,
            .scheduling = scheduling,
            .speculative = speculative};
  }

  EnginePoolsTest() : fixture_(options()) {
    // Most drafts are right, many are not, and some are missing.
    fixture_.runner->make_draft = [this](TokenId right) -> std::optional<TokenId> {
      const auto dice = random_() % 10;
      if (dice == 0) return std::nullopt;
      return dice < 8 ? right : static_cast<TokenId>(random_() % 256);
    };
    fixture_.runner->on_step = [this](const request::BatchPlan& plan) {
      fixture_.clock.advance_seconds(1e-3 + 1e-4 * static_cast<double>(plan.num_rows()));
      return Status();
    };
  }

  Inspection look() {
    std::optional<Inspection> seen;
    fixture_.engine->inspect({}, [&](Result<Inspection> answer) { seen = *std::move(answer); });
    fixture_.engine->step();
    EXPECT_TRUE(seen.has_value());
    return seen.value_or(Inspection());
  }

  // A request of some tokens, which begin as others do; it may be one that ends early, or draws
  // with penalties.
  Request random_request(int64_t number) {
    Request request{.id = fmt::format("{}", number)};
    const auto family = static_cast<TokenId>(random_() % 4);
    const auto length = static_cast<int64_t>(1 + random_() % 60);
    for (int64_t i = 0; i < length; ++i) {
      const bool own = i > length / 2;
      request.prompt.push_back(own ? static_cast<TokenId>(random_() % 256)
                                   : static_cast<TokenId>((family * 50 + i) % 256));
    }
    request.stop.max_new_tokens = static_cast<int64_t>(random_() % 40);
    request.stop.ignore_eos = random_() % 2 == 0;
    request.sampling.seed = random_();
    if (random_() % 4 == 0) request.sampling.frequency_penalty = 0.5f;
    return request;
  }

  EngineFixture fixture_;
  std::mt19937 random_{42};
};

TEST_P(EnginePoolsTest, ReturnToTheirStart) {
  const int64_t num_requests = testing::wants_everything() ? 10000 : 600;
  const Inspection before = look();
  std::deque<Received> received;
  std::vector<std::string> running;
  int64_t num_submitted = 0;
  int64_t num_accepted = 0;
  int64_t num_aborted = 0;
  while (true) {
    while (num_submitted < num_requests && random_() % 3 != 0) {
      Request request = random_request(num_submitted++);
      running.push_back(request.id);
      Received& answer = received.emplace_back();
      const Status status = fixture_.submit(std::move(request), answer);
      ASSERT_TRUE(status.ok() || status.code() == StatusCode::kResourceExhausted);
    }
    if (random_() % 4 == 0 && !running.empty()) {
      // Often one of the last, which may still wait.
      const size_t back = random_() % std::min<size_t>(running.size(), 16);
      fixture_.engine->cancel(running[running.size() - 1 - back]);
    }
    if (!fixture_.engine->step() && num_submitted == num_requests) break;
    if (random_() % 16 == 0) fixture_.engine->check_invariants();
  }
  for (const Received& answer : received) {
    num_accepted += answer.last.drafts.accepted_tokens;
    if (answer.finish && answer.reason() == FinishReason::kAbort) ++num_aborted;
  }
  EXPECT_GT(num_accepted, num_requests / 2);
  EXPECT_GT(num_aborted, num_requests / 50);
  EXPECT_THAT(fixture_.runner->complaints(), IsEmpty());

  const Inspection idle = look();
  EXPECT_EQ(idle.num_requests, 0);
  for (const PoolView* pool : {&idle.kv_pages, &idle.states}) {
    EXPECT_EQ(pool->requests, 0);
    EXPECT_EQ(pool->shared, 0);
  }
  std::optional<Status> cleared;
  fixture_.engine->clear_cache(0, [&](Status status) { cleared = std::move(status); });
  fixture_.engine->step();
  ASSERT_TRUE(cleared && cleared->ok());
  const Inspection after = look();
  for (const auto pool : {&Inspection::kv_pages, &Inspection::states}) {
    EXPECT_EQ((after.*pool).total, (before.*pool).total);
    EXPECT_EQ((after.*pool).requests, 0);
    EXPECT_EQ((after.*pool).shared, 0);
    EXPECT_EQ((after.*pool).cached, 0);
  }
  EXPECT_EQ(after.tree.num_nodes, before.tree.num_nodes);
  EXPECT_EQ(after.tree.num_tokens, 0);
  EXPECT_EQ(after.tree.num_states, 0);
}

INSTANTIATE_TEST_SUITE_P(Settings, EnginePoolsTest,
                         ::testing::Values(PoolSetting{"pages_of_4", 4, true, false, true},
                                           PoolSetting{"pages_of_1_adaptive", 1, true, true, true},
                                           PoolSetting{"pages_of_16_in_turn", 16, false, false,
                                                       true},
                                           PoolSetting{"without_states", 4, true, false, false},
                                           PoolSetting{"small_model", 4, true, false, true, true}),
                         [](const auto& setting) { return std::string(setting.param.name); });

}  // namespace
}  // namespace heddle::engine
