// SPDX-License-Identifier: Apache-2.0
// The states that `multi`, Heddle's own snapshot policy, finds and keeps: a table of short
// histories, each with its reason. G = 64, T = 256, pages of 16 tokens.
#include <ostream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/hybrid_cache_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Segment {
  char name;  // segments of one name begin with the same tokens
  int64_t length;
};

Tokens prompt_of(const std::vector<Segment>& segments) {
  Tokens prompt;
  for (const Segment& segment : segments) {
    for (int64_t i = 0; i < segment.length; ++i) {
      prompt.push_back(static_cast<TokenId>(segment.name * 100'000 + i));
    }
  }
  return prompt;
}

struct Turn {
  std::vector<Segment> prompt;
  int64_t hit = 0;
  std::vector<int64_t> kept;  // by prefill
  std::vector<int64_t> role_boundaries = {};
};

struct History {
  const char* name;
  int64_t num_slots;
  std::vector<Turn> turns;
};

void PrintTo(const History& history, std::ostream* out) { *out << history.name; }

class MultiTest : public ::testing::TestWithParam<History> {};

TEST_P(MultiTest, FindsAndKeeps) {
  BatchSchedulerOptions options = multi();
  options.cache.pools.num_state_slots = GetParam().num_slots;
  HybridCacheFixture fixture(options);
  int number = 0;
  for (const Turn& turn : GetParam().turns) {
    SCOPED_TRACE(++number);
    const Served served = fixture.serve(prompt_of(turn.prompt), 4, turn.role_boundaries);
    EXPECT_EQ(served.hit, turn.hit);
    EXPECT_EQ(served.kept, turn.kept);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Histories, MultiTest,
    ::testing::Values(
        // The tail lies at floor((N - 1) / G) G = 448, so that the same prompt once more can resume
        // there, the end has the hidden vector and every 128th token a state while more than half
        // of the slots are free. The repeat draws from the hidden vector and computes nothing.
        History{"TailEndAndExactRepeat",
                200,
                {{{{'a', 512}}, 0, {128, 256, 384, 448, 512}}, {{{'a', 512}}, 512, {}}}},
        // A prompt that ends inside a known one resumes at the last state before its end, and only
        // the rest is kept: its own tail is there already.
        History{"EndsInsideAKnownPrompt",
                200,
                {{{{'a', 512}}, 0, {128, 256, 384, 448, 512}}, {{{'a', 400}}, 384, {400}}}},
        // The second of the prompts that share 350 tokens finds 256 and plants the fork at 320
        // beside its own tail; the third finds the fork.
        History{"ForkAndTailBoth",
                200,
                {{{{'s', 350}, {'a', 200}}, 0, {128, 256, 384, 512, 550}},
                 {{{'s', 350}, {'b', 200}}, 256, {320, 384, 512, 550}},
                 {{{'s', 350}, {'c', 200}}, 320, {384, 512, 550}}}},
        // Messages end at 100 and 330: rounded down to the grid. A prompt that shares the first
        // message alone finds it at once, without a fork.
        History{"RoleBoundaries",
                200,
                {{{{'s', 100}, {'a', 300}}, 0, {64, 128, 256, 320, 384, 400}, {100, 330}},
                 {{{'s', 100}, {'b', 100}}, 64, {128, 192, 200}, {100}}}},
        // A boundary where the prompt ends is the end, and one beyond it nothing.
        History{"RoleBoundaryAtTheEnd", 200, {{{{'a', 64}}, 0, {64}, {64, 90}}}},
        // Fewer tokens than the grid: the end alone.
        History{"ShortPrompt", 200, {{{{'a', 40}}, 0, {40}}, {{{'a', 40}}, 40, {}}}},
        // 19 of 20 slots are free for the first: every 128th. 5 for the second: every 256th.
        History{"StrideFollowsFreeSlots",
                20,
                {{{{'a', 1500}},
                  0,
                  {128, 256, 384, 512, 640, 768, 896, 1024, 1152, 1280, 1408, 1472, 1500}},
                 {{{'b', 1000}}, 0, {256, 512, 768, 960, 1000}}}},
        // Seven slots: the tail and the end first, then strides from the deepest on. The second
        // finds none free: the tail at any cost, and every 256th token instead of states that are
        // worth less.
        History{"EveryStrideInPlaceOfWhatIsWorthLess",
                8,
                {{{{'a', 1000}}, 0, {384, 512, 640, 768, 896, 960, 1000}},
                 {{{'b', 1000}}, 0, {256, 512, 768, 960}, {100, 500}}}},
        // Two slots: the fork is wanted more than the tail, and is there for the third.
        History{"ForkBeforeTail",
                2,
                {{{{'s', 150}, {'a', 50}}, 0, {192}},
                 {{{'s', 150}, {'b', 50}}, 0, {128}},
                 {{{'s', 150}, {'c', 50}}, 128, {}}}},
        // One slot: it is the one to work in. The exact end is kept in it, and given up for the
        // next.
        History{"OneSlot", 1, {{{{'a', 200}}, 0, {}}, {{{'a', 200}}, 0, {}}}},
        // No prompts share anything: a bounded number of states per prompt, no fork.
        History{"UniquePrompts",
                200,
                {{{{'a', 300}}, 0, {128, 256, 300}},
                 {{{'b', 300}}, 0, {128, 256, 300}},
                 {{{'c', 300}}, 0, {128, 256, 300}}}}),
    [](const auto& history) { return std::string(history.param.name); });

// The prompts of W6 (hybrid_cache_content_test.cpp). The second request that shares finds the state
// that the reference has for the third, prompts keep their tails, and the seventh repeats the
// second.
TEST(HybridCacheMultiTest, ContentPrompts) {
  for (const bool chat : {false, true}) {
    for (const bool keeps_hidden : {false, true}) {
      BatchSchedulerOptions options = multi();
      options.cache.pools.keeps_hidden = keeps_hidden;
      HybridCacheFixture fixture(options);
      std::vector<int64_t> hits;
      for (const std::string digits : {"12", "13", "14", "125", "145", "135", "13", "13", "136"}) {
        Tokens prompt = chat ? Tokens{2000, 2001, 2002} : Tokens{};
        for (const char digit : digits) prompt = joined(prompt, repeated(1000 + digit, 256));
        if (chat) prompt = joined(prompt, {2003, 2004, 2005, 2006, 2007});
        hits.push_back(fixture.serve(prompt, 8).hit);
      }
      const int64_t repeat = keeps_hidden ? (chat ? 520 : 512) : (chat ? 512 : 448);
      EXPECT_THAT(hits, ElementsAre(0, 256, 256, 512, 512, 512, repeat, repeat, 512));
    }
  }
}

// A long answer leaves its newest state and, in the end, the exact one.
TEST(HybridCacheMultiTest, DecodeKeepsTheNewestAndTheExactEnd) {
  HybridCacheFixture fixture(multi());
  const Tokens prompt = fixture.unique(200);
  const request::Sequence& turn = fixture.submit(prompt, 700);
  while (turn.num_computed < 600) ASSERT_TRUE(fixture.base.step());
  EXPECT_EQ(fixture.tree(),
            "[0,128)@128\n  [128,192)@192\n    [192,200)@200\n      [200,512)@512\n");
  fixture.run();
  EXPECT_THAT(fixture.served(turn).kept_in_decode, ElementsAre(256, 512, 768));
  EXPECT_EQ(fixture.tree(),
            "[0,128)@128\n  [128,192)@192\n    [192,200)@200\n      [200,899)@899\n");
  EXPECT_EQ(fixture.serve(joined(turn.tokens, fixture.unique(30)), 4).hit, 899);
}

// The end lies inside a page. Each sequence that goes on there copies that one page, two here, and
// the toy device checks that no other sequence's KV rows change.
TEST(HybridCacheMultiTest, TwoGoOnFromTheMiddleOfAPage) {
  HybridCacheFixture fixture(multi());
  const request::Sequence& turn = fixture.submit(fixture.unique(40), 10);
  fixture.run();
  const Tokens chat = first(turn.tokens, 49);
  EXPECT_EQ(fixture.serve(joined(chat, fixture.unique(30)), 4).hit, 49);
  EXPECT_EQ(fixture.serve(joined(chat, fixture.unique(30)), 4).hit, 49);
}

// Rows beyond the point of resumption are there up to the fork: they are read, not written again.
TEST(HybridCacheMultiTest, KvRowsAreSharedPastTheSnapshot) {
  HybridCacheFixture fixture(multi());
  const Tokens shared = fixture.unique(350);
  fixture.serve(joined(shared, fixture.unique(200)), 4);
  const int64_t before = fixture.stats().pages_used;
  const Served served = fixture.serve(joined(shared, fixture.unique(200)), 4);
  EXPECT_EQ(served.hit, 256);
  EXPECT_EQ(served.rows_present, 320);
  // In the end the page of 320 to 335, computed twice, exists once: of 35 pages 21 are shared.
  EXPECT_EQ(fixture.stats().pages_used - before, (550 + 3 + 15) / 16 - 350 / 16);
}

// Four at once share 1,536 tokens: the first computes them, the others wait for it.
TEST(HybridCacheMultiTest, SharedPartIsComputedOnceInFlight) {
  for (const bool overlap : {false, true}) {
    BatchSchedulerOptions options = multi();
    options.chunked_prefill_tokens = 512;
    HybridCacheFixture fixture(options);
    fixture.base.overlap = overlap;
    const Tokens shared = fixture.unique(1536);
    for (int i = 0; i < 4; ++i) fixture.submit(joined(shared, fixture.unique(64)), 4);
    fixture.run();
    int64_t computed = 0;
    std::vector<int64_t> hits;
    for (const auto& sequence : fixture.base.sequences) {
      computed += fixture.served(*sequence).computed;
      hits.push_back(fixture.served(*sequence).hit);
    }
    EXPECT_THAT(hits, ElementsAre(0, 1536, 1536, 1536));
    EXPECT_EQ(computed, 1536 + 4 * (64 + 3));
  }
}

// A preempted sequence goes on at its last token.
TEST(HybridCacheMultiTest, PreemptionComputesNothingTwice) {
  BatchSchedulerOptions options = multi();
  options.max_running = 1;
  options.scheduling.enable_priority = true;
  options.scheduling.default_priority = 0;
  HybridCacheFixture fixture(options);
  const request::Sequence& patient = fixture.submit(fixture.unique(300), 60);
  while (patient.num_computed < 330) ASSERT_TRUE(fixture.base.step());
  fixture.base.clock.advance_seconds(1);
  Request request;
  request.prompt = fixture.unique(100);
  request.stop.max_new_tokens = 3;
  request.priority = 100;
  request::Sequence& urgent = fixture.base.make(std::move(request));
  ASSERT_TRUE(fixture.base.scheduler->submit(urgent).ok());
  fixture.run();
  EXPECT_EQ(patient.num_preemptions, 1);
  EXPECT_EQ(fixture.served(patient).computed, 300 + 60 - 1);
}

// Pages run out: the victim's own answer makes the room, its prompt stays, and it resumes there.
TEST(HybridCacheMultiTest, RetractionLosesTheAnswerAtMost) {
  BatchSchedulerOptions options = multi();
  options.cache.pools.num_pages = 56;  // of 2 x (20 + 13)
  options.scheduling.conservativeness = 0.01;
  HybridCacheFixture fixture(options);
  const request::Sequence& one = fixture.submit(fixture.unique(320), 200);
  const request::Sequence& two = fixture.submit(fixture.unique(320), 200);
  fixture.run();
  EXPECT_EQ(fixture.base.scheduler->stats().num_retractions, 1);
  EXPECT_EQ(one.num_retractions, 0);
  EXPECT_EQ(fixture.served(one).computed, 320 + 199);
  EXPECT_EQ(fixture.base.scheduler->stats().retracted_input_tokens, 320);
  const int64_t lost = fixture.base.scheduler->stats().retracted_output_tokens;
  EXPECT_GT(lost, 0);
  EXPECT_LE(fixture.served(two).computed, 320 + 199 + lost);
}

// A request of 1,000 tokens, the first 400 of them the system prompt's, and 600 outputs. The
// candidates for snapshots are 384 and 960; with slots to spare there are the strides as well, and
// a node may own part of a page, so the exact end stays in place of 1536.
TEST(HybridCacheMultiTest, WorkedLifecycle) {
  HybridCacheFixture fixture(multi(64));
  const Tokens system = fixture.unique(400);
  const Served user = fixture.serve(joined(system, fixture.unique(600)), 600, {400});
  EXPECT_THAT(user.kept, ElementsAre(128, 256, 384, 512, 640, 768, 896, 960, 1000));
  EXPECT_THAT(user.kept_in_decode, ElementsAre(1024, 1280, 1536));
  EXPECT_THAT(fixture.tree(), ::testing::EndsWith("[1000,1599)@1599\n"));
  const Served second = fixture.serve(joined(system, fixture.unique(600)), 4, {400});
  EXPECT_EQ(second.hit, 384);
  EXPECT_THAT(second.kept, ElementsAre(512, 640, 768, 896, 960, 1000)) << "384 is the fork";
}

}  // namespace
}  // namespace heddle::scheduler
