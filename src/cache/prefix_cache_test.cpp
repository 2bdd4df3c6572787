// SPDX-License-Identifier: Apache-2.0
#include "cache/prefix_cache.h"

#include <memory>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/toy_model.h"

namespace heddle::cache {
namespace {

using request::BatchPlan;
using request::MoveKind;
using request::PlannedSequence;
using request::Sequence;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using TokenList = std::vector<TokenId>;

PrefixCacheOptions small() {
  PrefixCacheOptions options;
  options.pools.num_pages = 100;
  options.pools.page_size = 4;
  options.pools.num_state_slots = 10;
  options.grid = 8;
  options.decode_interval = 16;
  options.pools.keeps_hidden = true;
  options.pools.flops = testing::kToyFlops;
  options.eviction = EvictionPolicy::kLru;
  return options;
}

PrefixCacheOptions stateless() {
  PrefixCacheOptions options = small();
  options.pools.num_state_slots = 0;
  options.pools.keeps_hidden = false;
  return options;
}

// A sequence that a test takes through the cache step by step, as the scheduler does.
struct ServedSequence {
  explicit ServedSequence(Sequence source) : sequence(std::move(source)) {}

  Sequence sequence;
  CachedSequence cached;
  BatchPlan plan;           // the last step's plan
  PlannedSequence planned;  // the last step's sequence
};

class PrefixCacheTest : public ::testing::Test {
 protected:
  void use(const PrefixCacheOptions& options) {
    cache_ = std::make_unique<PrefixCache>(options);
    all_.clear();
  }

  ServedSequence& make(TokenList prompt, int64_t max_new_tokens = 8) {
    Request request;
    request.prompt = std::move(prompt);
    request.stop.max_new_tokens = max_new_tokens;
    all_.push_back(std::make_unique<ServedSequence>(
        Sequence(std::ssize(all_), std::move(request), 0, std::span<const TokenId>())));
    return *all_.back();
  }

  TokenList unique(int64_t count) {
    TokenList tokens;
    for (int64_t i = 0; i < count; ++i) tokens.push_back(next_token_++);
    return tokens;
  }

  bool admit(ServedSequence& running, int64_t headroom = 0) {
    const PrefixMatch match = cache_->match(running.sequence);
    const bool admitted = cache_->admit(running.sequence, match, headroom, running.cached);
    check();
    return admitted;
  }

  // Plans the prefill up to `end` tokens.
  void plan(ServedSequence& running, int64_t end) {
    const Sequence& sequence = running.sequence;
    running.plan.clear();
    running.planned = {.context_tokens = sequence.num_computed};
    running.planned.sample = end == sequence.num_tokens() && sequence.wants_tokens();
    cache_->plan_prefill(sequence, running.cached, end, running.planned, running.plan);
  }

  void book(ServedSequence& running, int64_t end) {
    running.sequence.num_computed = end;
    cache_->confirm(running.sequence, running.cached);
    check();
  }

  void prefill(ServedSequence& running, int64_t end) {
    plan(running, end);
    book(running, end);
  }

  // Draws a token and computes it.
  void decode(ServedSequence& running, int64_t count = 1) {
    for (; count > 0; --count) {
      Sequence& sequence = running.sequence;
      sequence.tokens.push_back(next_token_++);
      ASSERT_TRUE(cache_->grow(sequence, sequence.num_tokens()));
      running.planned = {.context_tokens = sequence.num_computed};
      running.plan.clear();
      cache_->plan_decode(sequence, running.cached, sequence.num_tokens(), running.planned,
                          running.plan);
      book(running, sequence.num_tokens());
    }
  }

  void end(ServedSequence& running, PrefixCache::Keep keep = PrefixCache::Keep::kEnd) {
    cache_->release(running.sequence, running.cached, keep);
    EXPECT_THAT(running.sequence.pages, IsEmpty());
    EXPECT_EQ(running.sequence.state_slot, 0);
    check();
  }

  // From nothing to its end; returns all of its tokens.
  TokenList serve(TokenList prompt) {
    ServedSequence& running = make(std::move(prompt));
    EXPECT_TRUE(admit(running));
    prefill(running, running.sequence.num_tokens());
    end(running);
    return running.sequence.tokens;
  }

  // Free, tree and holders add up, for pages and slots.
  void check() const {
    std::vector<AdmittedSequence> held;
    for (const auto& running : all_) {
      if (!running->sequence.pages.empty()) held.push_back({&running->sequence, &running->cached});
    }
    cache_->check_invariants(held);
  }

