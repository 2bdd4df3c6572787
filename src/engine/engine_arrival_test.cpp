// SPDX-License-Identifier: Apache-2.0
// Which requests the engine takes.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_test_bench.h"

namespace heddle::engine {
namespace {

using ::testing::HasSubstr;

TEST(EngineArrivalTest, RefusesUsedIdsFullQueuesAndBadFields) {
  Heard heard, second, third;  // outlive the engine, which aborts them
  EngineBench bench({.sizes = one_row(), .max_queued_requests = 1});
  ASSERT_TRUE(bench.submit(EngineBench::request("a"), heard).ok());
  EXPECT_THAT(bench.submit(EngineBench::request("a"), heard).message(), HasSubstr("still running"));
  ASSERT_TRUE(bench.submit(EngineBench::request("b"), second).ok());
  const Status full = bench.submit(EngineBench::request("c"), third);
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("1 requests are waiting, max_queued_requests = 1"));
  while (!heard.finish) bench.engine->step();
  bench.engine->step();
  EXPECT_TRUE(bench.submit(EngineBench::request("c"), third).ok());
  Request bad = EngineBench::request("d");
  bad.sampling.top_p = 2;
  EXPECT_THAT(bench.submit(bad, third).message(), HasSubstr("top_p is 2"));
}

TEST(EngineArrivalTest, ArrivalsThatFindAFreeRowAreNotRefused) {
  EngineBench bench({.max_queued_requests = 1});  // eight rows
  std::vector<Heard> heard(10);
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_TRUE(bench.submit(EngineBench::request(fmt::format("{}", i)), heard[i]).ok()) << i;
  }
  EXPECT_EQ(bench.submit(EngineBench::request("9"), heard[9]).code(),
            StatusCode::kResourceExhausted);
  while (bench.engine->step()) {
  }
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(heard[i].reason(), FinishReason::kLength) << i;
}

TEST(EngineArrivalTest, TakesABatchWholeOrNotAtAll) {
  EngineBench bench({.sizes = one_row(), .max_queued_requests = 3});
  std::vector<Heard> heard(5);
  const auto batch = [](const std::vector<std::string>& ids) {
    std::vector<Request> requests;
    for (const std::string& id : ids) requests.push_back(EngineBench::request(id));
    return requests;
  };
  const auto on_event = [&heard](size_t index, const RequestEvent& event) {
    heard[index].take(event);
  };
  const Status never = bench.engine->submit_all(batch({"a", "b", "c", "d", "e"}), on_event);
  EXPECT_EQ(never.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(never.message(), HasSubstr("5 answers at once are more than this engine takes: 4"));
  EXPECT_EQ(bench.engine->submit_all(batch({"a", "b", "a"}), on_event).code(),
            StatusCode::kInvalidArgument);

  Heard first;
  ASSERT_TRUE(bench.submit(EngineBench::request("a"), first).ok());  // free: nothing was taken
  const Status full = bench.engine->submit_all(batch({"b", "c", "d", "e"}), on_event);
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("4 came at once"));
  EXPECT_EQ(bench.engine->stats().num_waiting, 1);
  ASSERT_TRUE(bench.engine->submit_all(batch({"b", "c", "d"}), on_event).ok());
  while (bench.engine->step()) {
  }
  EXPECT_EQ(first.reason(), FinishReason::kLength);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(heard[i].reason(), FinishReason::kLength) << i;
  EXPECT_EQ(heard[3].num_events, 0);
}

// What only the engine thread knows, who has how many requests waiting, is asked for the whole
// call.
TEST(EngineArrivalTest, TakesATenantsBatchWholeOrNotAtAll) {
  EngineBench::Options options;
  options.sizes.max_step_sequences = 4;
  options.scheduling.tenant_max_queued = 2;
  EngineBench bench(options);
  std::vector<Heard> heard(10);
  const auto submit = [&](size_t first, size_t count) {
    std::vector<Request> requests;
    for (size_t i = first; i < first + count; ++i) {
      requests.push_back(EngineBench::request(fmt::format("{}", i), 3, 20));
      requests.back().stop.ignore_eos = true;
    }
    return bench.engine->submit_all(std::move(requests),
                                    [&heard, first](size_t index, const RequestEvent& event) {
                                      heard[first + index].take(event);
                                    });
  };
  const Status never = submit(0, 7);
  EXPECT_EQ(never.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(never.message(),
              HasSubstr("7 answers at once are more than are taken of one tenant"));

  ASSERT_TRUE(submit(0, 4).ok());
  bench.engine->step();
  EXPECT_EQ(bench.engine->stats().num_running, 4) << "as on any idle engine";
  ASSERT_TRUE(submit(4, 3).ok());
  bench.engine->step();
  for (size_t i = 4; i < 7; ++i) {
    ASSERT_EQ(heard[i].reason(), FinishReason::kError) << i;
    EXPECT_THAT(heard[i].finish->error.message(), HasSubstr("tenant_queue_full: "));
    EXPECT_EQ(heard[i].num_events, 1);
  }
  ASSERT_TRUE(submit(7, 2).ok());
  while (bench.engine->step()) bench.engine->check_invariants();
  for (const size_t i : {0u, 1u, 2u, 3u, 7u, 8u}) {
    EXPECT_EQ(heard[i].reason(), FinishReason::kLength) << i;
  }
}

}  // namespace
}  // namespace heddle::engine
