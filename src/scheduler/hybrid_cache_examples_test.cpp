// SPDX-License-Identifier: Apache-2.0
// The worked examples of the hybrid cache, W1 to W16, through the scheduler with the settings of
// the server they were written for (`reference()`).
//
// Where Heddle differs it differs in every example alike:
//   - states enter the tree when the step that wrote them is booked (publish on confirm), so there
//     are no track slots and no forks of working slots;
//   - labels lie on the absolute grid. The reference counts from where the extend begins, which is
//     the same here because every extend of these examples begins on the grid;
//   - matching changes nothing, splits happen in insertions only.
// None of them changes a number below. W5, W7 and W8 concern the tree alone and stand beside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/hybrid_cache_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(HybridCacheExamplesTest, W1ToW3WithoutBuffer) {
  HybridCacheFixture fixture(reference(SnapshotPolicy::kNoBuffer));
  const Tokens prompt = fixture.unique(210);

  // W1: the state at the end of the prompt, and at the end of the request. Nothing is lost.
  const request::Sequence& turn = fixture.submit(prompt, 16);
  fixture.run();
  EXPECT_THAT(fixture.served(turn).kept, ElementsAre(210));
  EXPECT_THAT(fixture.served(turn).kept_in_decode, IsEmpty());
  EXPECT_EQ(fixture.tree(), "[0,210)@210\n  [210,225)@225\n");
  const Tokens chat = turn.tokens;

  // W2: 20 more tokens.
  const Served longer = fixture.serve(joined(prompt, fixture.unique(20)), 16);
  EXPECT_EQ(longer.hit, 210);
  EXPECT_THAT(longer.chunks, ElementsAre(20));
  EXPECT_EQ(fixture.tree(), "[0,210)@210\n  [210,225)@225\n  [210,230)@230\n    [230,245)@245\n");

  // W3: the next turn of W1.
  const Served next_turn = fixture.serve(joined(first(chat, 225), fixture.unique(100)), 16);
  EXPECT_EQ(next_turn.hit, 225);
  EXPECT_THAT(next_turn.chunks, ElementsAre(100));
}

// Once with pages of one token and once with pages of 64 (W10): the boundary at 192 is one of three
// pages, and the page of tokens 192 to 209 stays private and is freed as a whole.
TEST(HybridCacheExamplesTest, W1ToW3AndW10WithExtraBuffer) {
  for (const int32_t page_size : {1, 64}) {
    SCOPED_TRACE(page_size);
    HybridCacheFixture fixture(reference(SnapshotPolicy::kExtraBuffer, page_size));
    const Tokens prompt = fixture.unique(210);

    // W1: decode ends at 225 and meets no multiple of 256.
    const request::Sequence& turn = fixture.submit(prompt, 16);
    fixture.run();
    EXPECT_THAT(fixture.served(turn).kept, ElementsAre(192));
    EXPECT_THAT(fixture.served(turn).kept_in_decode, IsEmpty());
    EXPECT_EQ(fixture.tree(), "[0,192)@192\n");
    EXPECT_EQ(fixture.stats().pages_used, 192 / page_size);
    EXPECT_EQ(fixture.stats().state_slots_used, 1);
    const Tokens chat = turn.tokens;

    // W2: 38 tokens are fewer than the grid and leave nothing.
    const Served longer = fixture.serve(joined(prompt, fixture.unique(20)), 16);
    EXPECT_EQ(longer.hit, 192);
    EXPECT_THAT(longer.chunks, ElementsAre(38));
    EXPECT_THAT(longer.kept, IsEmpty());
    EXPECT_EQ(fixture.tree(), "[0,192)@192\n");

    // W3
    const Served next_turn = fixture.serve(joined(first(chat, 225), fixture.unique(100)), 16);
    EXPECT_EQ(next_turn.hit, 192);
    EXPECT_THAT(next_turn.chunks, ElementsAre(133));
    EXPECT_THAT(next_turn.kept, ElementsAre(320));
  }
}

// Here alone does publish on confirm show: the states of decode enter the tree at once. Only the
// newest stays, so the tree at the end is the reference's.
TEST(HybridCacheExamplesTest, W4LongDecode) {
  HybridCacheFixture fixture(reference(SnapshotPolicy::kExtraBuffer));
  const request::Sequence& turn = fixture.submit(fixture.unique(210), 700);
  fixture.run();
  EXPECT_THAT(fixture.served(turn).kept, ElementsAre(192));
  EXPECT_THAT(fixture.served(turn).kept_in_decode, ElementsAre(256, 512, 768));
  EXPECT_EQ(fixture.tree(), "[0,192)@192\n  [192,768)@768\n");
  EXPECT_EQ(fixture.serve(joined(turn.tokens, fixture.unique(50)), 4).hit, 768);
}

