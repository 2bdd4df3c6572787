// SPDX-License-Identifier: Apache-2.0
#include "scheduler/waiting_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler_fixture.h"
#include "scheduler/scheduler_parts_fixture.h"

namespace heddle::scheduler {
namespace {

using request::Sequence;
using request::SequenceStatus;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(WaitingQueueTest, ADisplacedSequenceThatIsReleasedIsNotReportedAnyMore) {
  BatchSchedulerOptions options = roomy();
  options.max_running = 1;
  options.max_queued = 2;
  options.scheduling.enable_priority = true;
  options.scheduling.default_priority = 0;
  SchedulerFixture fixture(options);
  fixture.submit(20, 3);  // takes the only batch slot
  fixture.step();
  Sequence& first = fixture.submit(20, 3);
  Sequence& second = fixture.submit(20, 3);
  for (int i = 0; i < 2; ++i) {
    Request request;
    request.prompt = fixture.unique_prompt(20);
    request.stop.max_new_tokens = 3;
    request.priority = 100;
    ASSERT_TRUE(fixture.scheduler->submit(fixture.make(std::move(request))).ok());
  }
  ASSERT_EQ(first.status, SequenceStatus::kFinished);
  ASSERT_EQ(second.status, SequenceStatus::kFinished);
  fixture.scheduler->release(second, Ending::kAborted);  // a cancellation that came meanwhile
  std::vector<Dropped> dropped;
  fixture.scheduler->take_dropped(dropped);
  ASSERT_EQ(dropped.size(), 1);
  EXPECT_EQ(dropped[0].sequence, &first);
}

TEST(WaitingQueueTest, ARequestThatFindsAFreeBatchSlotDoesNotCountAsWaiting) {
  BatchSchedulerOptions options = roomy();
  options.max_running = 8;
  options.max_queued = 4;
  SchedulerFixture fixture(options);
  for (int i = 0; i < 12; ++i) {
    EXPECT_TRUE(fixture.scheduler->submit(fixture.make(fixture.unique_prompt(4), 30)).ok()) << i;
  }
  EXPECT_FALSE(fixture.scheduler->submit(fixture.make(fixture.unique_prompt(4), 30)).ok());
  fixture.step();  // eight run and four wait
  ASSERT_EQ(fixture.scheduler->stats().num_running, 8);
  EXPECT_FALSE(fixture.scheduler->submit(fixture.make(fixture.unique_prompt(4), 30)).ok());
  fixture.scheduler->release(*fixture.sequences[0], Ending::kAborted);
  EXPECT_FALSE(fixture.scheduler->submit(fixture.make(fixture.unique_prompt(4), 30)).ok())
      << "the free batch slot belongs to one that waits";
  fixture.step();
  EXPECT_TRUE(fixture.scheduler->submit(fixture.make(fixture.unique_prompt(4), 30)).ok());
}

// Limits of the queue, of a tenant and of all, count requests that wait: a call of several answers
// finds the same free batch slots as so many calls.
TEST(WaitingQueueTest, ACallOfSeveralIsTakenWholeOrNotAtAll) {
  BatchSchedulerOptions options = roomy();
  options.max_running = 4;
  options.max_queued = 3;
  options.scheduling.tenant_max_queued = 2;
  SchedulerFixture fixture(options);
  const auto submit = [&fixture](int count, const char* tenant) {
    std::vector<Sequence*> call;
    for (int i = 0; i < count; ++i) {
      Request request;
      request.prompt = fixture.unique_prompt(20);
      request.stop.max_new_tokens = 5;
      request.tenant = tenant;
      call.push_back(&fixture.make(std::move(request)));
    }
    const Status fits =
        fixture.scheduler->check_call(std::vector<const Sequence*>(call.begin(), call.end()));
    return fits.ok() ? fixture.scheduler->submit_all(call) : fits;
  };
  const Status never = submit(7, "a");
  EXPECT_EQ(never.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(never.message(), HasSubstr("taken of one tenant: 6, of which 2 may wait"));

  ASSERT_TRUE(submit(4, "a").ok()) << "every batch slot is free";
  EXPECT_EQ(fixture.scheduler->stats().num_queued, 4);
  EXPECT_EQ(submit(3, "a").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(fixture.scheduler->stats().num_queued, 4) << "not even two of them";
  EXPECT_EQ(submit(3, "b").code(), StatusCode::kResourceExhausted) << "its share is two";
  ASSERT_TRUE(submit(2, "b").ok());
  EXPECT_EQ(submit(2, "c").code(), StatusCode::kResourceExhausted) << "three wait at most";
  ASSERT_TRUE(submit(1, "c").ok());
  fixture.run();
  EXPECT_EQ(fixture.scheduler->stats().num_queued, 0);
  ASSERT_TRUE(submit(6, "a").ok());
  fixture.run();
  for (const auto& sequence : fixture.sequences) {
    if (sequence->status == SequenceStatus::kNew) continue;
    EXPECT_EQ(SchedulerFixture::output_of(*sequence), SchedulerFixture::expected_output(*sequence));
  }
}

TEST(WaitingQueueTest, InAPauseAllWait) {
  for (const bool by_priority : {false, true}) {
    BatchSchedulerOptions options = roomy();
    options.max_queued = 2;
    options.scheduling.enable_priority = by_priority;
    options.scheduling.default_priority = 0;
    SchedulerFixture fixture(options);
    fixture.scheduler->set_paused(true);
    EXPECT_EQ(fixture.scheduler->stats().num_open_slots, 0);
    for (int i = 0; i < 2; ++i) fixture.submit(20, 3);
    const Status third = fixture.scheduler->submit(fixture.make(fixture.unique_prompt(4), 30));
    EXPECT_THAT(third.message(), HasSubstr("2 requests are waiting, max_queued_requests = 2"));
    fixture.scheduler->set_paused(false);
    EXPECT_TRUE(fixture.scheduler->submit(fixture.make(fixture.unique_prompt(4), 30)).ok());
  }
}

// A sequence that waits for a leader leaves the free batch slots open; once it waits for memory, no
// other one gets a slot before it.
TEST(WaitingQueueTest, ASequenceThatWaitedForAPrefixAndNowForMemoryIsShortOfRoom) {
  BatchSchedulerOptions options = roomy();
  options.cache.pools.num_pages = 120;
  options.chunked_prefill_tokens = 20;
  SchedulerFixture fixture(options);
  std::vector<TokenId> prompt = fixture.unique_prompt(400);
  fixture.submit(prompt, 3);
  ASSERT_TRUE(fixture.step());
  prompt[300] += 1;
  const Sequence& follower = fixture.submit(prompt, 3);
  ASSERT_TRUE(fixture.step());
  ASSERT_EQ(fixture.scheduler->stats().deferred_sequences, 1);
  EXPECT_EQ(fixture.scheduler->stats().num_open_slots, 15);
  for (int i = 0; i < 15; ++i) ASSERT_TRUE(fixture.step());  // to where the two part, and beyond
  ASSERT_EQ(follower.status, SequenceStatus::kWaiting);
  EXPECT_EQ(fixture.scheduler->stats().num_open_slots, 0);
  fixture.run();
  EXPECT_EQ(SchedulerFixture::output_of(follower), SchedulerFixture::expected_output(follower));
}

// A tenant at its own limit is short of nothing that others could take.
TEST(WaitingQueueTest, ASequenceAtItsTenantsLimitLeavesTheSlotsToOthers) {
  BatchSchedulerOptions options = roomy();
  options.max_running = 4;
  options.max_queued = 1;
  options.scheduling.tenant_max_running = 1;
  SchedulerFixture fixture(options);
  const auto submit = [&fixture](const char* tenant) {
    Request request;
    request.prompt = fixture.unique_prompt(20);
    request.stop.max_new_tokens = 30;
    request.tenant = tenant;
    return fixture.scheduler->submit(fixture.make(std::move(request)));
  };
  ASSERT_TRUE(submit("a").ok());
  ASSERT_TRUE(submit("a").ok());
  ASSERT_TRUE(fixture.step());
  ASSERT_EQ(fixture.scheduler->stats().num_running, 1);
  EXPECT_EQ(fixture.scheduler->stats().num_open_slots, 3);
  EXPECT_TRUE(submit("b").ok());
}

TEST(WaitingQueueTest, ReturnedSequencesGoBeforeNewOnesWhateverTheLimit) {
  PartsOptions options;
  options.scheduler.max_queued = 1;
  options.scheduler.max_running = 1;
  PartsFixture parts(options);
  Sequence& first = parts.make(4, 1);
  RunningSequence* const running = parts.running.start(first, {}, 0, false);
  ASSERT_NE(running, nullptr);
  ASSERT_TRUE(parts.submit(parts.make(4, 1)).ok());
  EXPECT_EQ(parts.submit(parts.make(4, 1)).code(), StatusCode::kResourceExhausted);

  running->leaving = Leaving::kRetracted;
  parts.running.remove(*running);
  first.status = SequenceStatus::kWaiting;
  parts.fair.arrive(parts.fair.tenant(""));
  parts.waiting.take_back({.sequence = &first, .returned = true, .short_of_room = true});
  EXPECT_THAT(parts.waiting_ids(), ElementsAre(1, 0));
  parts.waiting.order(parts.running, {}, 0);
  EXPECT_THAT(parts.waiting_ids(), ElementsAre(0, 1));
  EXPECT_EQ(parts.waiting.num_open_slots(parts.running), 0) << "it takes the free one";
  parts.waiting.check_invariants();
}

TEST(WaitingQueueTest, EntriesOfThePassStayWhenSequencesLeave) {
  PartsFixture parts;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(parts.submit(parts.make(4, 1)).ok());
  parts.waiting.order(parts.running, {}, 0);
  parts.waiting.remove_at(0);
  EXPECT_THAT(parts.waiting_ids(), ElementsAre(1, 2));
  ASSERT_EQ(parts.waiting.entries().size(), 3u);
  EXPECT_EQ(parts.waiting.entries()[1].sequence->id, 1);
}

TEST(WaitingQueueTest, SequencesShortOfRoomLeaveNoSlotOpen) {
  PartsFixture parts;
  ASSERT_TRUE(parts.submit(parts.make(4, 1)).ok());
  EXPECT_EQ(parts.waiting.num_open_slots(parts.running), 16);
  parts.waiting.expect_no_room();
  EXPECT_EQ(parts.waiting.num_open_slots(parts.running), 0);
  parts.waiting[0].short_of_room = false;
  EXPECT_EQ(parts.waiting.num_open_slots(parts.running), 16);
}

TEST(WaitingQueueTest, TheMostUrgentIsFirstAndAgesUpToTheTopOfAll) {
  PartsOptions options{.by_priority = true};
  options.scheduler.scheduling.aging_seconds = 1;
  PartsFixture parts(options);
  for (const int64_t priority : {0, 5, 3}) {
    ASSERT_TRUE(parts.submit(parts.make(4, 1, priority)).ok());
  }
  parts.waiting.order(parts.running, {}, 0);
  EXPECT_THAT(parts.waiting_ids(), ElementsAre(1, 2, 0));
  parts.waiting.order(parts.running, {}, 100);
  EXPECT_THAT(parts.waiting_ids(), ElementsAre(0, 1, 2)) << "all are at the top, the oldest first";
  EXPECT_EQ(parts.waiting.entries()[0].urgency, 5);
  EXPECT_EQ(parts.waiting.entries()[0].base_urgency, 0);
}

}  // namespace
}  // namespace heddle::scheduler
