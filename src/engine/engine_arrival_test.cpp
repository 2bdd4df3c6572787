// SPDX-License-Identifier: Apache-2.0
// Tests which requests the engine accepts.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_fixture.h"

namespace heddle::engine {
namespace {

using ::testing::HasSubstr;

TEST(EngineArrivalTest, RefusesUsedIdsFullQueuesAndBadFields) {
  Received received, second, third;  // outlive the engine, which aborts them
  EngineFixture fixture({.sizes = one_batch_slot(), .max_queued_requests = 1});
  ASSERT_TRUE(fixture.submit(EngineFixture::request("a"), received).ok());
  EXPECT_THAT(fixture.submit(EngineFixture::request("a"), received).message(),
              HasSubstr("still running"));
  ASSERT_TRUE(fixture.submit(EngineFixture::request("b"), second).ok());
  const Status full = fixture.submit(EngineFixture::request("c"), third);
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("1 requests are waiting, max_queued_requests = 1"));
  while (!received.finish) fixture.engine->step();
  fixture.engine->step();
  EXPECT_TRUE(fixture.submit(EngineFixture::request("c"), third).ok());
  Request bad = EngineFixture::request("d");
  bad.sampling.top_p = 2;
  EXPECT_THAT(fixture.submit(bad, third).message(), HasSubstr("top_p is 2"));
}

TEST(EngineArrivalTest, ArrivalsThatFindAFreeBatchSlotAreNotRefused) {
  EngineFixture fixture({.max_queued_requests = 1});  // eight batch slots
  std::vector<Received> received(10);
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_TRUE(fixture.submit(EngineFixture::request(fmt::format("{}", i)), received[i]).ok())
        << i;
  }
  EXPECT_EQ(fixture.submit(EngineFixture::request("9"), received[9]).code(),
            StatusCode::kResourceExhausted);
  while (fixture.engine->step()) {
  }
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(received[i].reason(), FinishReason::kLength) << i;
}

TEST(EngineArrivalTest, TakesABatchWholeOrNotAtAll) {
  EngineFixture fixture({.sizes = one_batch_slot(), .max_queued_requests = 3});
  std::vector<Received> received(5);
  const auto batch = [](const std::vector<std::string>& ids) {
    std::vector<Request> requests;
    for (const std::string& id : ids) requests.push_back(EngineFixture::request(id));
    return requests;
  };
  const auto on_event = [&received](size_t index, const RequestEvent& event) {
    received[index].take(event);
  };
  const Status never = fixture.engine->submit_all(batch({"a", "b", "c", "d", "e"}), on_event);
  EXPECT_EQ(never.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(never.message(), HasSubstr("5 answers at once are more than this engine takes: 4"));
  EXPECT_EQ(fixture.engine->submit_all(batch({"a", "b", "a"}), on_event).code(),
            StatusCode::kInvalidArgument);

  Received first;
  ASSERT_TRUE(fixture.submit(EngineFixture::request("a"), first).ok());  // free: nothing was taken
  const Status full = fixture.engine->submit_all(batch({"b", "c", "d", "e"}), on_event);
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("4 came at once"));
  EXPECT_EQ(fixture.engine->stats().num_waiting, 1);
  ASSERT_TRUE(fixture.engine->submit_all(batch({"b", "c", "d"}), on_event).ok());
  while (fixture.engine->step()) {
  }
  EXPECT_EQ(first.reason(), FinishReason::kLength);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(received[i].reason(), FinishReason::kLength) << i;
  EXPECT_EQ(received[3].num_events, 0);
}

// Only the engine thread knows who has how many requests waiting: it is asked for the whole
// call.
TEST(EngineArrivalTest, TakesATenantsBatchWholeOrNotAtAll) {
  EngineFixture::Options options;
  options.sizes.max_sequences = 4;
  options.scheduling.tenant_max_queued = 2;
  EngineFixture fixture(options);
  std::vector<Received> received(10);
  const auto submit = [&](size_t first, size_t count) {
    std::vector<Request> requests;
    for (size_t i = first; i < first + count; ++i) {
      requests.push_back(EngineFixture::request(fmt::format("{}", i), 3, 20));
      requests.back().stop.ignore_eos = true;
    }
    return fixture.engine->submit_all(std::move(requests),
                                      [&received, first](size_t index, const RequestEvent& event) {
                                        received[first + index].take(event);
                                      });
  };
  const Status never = submit(0, 7);
  EXPECT_EQ(never.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(never.message(),
              HasSubstr("7 answers at once are more than are taken of one tenant"));

  ASSERT_TRUE(submit(0, 4).ok());
  fixture.engine->step();
  EXPECT_EQ(fixture.engine->stats().num_running, 4) << "as on any idle engine";
  ASSERT_TRUE(submit(4, 3).ok());
  fixture.engine->step();
  for (size_t i = 4; i < 7; ++i) {
    ASSERT_EQ(received[i].reason(), FinishReason::kError) << i;
    EXPECT_THAT(received[i].finish->error.message(), HasSubstr("tenant_queue_full: "));
    EXPECT_EQ(received[i].num_events, 1);
  }
  ASSERT_TRUE(submit(7, 2).ok());
  while (fixture.engine->step()) fixture.engine->check_invariants();
  for (const size_t i : {0u, 1u, 2u, 3u, 7u, 8u}) {
    EXPECT_EQ(received[i].reason(), FinishReason::kLength) << i;
  }
}

}  // namespace
}  // namespace heddle::engine