  [[nodiscard]] int64_t num_snapshots(const ServedSequence& running) const {
    return running.planned.snapshots.count;
  }

  std::unique_ptr<PrefixCache> cache_;
  std::vector<std::unique_ptr<ServedSequence>> all_;
  TokenId next_token_ = 0;
};

TEST_F(PrefixCacheTest, AdmissionTakesEverythingOrNothing) {
  PrefixCacheOptions options = small();
  options.pools.num_pages = 4;
  options.pools.num_state_slots = 2;
  use(options);
  const auto refused = [&](ServedSequence& running, int64_t headroom) {
    const PrefixCacheStats before = cache_->stats();
    EXPECT_FALSE(admit(running, headroom));
    EXPECT_THAT(running.sequence.pages, IsEmpty());
    EXPECT_EQ(running.sequence.state_slot, 0);
    EXPECT_EQ(running.sequence.num_computed, 0);
    EXPECT_EQ(running.cached.path.node, nullptr);
    EXPECT_EQ(running.cached.source.node, nullptr);
    EXPECT_EQ(cache_->stats().pages_used, before.pages_used);
    EXPECT_EQ(cache_->stats().state_slots_used, before.state_slots_used);
  };
  refused(make(unique(17)), 0);  // five pages of four
  refused(make(unique(12)), 2);  // three, and two are to stay
  ServedSequence& one = make(unique(4));
  ServedSequence& two = make(unique(4));
  ASSERT_TRUE(admit(one));
  ASSERT_TRUE(admit(two));
  refused(make(unique(4)), 0);  // there are pages, but no slot
  end(one, PrefixCache::Keep::kPublished);
  end(two, PrefixCache::Keep::kPublished);
  EXPECT_EQ(cache_->stats().pages_used, 0);
  EXPECT_EQ(cache_->stats().state_slots_used, 0);
}

TEST_F(PrefixCacheTest, AFailedAdmissionGivesItsMatchBack) {
  PrefixCacheOptions options = small();
  options.pools.num_pages = 6;
  use(options);
  TokenList chat = serve(unique(16));
  ServedSequence& holder = make(unique(8));
  ASSERT_TRUE(admit(holder));
  for (int i = 0; i < 8; ++i) chat.push_back(next_token_++);
  EXPECT_FALSE(admit(make(chat), 1)) << "what it matched cannot be evicted for it";
  EXPECT_EQ(cache_->stats().pages_cached, 4);
  end(holder, PrefixCache::Keep::kPublished);
  cache_->clear();
  EXPECT_EQ(cache_->stats().pages_used, 0) << "no lock stayed behind";
}

TEST_F(PrefixCacheTest, AdmissionEvictsOthersButNotWhatItResumesFrom) {
  PrefixCacheOptions options = small();
  options.pools.num_pages = 8;
  use(options);
  TokenList mine = serve(unique(16));  // the older one
  serve(unique(16));
  for (int i = 0; i < 8; ++i) mine.push_back(next_token_++);
  ServedSequence& running = make(mine);
  ASSERT_TRUE(admit(running));
  EXPECT_EQ(running.sequence.num_computed, 16);
  EXPECT_EQ(cache_->stats().evicted_tokens, 8) << "two pages were wanted";
  EXPECT_EQ(std::ssize(running.sequence.pages), 6);
}

TEST_F(PrefixCacheTest, NothingIsFoundBeforeTheStepIsBooked) {
  use(small());
  ServedSequence& running = make(unique(30));
  ASSERT_TRUE(admit(running));
  plan(running, 30);
  EXPECT_GT(num_snapshots(running), 0);
  const ServedSequence& later = make(running.sequence.tokens);
  EXPECT_EQ(cache_->match(later.sequence).kv_tokens, 0);
  book(running, 30);
  EXPECT_EQ(cache_->match(later.sequence).usable_tokens, 24);
  EXPECT_NE(cache_->match(later.sequence).exact, nullptr);
}

TEST_F(PrefixCacheTest, UnconfirmedSnapshotsOfAnAbortedSequenceAreNeverFound) {
  use(small());
  ServedSequence& running = make(unique(32));
  running.sequence.request.role_boundaries = {16};
  ASSERT_TRUE(admit(running));
  prefill(running, 16);
  plan(running, 32);
  end(running, PrefixCache::Keep::kPublished);
  EXPECT_EQ(cache_->match(make(running.sequence.tokens).sequence).kv_tokens, 16);
}

TEST_F(PrefixCacheTest, TheSourceIsLockedUntilItsCopyIsConfirmed) {
  PrefixCacheOptions options = small();
  options.pools.num_state_slots = 4;
  use(options);
  TokenList chat = serve(unique(8));
  const int64_t cached = cache_->stats().state_slots_cached;
  for (int i = 0; i < 3; ++i) chat.push_back(next_token_++);
  ServedSequence& running = make(chat);
  ASSERT_TRUE(admit(running));
  EXPECT_EQ(cache_->stats().state_slots_cached, cached - 1);
  plan(running, 11);
  ASSERT_EQ(running.plan.moves.size(), 1U);
  EXPECT_EQ(running.plan.moves[0].kind, MoveKind::kRestore);
  EXPECT_EQ(running.plan.moves[0].to, running.sequence.state_slot);
  book(running, 11);
  EXPECT_EQ(running.cached.source.node, nullptr);
  EXPECT_GE(cache_->stats().state_slots_cached, cached);
}

TEST_F(PrefixCacheTest, ResumingInsideAPageCopiesThatPageAlone) {
  use(small());
  TokenList chat = serve(unique(10));  // its end lies inside the third page
  for (int i = 0; i < 5; ++i) chat.push_back(next_token_++);
  ServedSequence& running = make(chat);
  const PrefixMatch match = cache_->match(running.sequence);
  EXPECT_EQ(cache_->resume_tokens(running.sequence, match), 10);
  EXPECT_EQ(cache_->pages_to_own(running.sequence, match), 2);
  ASSERT_TRUE(admit(running));
  plan(running, 15);
  ASSERT_EQ(running.plan.moves_of(MoveKind::kCopyPage).size(), 1U);
  const auto [kind, table, from, to] = running.plan.moves.back();
  EXPECT_EQ(table, 0U);
  EXPECT_EQ(to, running.sequence.pages[2]);
  std::vector<int32_t> tree_pages;
  cache_->tree().append_pages(match.resume, 10, tree_pages);
  EXPECT_EQ(from, tree_pages[2]);
  EXPECT_EQ(running.sequence.pages[0], tree_pages[0]);
  EXPECT_EQ(running.sequence.pages[1], tree_pages[1]);
  EXPECT_EQ(running.planned.kv_tokens, 10);
  book(running, 15);
  plan(running, 15);
  EXPECT_THAT(running.plan.moves_of(MoveKind::kCopyPage), IsEmpty())
      << "the first step alone copies";
}

TEST_F(PrefixCacheTest, ResumingAtAPageBoundaryCopiesNone) {
  use(small());
  TokenList chat = serve(unique(8));
  chat.push_back(next_token_++);
  ServedSequence& running = make(chat);
  ASSERT_TRUE(admit(running));
  plan(running, 9);
  EXPECT_THAT(running.plan.moves_of(MoveKind::kCopyPage), IsEmpty());
}

TEST_F(PrefixCacheTest, AnExactRepeatDrawsFromTheHiddenVector) {
  use(small());
  const TokenList prompt = unique(13);
  serve(prompt);
  ServedSequence& again = make(prompt);
  ASSERT_TRUE(admit(again));
  EXPECT_EQ(again.sequence.num_computed, 13);
  plan(again, 13);
  EXPECT_NE(again.planned.hidden_slot, 0);
  EXPECT_EQ(again.planned.hidden_slot, again.plan.moves_of(MoveKind::kRestore)[0].from);
  EXPECT_TRUE(again.planned.snapshots.empty());
  book(again, 13);
  // A request for no tokens has nothing to draw: it computes its last tokens as usual.
  ServedSequence& scored = make(prompt, 0);
  ASSERT_TRUE(admit(scored));
  EXPECT_EQ(scored.sequence.num_computed, 8);
}

// Every degradation when slots or pages are short; nothing aborts.
TEST_F(PrefixCacheTest, WithoutASlotTheStepRunsUntracked) {
  PrefixCacheOptions options = small();
  options.pools.num_state_slots = 1;
  use(options);
  ServedSequence& running = make(unique(30));
  ASSERT_TRUE(admit(running));
  prefill(running, 30);
  EXPECT_EQ(num_snapshots(running), 0);
  EXPECT_GT(cache_->stats().skipped_snapshots, 0);
  decode(running, 2);  // 32 is a multiple of the decode interval
  EXPECT_EQ(num_snapshots(running), 0);
  end(running);
  EXPECT_EQ(cache_->tree().to_string(), "[0,32)@32\n") << "the working slot itself is kept";
}

TEST_F(PrefixCacheTest, AStateThatIsThereAlreadyIsNotPublishedTwice) {
  use(small());
  const TokenList prompt = unique(30);
  ServedSequence& one = make(prompt);
  ServedSequence& two = make(prompt);
  ASSERT_TRUE(admit(one));
  ASSERT_TRUE(admit(two));
  plan(one, 30);
  plan(two, 30);
  book(one, 30);
  const int64_t used = cache_->stats().state_slots_used;
  const int64_t published = cache_->stats().published_states;
  const int64_t num_taken = num_snapshots(two);
  ASSERT_GT(num_taken, 0);
  book(two, 30);
  EXPECT_EQ(cache_->stats().state_slots_used, used - num_taken) << "its slots are free again";
  EXPECT_EQ(cache_->stats().published_states, published);
  end(one);
  end(two);
  EXPECT_EQ(cache_->stats().pages_used, 8) << "and one copy of the rows stays";
}

TEST_F(PrefixCacheTest, OptionalStatesEvictNothingAndTheTailDoes) {
  PrefixCacheOptions options = small();
  options.pools.num_state_slots = 3;
  options.pools.keeps_hidden = false;
  use(options);
  serve(unique(12));  // keeps 8 and the end at 12
  ASSERT_EQ(cache_->stats().state_slots_cached, 2);
  ServedSequence& running = make(unique(300));
  running.sequence.request.role_boundaries = {40, 80};
  ASSERT_TRUE(admit(running));
  plan(running, 300);
  ASSERT_EQ(num_snapshots(running), 1);
  EXPECT_EQ(running.plan.snapshots[0].tokens, 296);
  EXPECT_EQ(cache_->stats().evicted_states, 1);
}

TEST_F(PrefixCacheTest, GrowingFailsAsAWhole) {
  PrefixCacheOptions options = small();
  options.pools.num_pages = 5;
  use(options);
  ServedSequence& one = make(unique(8));
  ServedSequence& two = make(unique(8));
  ASSERT_TRUE(admit(one));
  ASSERT_TRUE(admit(two));
  prefill(one, 8);
  EXPECT_TRUE(cache_->grow(one.sequence, 8));
  EXPECT_EQ(std::ssize(one.sequence.pages), 2);
  EXPECT_FALSE(cache_->grow(one.sequence, 13));  // two pages, one is left
  EXPECT_EQ(std::ssize(one.sequence.pages), 2);
  EXPECT_TRUE(cache_->grow(one.sequence, 12));
  EXPECT_FALSE(cache_->grow(two.sequence, 9));
  end(one);
  EXPECT_TRUE(cache_->grow(two.sequence, 20)) << "what the other one left is evicted";
}

TEST_F(PrefixCacheTest, OnlyTheNewestStateOfDecodeStays) {
  use(small());
  ServedSequence& running = make(unique(10), 60);
  ASSERT_TRUE(admit(running));
  prefill(running, 10);
  decode(running, 22);
  EXPECT_EQ(cache_->tree().to_string(), "[0,8)@8\n  [8,10)@10\n    [10,32)@32\n");
  decode(running, 16);
  EXPECT_EQ(cache_->tree().to_string(), "[0,8)@8\n  [8,10)@10\n    [10,48)@48\n");
  decode(running, 3);
  end(running);
  EXPECT_EQ(cache_->tree().to_string(), "[0,8)@8\n  [8,10)@10\n    [10,51)@51\n");
}

TEST_F(PrefixCacheTest, ADecodeStateThatAnotherSequenceUsesStays) {
  use(small());
  ServedSequence& running = make(unique(10), 60);
  ASSERT_TRUE(admit(running));
  prefill(running, 10);
  decode(running, 7);
  ServedSequence& other = make(running.sequence.tokens);  // resumes at 16
  ASSERT_TRUE(admit(other));
  EXPECT_EQ(other.sequence.num_computed, 16);
  decode(running, 20);
  EXPECT_THAT(cache_->tree().to_string(), ::testing::HasSubstr("[10,16)@16"));
}

TEST_F(PrefixCacheTest, AskedForForksArePlanted) {
  PrefixCacheOptions options = small();
  options.pools.keeps_hidden = false;
  use(options);
  ServedSequence& leader = make(unique(100));
  ASSERT_TRUE(admit(leader));
  prefill(leader, 16);
  EXPECT_FALSE(cache_->will_publish(leader.cached, 40, 48, 16));
  cache_->want_snapshot(leader.cached, 48, 16);
  cache_->want_snapshot(leader.cached, 8, 16);  // is behind it
  EXPECT_TRUE(cache_->will_publish(leader.cached, 40, 48, 16));
  EXPECT_FALSE(cache_->will_publish(leader.cached, 40, 47, 16));
  plan(leader, 64);
  ASSERT_EQ(num_snapshots(leader), 1);
  EXPECT_EQ(leader.plan.snapshots[0].tokens, 48);
  EXPECT_TRUE(cache_->will_publish(leader.cached, 40, 48, 64)) << "it is in flight";
  book(leader, 64);
  EXPECT_FALSE(cache_->will_publish(leader.cached, 40, 48, 64));
}

TEST_F(PrefixCacheTest, ASequenceMayPublishOnlyAtItsEnd) {
  use(small());
  ServedSequence& running = make(unique(40));
  ASSERT_TRUE(admit(running));
  running.cached.publishes_only_at_end = true;
  prefill(running, 40);
  decode(running, 10);
  EXPECT_EQ(cache_->tree().to_string(), "");
  end(running);
  EXPECT_EQ(cache_->tree().to_string(), "[0,50)@50\n");
}

TEST_F(PrefixCacheTest, DisabledItKeepsNothing) {
  PrefixCacheOptions options = small();
  options.enabled = false;
  use(options);
  const TokenList tokens = serve(unique(40));
  EXPECT_EQ(cache_->match(make(tokens).sequence).kv_tokens, 0);
  EXPECT_EQ(cache_->stats().pages_used, 0);
  EXPECT_EQ(cache_->stats().state_slots_used, 0);
}

TEST_F(PrefixCacheTest, NamespacesShareNothing) {
  use(small());
  const TokenList tokens = serve(unique(40));
  ServedSequence& other = make(tokens);
  other.sequence.cache_namespace = "other";
  EXPECT_EQ(cache_->match(other.sequence).kv_tokens, 0);
}

TEST_F(PrefixCacheTest, StatelessModelsResumeAtPages) {
  use(stateless());
  const TokenList prompt = unique(22);
  ServedSequence& running = make(prompt);
  ASSERT_TRUE(admit(running));
  EXPECT_EQ(running.sequence.state_slot, 0);
  plan(running, 14);
  EXPECT_THAT(running.plan.moves_of(MoveKind::kZero), IsEmpty());
  EXPECT_TRUE(running.planned.snapshots.empty());
  book(running, 14);
  EXPECT_EQ(cache_->match(make(prompt).sequence).usable_tokens, 12) << "whole pages, at once";
  prefill(running, 22);
  decode(running, 3);
  end(running);
  EXPECT_EQ(cache_->stats().pages_used, 6) << "25 tokens, of which the last page's one goes";
  ServedSequence& again = make(running.sequence.tokens);
  ASSERT_TRUE(admit(again));
  EXPECT_EQ(again.sequence.num_computed, 24);
  plan(again, 25);
  EXPECT_THAT(again.plan.moves_of(MoveKind::kCopyPage), IsEmpty());
  // At least one token runs, so a repeat of 24 tokens resumes at 20.
  ServedSequence& shorter =
      make(TokenList(running.sequence.tokens.begin(), running.sequence.tokens.end() - 1));
  ASSERT_TRUE(admit(shorter));
  EXPECT_EQ(shorter.sequence.num_computed, 20);
}

TEST_F(PrefixCacheTest, PagesBehindEveryWindowGoWhenAskedFor) {
  PrefixCacheOptions options = stateless();
  options.pools.num_pages = 8;
  options.pools.kv_window = 6;
  use(options);
  ServedSequence& running = make(unique(8), 40);
  ASSERT_TRUE(admit(running));
  prefill(running, 8);  // two pages, the tree's from now on
  decode(running, 12);  // 20 tokens: five pages
  EXPECT_FALSE(admit(make(unique(20)))) << "three pages are free";
  ASSERT_TRUE(cache_->shrink(running.sequence, running.cached));
  EXPECT_EQ(running.cached.dead_pages, 3);  // the next token reads rows 15 to 20
  EXPECT_FALSE(cache_->shrink(running.sequence, running.cached)) << "once";
  EXPECT_EQ(cache_->available_pages(), 6);  // the prompt's two can be evicted
  ServedSequence& other = make(unique(20));
  EXPECT_TRUE(admit(other));
  end(other, PrefixCache::Keep::kPublished);
  decode(running, 4);
  end(running);  // its rows have gaps: nothing beyond what was published can be kept
  EXPECT_LE(cache_->stats().pages_used, 2);
  cache_->clear();
  EXPECT_EQ(cache_->stats().pages_used, 0);
}

TEST_F(PrefixCacheTest, APageThatTheWindowHasNotLeftStaysLockedWithThePathThatEndsInIt) {
  PrefixCacheOptions options = small();
  options.pools.kv_window = 6;
  use(options);
  ServedSequence& running = make(unique(10), 40);
  ASSERT_TRUE(admit(running));
  prefill(running, 10);  // three pages, the tree's: the state at 10 keeps the hidden vector
  decode(running, 5);    // 15 tokens: the next one reads rows 10 to 15
  (void)cache_->shrink(running.sequence, running.cached);
  cache_->clear();
  EXPECT_EQ(cache_->stats().pages_used, 4) << "rows 10 and 11 are in the prompt's last page";
  end(running);
}

TEST_F(PrefixCacheTest, AStateWhoseRowsWereGivenBackIsNotPublished) {
  PrefixCacheOptions options = small();
  options.pools.kv_window = 6;
  use(options);
  ServedSequence& running = make(unique(8), 40);
  ASSERT_TRUE(admit(running));
  prefill(running, 8);
  decode(running, 22);  // a state at 16 on the way
  (void)cache_->shrink(running.sequence, running.cached);
  cache_->clear();
  decode(running, 4);  // one at 32 that no sequence could resume at
  EXPECT_EQ(cache_->stats().state_slots_used, 1) << "its own";
  end(running);
  cache_->clear();
  EXPECT_EQ(cache_->stats().state_slots_used, 0);
}

// Free, tree and running sequences add up after everything that can happen, in any order.
TEST_F(PrefixCacheTest, IdsAddUpInRandomScenarios) {
  int64_t resumed = 0;
  int64_t refused = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed = {}", seed));
    std::mt19937 random(seed);
    const auto between = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
    };
    PrefixCacheOptions options = between(0, 3) == 0 ? stateless() : small();
    options.pools.page_size = 1 << between(0, 3);
    options.pools.num_pages = between(4, 120);
    if (options.pools.has_states()) options.pools.num_state_slots = between(1, 12);
    options.policy = static_cast<SnapshotPolicy>(between(0, 2));
    if (options.policy == SnapshotPolicy::kNoBuffer) options.pools.page_size = 1;
    options.eviction = between(0, 1) == 0 ? EvictionPolicy::kLru : EvictionPolicy::kFlops;
    use(options);
    const TokenList stem = unique(40);
    for (int step = 0; step < 120; ++step) {
      const int64_t what = between(0, 9);
      if (what < 3 && all_.size() < 40) {
        TokenList prompt(stem.begin(), stem.begin() + between(0, 39));
        for (int64_t k = between(1, 20); k > 0; --k) {
          prompt.push_back(static_cast<TokenId>(1'000'000 + between(0, 1)));
        }
        ServedSequence& running = make(std::move(prompt), 100);
        if (admit(running, between(0, 2))) {
          resumed += running.sequence.num_computed > 0 ? 1 : 0;
        } else {
          ++refused;
        }
      } else if (what == 9 && between(0, 9) == 0) {
        cache_->clear();
      } else if (!all_.empty()) {
        ServedSequence& running = *all_[static_cast<size_t>(between(0, std::ssize(all_) - 1))];
        Sequence& sequence = running.sequence;
        if (sequence.pages.empty()) continue;
        if (what == 3) {
          end(running,
              between(0, 1) == 0 ? PrefixCache::Keep::kEnd : PrefixCache::Keep::kPublished);
        } else if (sequence.num_computed < sequence.num_tokens() || running.cached.starts) {
          const int64_t left = sequence.num_tokens() - sequence.num_computed;
          prefill(running, sequence.num_computed + (left == 0 ? 0 : between(1, left)));
        } else if (cache_->grow(sequence, sequence.num_tokens() + 1)) {
          decode(running);
        } else {
          end(running);  // retracted
        }
      }
      check();
    }
    for (const auto& running : all_) {
      if (!running->sequence.pages.empty()) end(*running);
    }
    cache_->clear();
    ASSERT_EQ(cache_->stats().pages_used, 0);
    ASSERT_EQ(cache_->stats().state_slots_used, 0);
  }
  EXPECT_GT(resumed, 500);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace heddle::cache