TEST(HybridCacheExamplesTest, W9DuplicatePublish) {
  // Two alike in one step. Both compute all of it, and one copy stays. The second keeps its own
  // KV rows until it ends instead of being mapped to the first one's at once.
  HybridCacheFixture fixture(reference(SnapshotPolicy::kExtraBuffer));
  const Tokens prompt = fixture.unique(512);
  const request::Sequence& one = fixture.submit(prompt, 4);
  const request::Sequence& two = fixture.submit(prompt, 4);
  ASSERT_TRUE(fixture.base.step());
  EXPECT_THAT(fixture.base.planned(), ElementsAre(std::pair(0, 512), std::pair(1, 512)));
  EXPECT_EQ(fixture.tree(), "[0,512)@512\n");
  EXPECT_EQ(fixture.stats().state_slots_used, 1 + 2) << "the second one's state was freed";
  fixture.run();
  EXPECT_THAT(fixture.served(one).kept, ElementsAre(512));
  EXPECT_THAT(fixture.served(two).kept, ElementsAre(512));
  EXPECT_EQ(fixture.tree(), "[0,512)@512\n");
  EXPECT_EQ(fixture.stats().pages_used, 512);
  EXPECT_EQ(fixture.stats().state_slots_used, 1);
}

TEST(HybridCacheExamplesTest, W11FullLengthRepeat) {
  HybridCacheFixture fixture(reference(SnapshotPolicy::kExtraBuffer));
  const Tokens prompt = fixture.unique(512);
  EXPECT_EQ(fixture.serve(prompt, 4).hit, 0);
  EXPECT_EQ(fixture.tree(), "[0,512)@512\n");
  const Served again = fixture.serve(prompt, 4);
  EXPECT_EQ(again.hit, 0) << "one token at least has to run";
  EXPECT_THAT(again.kept, ElementsAre(448));
  EXPECT_EQ(fixture.serve(prompt, 4).hit, 448);
}

TEST(HybridCacheExamplesTest, W12NothingAfterTheEndIsPublished) {
  // With 255 tokens computed the end of the text is drawn, while the step that computes the 256th
  // and keeps its state is in flight already.
  constexpr TokenId kEnd = 7;
  for (const SnapshotPolicy policy : {SnapshotPolicy::kExtraBuffer, SnapshotPolicy::kNoBuffer}) {
    HybridCacheFixture fixture(reference(policy));
    fixture.base.overlap = true;
    fixture.base.runner.script = [&](const request::PlannedSequence& planned, int64_t) {
      const int64_t computed = planned.context_tokens + planned.num_new_tokens();
      return std::optional<TokenId>(computed == 255 ? kEnd : 100);
    };
    const request::Sequence& turn = fixture.submit(fixture.unique(200), 1000, {}, {kEnd});
    fixture.run();
    EXPECT_EQ(turn.num_tokens(), 256);
    if (policy == SnapshotPolicy::kExtraBuffer) {
      EXPECT_THAT(fixture.served(turn).kept_in_decode, ElementsAre(256)) << "it was in flight";
      EXPECT_EQ(fixture.tree(), "[0,192)@192\n");
      EXPECT_EQ(fixture.stats().state_slots_used, 1);
    } else {
      // The device leaves a sequence that has ended alone, so its working slot is exact although
      // steps overlap; the reference cannot overlap here.
      EXPECT_EQ(fixture.tree(), "[0,200)@200\n  [200,255)@255\n");
    }
  }
}

TEST(HybridCacheExamplesTest, W13ChunksEndOnTheGrid) {
  BatchSchedulerOptions options = reference(SnapshotPolicy::kExtraBuffer);
  options.chunked_prefill_tokens = 1000;
  HybridCacheFixture fixture(options);
  const Served served = fixture.serve(fixture.unique(3000), 4);
  EXPECT_THAT(served.chunks, ElementsAre(960, 960, 960, 120));
  EXPECT_THAT(served.kept, ElementsAre(960, 1920, 2880, 2944));
}

TEST(HybridCacheExamplesTest, W14StatePoolExhausted) {
  BatchSchedulerOptions options = reference(SnapshotPolicy::kExtraBuffer);
  options.cache.pools.num_state_slots = 2;
  HybridCacheFixture fixture(options);
  const Tokens prompt = fixture.unique(210);
  fixture.serve(prompt, 4);
  ASSERT_EQ(fixture.stats().state_slots_used, 1);
  const Served served = fixture.serve(joined(prompt, fixture.unique(200)), 4);
  EXPECT_EQ(served.hit, 192);
  EXPECT_THAT(served.kept, IsEmpty()) << "its own slot was the last, and its source is held";
  EXPECT_EQ(fixture.stats().skipped_snapshots, 1);
  EXPECT_EQ(fixture.tree(), "[0,192)@192\n");
}

