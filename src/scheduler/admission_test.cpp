// SPDX-License-Identifier: Apache-2.0
#include "scheduler/admission.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler_parts_fixture.h"

namespace heddle::scheduler {
namespace {

using request::Sequence;
using ::testing::_;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(AdmissionTest, TheFirstThatDoesNotFitEndsThePass) {
  PartsOptions options;
  options.scheduler.cache.pools.num_pages = 20;  // of four tokens
  PartsFixture parts(options);
  for (const int64_t tokens : {20, 60, 4}) ASSERT_TRUE(parts.submit(parts.make(tokens, 1)).ok());
  EXPECT_FALSE(parts.admit()) << "without priorities no preemption can help";
  EXPECT_THAT(parts.running_ids(), ElementsAre(0));
  EXPECT_THAT(parts.waiting_ids(), ElementsAre(1, 2)) << "the small one does not overtake";
  EXPECT_EQ(parts.plan.sequences.size(), 1u);
}

TEST(AdmissionTest, PromptsShareTheChunkInTheOrderOfTheQueue) {
  PartsOptions options;
  options.scheduler.chunked_prefill_tokens = 32;
  PartsFixture parts(options);
  for (const int64_t tokens : {10, 100, 4}) ASSERT_TRUE(parts.submit(parts.make(tokens, 5)).ok());
  EXPECT_FALSE(parts.admit());
  ASSERT_EQ(parts.plan.sequences.size(), 3u);
  EXPECT_EQ(parts.plan.sequences[0].num_new_tokens(), 10);
  EXPECT_EQ(parts.plan.sequences[1].num_new_tokens(), 16) << "cut on the grid of 8";
  EXPECT_EQ(parts.plan.sequences[2].num_new_tokens(), 4);
  parts.complete();

  parts.plan.clear();
  PrefillBudget budget = parts.admission.budget(0);
  parts.admission.continue_prefills(budget, parts.plan);
  ASSERT_EQ(parts.plan.sequences.size(), 1u);
  EXPECT_EQ(parts.plan.sequences[0].sequence_id, 1);
  EXPECT_EQ(parts.plan.sequences[0].num_new_tokens(), 32);
}

BatchSchedulerOptions small_steps() {
  BatchSchedulerOptions options = roomy();
  options.chunked_prefill_tokens = 32;
  return options;
}

TEST(AdmissionTest, ShortPromptsDoNotWaitForLongOnes) {
  for (const bool overlap : {false, true}) {
    for (const int num_long : {1, 3}) {
      SchedulerFixture fixture(small_steps());
      fixture.overlap = overlap;
      for (int i = 0; i < num_long; ++i) fixture.submit(400, 2);
      fixture.step();
      const Sequence& first = fixture.submit(3, 1);
      const Sequence& second = fixture.submit(5, 1);
      fixture.submit(1, 1);
      fixture.step();
      EXPECT_THAT(fixture.planned(),
                  ElementsAre(Pair(0, 24), Pair(first.id, 3), Pair(second.id, 5)))
          << "a quarter of the step, in the order of arrival, and the long prompt goes on";
      fixture.run();
      for (const auto& sequence : fixture.sequences) {
        EXPECT_EQ(fixture.output_of(*sequence), fixture.expected_output(*sequence));
      }
    }
  }
}

TEST(AdmissionTest, APromptIsShortByWhatTheCacheHasNotOfIt) {
  SchedulerFixture fixture(small_steps());
  std::vector<TokenId> turn = fixture.unique_prompt(120);
  fixture.ask(turn, 1);
  turn.insert(turn.end(), 3, 251);
  fixture.submit(400, 2);
  fixture.step();
  const Sequence& next_turn = fixture.submit(turn, 1);
  fixture.step();
  EXPECT_THAT(fixture.planned(), ElementsAre(Pair(1, 24), Pair(next_turn.id, _)));
}

TEST(AdmissionTest, ManyShortPromptsDoNotStopALongOne) {
  SchedulerFixture fixture(small_steps());
  const Sequence& long_one = fixture.submit(400, 1);
  int num_steps = 0;
  for (; !fixture.done(long_one); ++num_steps) {
    for (int i = 0; i < 3; ++i) fixture.submit(4, 1);
    fixture.step();
  }
  EXPECT_LE(num_steps, 400 / 24 + 1) << "three quarters of each step are the least it gets";
  fixture.run();
}

TEST(AdmissionTest, NoShortPromptTakesTheRoomOfOneBeforeIt) {
  struct {
    const char* scarce;
    int64_t num_pages;
    int32_t max_running;
    int64_t num_state_slots;
  } const kCases[] = {{"pages", 60, 8, 8}, {"batch slots", 1000, 2, 8}, {"states", 1000, 8, 2}};

  for (const auto& [scarce, num_pages, max_running, num_state_slots] : kCases) {
    BatchSchedulerOptions options = small_steps();
    options.cache.pools.num_pages = num_pages;  // of four tokens
    options.max_running = max_running;
    options.cache.pools.num_state_slots = num_state_slots;
    SchedulerFixture fixture(options);
    fixture.submit(60, 40);
    fixture.step();
    fixture.submit(100, 40);
    fixture.submit(100, 40);  // no room until the first has ended
    const Sequence& short_one = fixture.submit(4, 1);
    while (fixture.sequences[2]->batch_slot < 0 && fixture.step()) {
      ASSERT_TRUE(short_one.num_computed == 0 || fixture.sequences[2]->num_computed > 0) << scarce;
    }
    fixture.run();
    EXPECT_TRUE(fixture.done(short_one));
  }
}

TEST(AdmissionTest, PrioritiesAndFairnessLetNoShortPromptPass) {
  for (const bool by_priority : {false, true}) {
    BatchSchedulerOptions options = small_steps();
    options.scheduling.enable_priority = by_priority;
    if (!by_priority) options.scheduling.policy = QueuePolicy::kFair;
    SchedulerFixture fixture(options);
    fixture.submit(400, 2);
    fixture.step();
    fixture.submit(4, 1);
    fixture.step();
    EXPECT_THAT(fixture.planned(), ElementsAre(Pair(0, 32)));
  }
}

TEST(AdmissionTest, TheBlockedSequenceIsReportedWherePreemptionMayHelp) {
  PartsOptions options{.by_priority = true};
  options.scheduler.max_running = 1;
  PartsFixture parts(options);
  ASSERT_TRUE(parts.submit(parts.make(4, 1, 0)).ok());
  EXPECT_FALSE(parts.admit());
  Sequence& urgent = parts.make(4, 1, 50);
  ASSERT_TRUE(parts.submit(urgent).ok());
  EXPECT_TRUE(parts.admission.open()) << "although no batch slot is free";
  const auto blocked = parts.admit();
  ASSERT_TRUE(blocked);
  EXPECT_EQ(blocked->waiting.sequence, &urgent);
  const PreemptionNeed need = parts.admission.need_of(*blocked, parts.admission.budget(0));
  EXPECT_EQ(need.urgency, 50);
  EXPECT_EQ(need.batch_slots, 1);
  EXPECT_EQ(need.state_slots, 0);
  EXPECT_LT(need.tokens, 0) << "there is memory";
}

TEST(AdmissionTest, AfterARetractionOnlyMoreUrgentSequencesAreAdmittedUntilOneLeaves) {
  PartsOptions options{.by_priority = true};
  PartsFixture parts(options);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(parts.submit(parts.make(4, 1, 3)).ok());
  parts.admit();
  ASSERT_EQ(parts.running.size(), 2);
  parts.admission.retracting(*parts.running.sequences()[0]);
  ASSERT_TRUE(parts.submit(parts.make(4, 1, 3)).ok());
  ASSERT_TRUE(parts.submit(parts.make(4, 1, 4)).ok());
  parts.admit();
  EXPECT_THAT(parts.running_ids(), ElementsAre(0, 1, 3));
  parts.admission.sequence_left();
  parts.admit();
  EXPECT_THAT(parts.running_ids(), ElementsAre(0, 1, 3, 2));
}

TEST(AdmissionTest, WithoutPrioritiesARetractionClosesIt) {
  PartsFixture parts;
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(parts.submit(parts.make(4, 1)).ok());
  EXPECT_TRUE(parts.admission.open());
  parts.admit();
  EXPECT_FALSE(parts.admission.open()) << "no sequence waits";
  parts.admission.retracting(*parts.running.sequences()[0]);
  ASSERT_TRUE(parts.submit(parts.make(4, 1)).ok());
  EXPECT_FALSE(parts.admission.open());
  parts.admission.idle();
  EXPECT_TRUE(parts.admission.open());
}

TEST(AdmissionTest, ARetractionRaisesTheReserveAndIdlenessResetsIt) {
  PartsFixture parts;
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(parts.submit(parts.make(4, 10)).ok());
  parts.admit();
  for (int i = 0; i < 600; ++i) parts.admission.streams_advanced();
  EXPECT_NEAR(parts.admission.new_token_ratio(), 0.098, 1e-9);
  parts.admission.retracting(*parts.running.sequences()[0]);
  EXPECT_DOUBLE_EQ(parts.admission.new_token_ratio(), 1) << "20 tokens of the 10 it may draw";
  parts.admission.idle();
  EXPECT_DOUBLE_EQ(parts.admission.new_token_ratio(), 0.7);
}

TEST(AdmissionTest, TheFirstStartsWhateverTheEstimatesSay) {
  PartsOptions options;
  options.scheduler.cache.pools.num_pages = 5;
  PartsFixture parts(options);
  ASSERT_TRUE(parts.submit(parts.make(17, 4)).ok());  // needs all twenty tokens of the pool
  EXPECT_FALSE(parts.admit());
  EXPECT_THAT(parts.running_ids(), IsEmpty());
  parts.admission.admit_first(parts.plan, 0);
  EXPECT_THAT(parts.running_ids(), ElementsAre(0));
  EXPECT_TRUE(parts.waiting.empty());
  EXPECT_EQ(parts.plan.sequences.size(), 1u);
}

// Two prompts share 300 tokens; the second waits for the first until its prefix is there, or until
// the first has stood still for half a second.
TEST(InFlightSharingTest, AFollowerWaitsForItsLeaderWhileThatMoves) {
  PartsOptions options;
  options.scheduler.chunked_prefill_tokens = 64;
  PartsFixture parts(options);
  std::vector<TokenId> prompt(300);
  std::iota(prompt.begin(), prompt.end(), 0);
  const auto with_own = [&](TokenId own) {
    std::vector<TokenId> tokens = prompt;
    tokens.insert(tokens.end(), 20, own);
    return tokens;
  };
  ASSERT_TRUE(parts.submit(parts.make(with_own(1000), 1)).ok());
  ASSERT_TRUE(parts.submit(parts.make(with_own(1001), 1)).ok());
  parts.admit(0);
  EXPECT_THAT(parts.running_ids(), ElementsAre(0));
  EXPECT_EQ(parts.sharing.num_deferred(), 0) << "the leader took the whole chunk";
  parts.complete();

  parts.admit(1);
  EXPECT_THAT(parts.running_ids(), ElementsAre(0));
  EXPECT_EQ(parts.sharing.num_deferred(), 1);
  EXPECT_EQ(parts.waiting.num_open_slots(parts.running), 15) << "it is not short of room";
  EXPECT_THAT(parts.running.sequences()[0]->cached.forks, ElementsAre(296)) << "on the grid of 8";
  parts.admit(1.4);
  EXPECT_THAT(parts.running_ids(), ElementsAre(0));
  parts.running.sequences()[0]->num_planned += 64;  // a slow step later
  parts.admit(5);
  EXPECT_THAT(parts.running_ids(), ElementsAre(0));
  parts.admit(5.4);
  EXPECT_THAT(parts.running_ids(), ElementsAre(0));
  parts.admit(5.6);
  EXPECT_THAT(parts.running_ids(), ElementsAre(0, 1));
  EXPECT_EQ(parts.sharing.num_deferred(), 1);
}

TEST(InFlightSharingTest, AFollowerStartsWhenItsLeaderLeaves) {
  PartsOptions options;
  options.scheduler.chunked_prefill_tokens = 64;
  PartsFixture parts(options);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(parts.submit(parts.make(std::vector<TokenId>(400, 5), 1)).ok());
  }
  parts.admit(0);
  parts.complete();
  parts.admit(0.1);
  ASSERT_EQ(parts.sharing.num_deferred(), 1);
  RunningSequence& leader = *parts.running.sequences()[0];
  leader.leaving = Leaving::kAborted;
  parts.running.remove(leader);
  parts.admit(0.2);
  EXPECT_THAT(parts.running_ids(), ElementsAre(1));
}

TEST(InFlightSharingTest, DisabledItMakesNoSequenceWait) {
  PartsOptions options;
  options.scheduler.shares_in_flight = false;
  options.scheduler.chunked_prefill_tokens = 64;
  PartsFixture parts(options);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(parts.submit(parts.make(std::vector<TokenId>(400, 5), 1)).ok());
  }
  parts.admit(0);
  parts.complete();
  parts.admit(0.1);
  EXPECT_THAT(parts.running_ids(), ElementsAre(0, 1));
  EXPECT_EQ(parts.sharing.num_deferred(), 0);
}

}  // namespace
}  // namespace heddle::scheduler