TEST(HybridCacheExamplesTest, W15SystemPromptSharing) {
  HybridCacheFixture fixture(reference(SnapshotPolicy::kExtraBuffer, 64));
  const Tokens system = fixture.unique(400);
  std::vector<int64_t> hits;
  std::vector<std::vector<int64_t>> kept;
  for (int user = 0; user < 3; ++user) {
    const Served served = fixture.serve(joined(system, fixture.unique(600)), 600);
    hits.push_back(served.hit);
    kept.push_back(served.kept);
    EXPECT_THAT(served.kept_in_decode, ElementsAre(1024, 1280, 1536));
  }
  EXPECT_THAT(hits, ElementsAre(0, 0, 384));
  EXPECT_THAT(kept, ElementsAre(ElementsAre(960), ElementsAre(384), ElementsAre(960)));

  // The second user has no snapshot of its own prompt. The 16 tokens of the system prompt beyond
  // the fork's grid point are an edge of their own, below which the three part.
  EXPECT_EQ(fixture.tree(),
            "[0,384)@384\n"
            "  [384,400)\n"
            "    [400,960)@960\n"
            "      [960,1536)@1536\n"
            "    [400,1536)@1536\n"
            "    [400,960)@960\n"
            "      [960,1536)@1536\n");
}

TEST(HybridCacheExamplesTest, W16LongSharingWithChunks) {
  BatchSchedulerOptions options = reference(SnapshotPolicy::kExtraBuffer);
  options.chunked_prefill_tokens = 4096;
  HybridCacheFixture fixture(options);
  const Tokens shared = fixture.unique(6000);
  const Served one = fixture.serve(joined(shared, fixture.unique(4000)), 20);
  EXPECT_EQ(one.hit, 0);
  EXPECT_THAT(one.kept, ElementsAre(4096, 8192, 9984));
  const Served two = fixture.serve(joined(shared, fixture.unique(4000)), 20);
  EXPECT_EQ(two.hit, 4096);
  EXPECT_THAT(two.kept, ElementsAre(5952, 9984)) << "the fork replaces the chunk's end";
  const Served three = fixture.serve(joined(shared, fixture.unique(4000)), 20);
  EXPECT_EQ(three.hit, 5952);
  EXPECT_THAT(three.kept, ElementsAre(9984));
}

// The granularity that chunks give.
TEST(HybridCacheExamplesTest, ChunkEndsAreSnapshots) {
  BatchSchedulerOptions options = reference(SnapshotPolicy::kNoBuffer);
  options.chunked_prefill_tokens = 4096;
  HybridCacheFixture fixture(options);
  const Tokens shared = fixture.unique(6000);
  EXPECT_THAT(fixture.serve(joined(shared, fixture.unique(4000)), 20).kept,
              ElementsAre(4096, 8192, 10000));
  EXPECT_THAT(fixture.tree(), ::testing::HasSubstr("[10000,10019)@10019"));
  EXPECT_EQ(fixture.serve(joined(shared, fixture.unique(4000)), 20).hit, 4096);

  for (const auto& [policy, last] : {std::pair(SnapshotPolicy::kExtraBuffer, int64_t{4992}),
                                     std::pair(SnapshotPolicy::kNoBuffer, int64_t{5000})}) {
    BatchSchedulerOptions small = reference(policy);
    small.chunked_prefill_tokens = 2048;
    HybridCacheFixture other(small);
    EXPECT_THAT(other.serve(other.unique(5000), 4).kept, ElementsAre(2048, 4096, last));
  }
}

// P1: a page of 128 and an extend that is a multiple of the kernel's 64 but not of the page. The
// label is 256; the state after 320 must not get it. The second prompt resumes there, and the toy
// device says so if the state has seen another number of tokens.
TEST(HybridCacheExamplesTest, P1TheLabelIsWhatTheStateHasSeen) {
  HybridCacheFixture fixture(reference(SnapshotPolicy::kExtraBuffer, 128));
  const Tokens prompt = fixture.unique(320);
  EXPECT_THAT(fixture.serve(prompt, 4).kept, ElementsAre(256));
  EXPECT_EQ(fixture.serve(joined(prompt, fixture.unique(10)), 4).hit, 256);
}

// Four in one step, with P = 0, 0, 192, 192 and E = 210, 64, 130, 38: labels 192, 64, 320 and none.
// Where in the kernel's scratch memory the states lie does not arise: a plan lists (tokens, slot).
TEST(HybridCacheExamplesTest, ABatchTracksEachSequenceOnItsOwn) {
  HybridCacheFixture fixture(reference(SnapshotPolicy::kExtraBuffer));
  const Tokens cached = fixture.unique(192);
  fixture.serve(joined(cached, fixture.unique(18)), 4);
  for (const auto& [context, extend] :
       {std::pair(0, 210), std::pair(0, 64), std::pair(192, 130), std::pair(192, 38)}) {
    fixture.submit(joined(first(cached, context), fixture.unique(extend)), 4);
  }
  ASSERT_TRUE(fixture.base.step());
  EXPECT_THAT(fixture.base.planned(), ElementsAre(std::pair(1, 210), std::pair(2, 64),
                                                  std::pair(3, 130), std::pair(4, 38)));
  fixture.run();
  std::vector<std::vector<int64_t>> labels;
  for (size_t i = 1; i < 5; ++i) {
    labels.push_back(fixture.served(*fixture.base.sequences[i]).kept);
  }
  EXPECT_THAT(labels, ElementsAre(ElementsAre(192), ElementsAre(64), ElementsAre(320), IsEmpty()));
}

}  // namespace
}  // namespace heddle::scheduler
