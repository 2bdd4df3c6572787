// SPDX-License-Identifier: Apache-2.0
// Random sequences over three letters run, publish, fork and end against a small pool. Every KV row
// and every state holds a hash of the tokens before it, so that whatever a sequence reuses shows
// whether it is its own past. A list of the published prefixes says what must be found.
#include <random>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "cache/prefix_tree.h"
#include "cache/prefix_tree_fixture.h"

namespace heddle::cache {
namespace {

// The hash of each prefix: [0] is that of no tokens.
std::vector<uint64_t> prefix_hashes(const std::string& name_space, const Tokens& tokens) {
  std::vector<uint64_t> hashes{std::hash<std::string>{}(name_space)};
  for (const TokenId token : tokens) {
    hashes.push_back((hashes.back() ^ static_cast<uint64_t>(token)) * 0x9E3779B97F4A7C15u + 1);
  }
  return hashes;
}

struct SimulatedSequence {
  std::string name_space;
  Tokens tokens;
  std::vector<uint64_t> hashes;
  int64_t computed = 0;
  std::vector<int32_t> pages;
  std::set<int32_t> own;  // pages that the tree did not take
  PrefixLock lock;
};

class Simulation {
 public:
  Simulation(int32_t page_size, bool needs_state, EvictionPolicy eviction, int32_t pool_tokens,
             uint32_t seed)
      : random_(seed),
        page_size_(page_size),
        needs_state_(needs_state),
        fixture_({.page_size = page_size,
                  .num_pages = pool_tokens / page_size,
                  .num_states = 24,
                  .tree = {.needs_state = needs_state,
                           .eviction = eviction,
                           .page_bytes = 3 * page_size,
                           .state_bytes = 40}}),
        rows_(static_cast<size_t>((fixture_.pages.num_pages() + 1) * page_size)),
        states_(static_cast<size_t>(fixture_.states.num_slots()) + 1) {}

  void run(int num_steps) {
    for (int step = 0; step < num_steps && !::testing::Test::HasFailure(); ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      const int choice = draw(100);
      if (choice < 20) {
        start();
      } else if (choice < 50) {
        advance();
      } else if (choice < 75) {
        publish();
      } else if (choice < 93) {
        finish(draw(2) == 0);
      } else if (choice < 99) {
        evict();
      } else if (draw(4) == 0) {
        tree().clear();
        published_changed();
      }
      tree().check_invariants();
      look_up();
    }
    while (!running_.empty()) finish(false);
    tree().check_invariants(true);
    tree().clear();
    EXPECT_EQ(tree().to_string(), "");
    EXPECT_EQ(fixture_.pages.num_used(), 0);
    EXPECT_EQ(fixture_.states.num_used(), 0);
    EXPECT_GT(num_resumed_inside_pages_ + num_resumed_at_boundaries_, 20);
    EXPECT_EQ(num_resumed_inside_pages_ > 0, needs_state_ && page_size_ > 1);
  }

 private:
  using Prefix = std::pair<std::string, Tokens>;

  PrefixTree& tree() { return fixture_.tree; }

  int draw(int count) { return std::uniform_int_distribution<int>(0, count - 1)(random_); }

  // Mostly the beginning of an earlier prompt, then something of its own.
  Tokens random_tokens() {
    Tokens tokens;
    if (!seen_.empty() && draw(4) != 0) {
      tokens = seen_[static_cast<size_t>(draw(static_cast<int>(seen_.size())))];
      const auto size = static_cast<int>(tokens.size());
      tokens.resize(static_cast<size_t>(draw(2) == 0 ? size : 1 + draw(size)));
    }
    for (int more = 1 + draw(12); more > 0; --more) tokens.push_back(1 + draw(3));
    if (tokens.size() > 60) tokens.resize(60);
    return tokens;
  }

  void remember(const Tokens& tokens) {
    if (seen_.size() < 20) {
      seen_.push_back(tokens);
    } else {
      seen_[static_cast<size_t>(draw(20))] = tokens;
    }
  }

  // A sequence may use nothing but its own past.
  void expect_past(const std::vector<int32_t>& pages, const std::vector<uint64_t>& hashes,
                   int64_t length) {
    for (int64_t t = 0; t < length; ++t) {
      ASSERT_EQ(row(pages, t), hashes[static_cast<size_t>(t) + 1]) << "row " << t;
    }
  }

  uint64_t& row(const std::vector<int32_t>& pages, int64_t t) {
    return rows_[static_cast<size_t>(pages[static_cast<size_t>(t / page_size_)] * page_size_ +
                                     t % page_size_)];
  }

  int64_t longest_published(const std::string& name_space, const Tokens& tokens, int64_t limit) {
    for (int64_t length = std::min<int64_t>(limit, std::ssize(tokens)); length > 0; --length) {
      if (published_.contains({name_space, first(tokens, length)})) return length;
    }
    return 0;
  }

  void look_up() {
    const std::string name_space = draw(4) == 0 ? "other" : "";
    const Tokens tokens = random_tokens();
    const int64_t limit = std::ssize(tokens) - draw(2);
    const PrefixMatch match = tree().match(tokens, name_space, limit);
    const auto hashes = prefix_hashes(name_space, tokens);
    if (needs_state_) {
      EXPECT_EQ(match.usable_tokens, longest_published(name_space, tokens, limit));
      EXPECT_EQ(tree().stats().states, std::ssize(published_));
      EXPECT_GE(match.kv_tokens, match.usable_tokens);
    } else {
      const int64_t usable = std::min(match.kv_tokens, limit);
      EXPECT_EQ(match.usable_tokens, usable - usable % page_size_);
    }
    std::vector<int32_t> pages;
    tree().append_pages(match.resume, match.usable_tokens, pages);
    expect_past(pages, hashes, match.usable_tokens);
    pages.clear();
    tree().append_pages(match.kv_node, match.kv_tokens, pages);
    expect_past(pages, hashes, match.kv_tokens);
    if (match.resume != nullptr && needs_state_) {
      EXPECT_EQ(states_[static_cast<size_t>(tree().state_slot(match.resume))],
                hashes[static_cast<size_t>(match.usable_tokens)]);
    }
  }

  bool make_room(int64_t num_pages, int64_t num_states) {
    const int64_t pages = num_pages - fixture_.pages.num_free();
    const int64_t states = num_states - fixture_.states.num_free();
    if (pages > 0) (void)tree().evict_pages(pages);
    if (states > 0) (void)tree().evict_states(states);
    published_changed();
    return fixture_.pages.num_free() >= num_pages && fixture_.states.num_free() >= num_states;
  }

  void start() {
    if (running_.size() >= 6) return;
    SimulatedSequence sequence;
    sequence.name_space = draw(4) == 0 ? "other" : "";
    sequence.tokens = random_tokens();
    sequence.hashes = prefix_hashes(sequence.name_space, sequence.tokens);
    remember(sequence.tokens);
    const PrefixMatch match =
        tree().match(sequence.tokens, sequence.name_space, std::ssize(sequence.tokens) - 1);
    sequence.lock = tree().lock(match.resume, true);
    sequence.computed = match.usable_tokens;
    tree().append_pages(match.resume, match.usable_tokens, sequence.pages);
    tree().touch(match.resume);
    expect_past(sequence.pages, sequence.hashes, sequence.computed);
    if (sequence.computed % page_size_ != 0) {
      if (!make_room(1, 0)) return tree().unlock(sequence.lock);
      const std::vector<int32_t> shared = sequence.pages;
      sequence.pages.pop_back();
      ASSERT_TRUE(fixture_.pages.grow(sequence.computed, sequence.pages));
      for (int64_t t = sequence.computed - sequence.computed % page_size_; t < sequence.computed;
           ++t) {
        row(sequence.pages, t) = row(shared, t);
      }
      sequence.own.insert(sequence.pages.back());
      ++num_resumed_inside_pages_;
    } else if (sequence.computed > 0) {
      ++num_resumed_at_boundaries_;
    }
    tree().release_state(sequence.lock);
    running_.push_back(std::move(sequence));
  }

  void advance() {
    if (running_.empty()) return;
    SimulatedSequence& sequence = pick();
    const int64_t end =
        std::min<int64_t>(sequence.computed + 1 + draw(40), std::ssize(sequence.tokens));
    const int64_t more = fixture_.pages.pages_for(end) - std::ssize(sequence.pages);
    if (!make_room(more, 0)) return;
    const size_t before = sequence.pages.size();
    ASSERT_TRUE(fixture_.pages.grow(end, sequence.pages));
    sequence.own.insert(sequence.pages.begin() + static_cast<int64_t>(before),
                        sequence.pages.end());
    for (int64_t t = sequence.computed; t < end; ++t) {
      row(sequence.pages, t) = sequence.hashes[static_cast<size_t>(t) + 1];
    }
    sequence.computed = end;
    expect_past(sequence.pages, sequence.hashes, end);
  }

  void publish() {
    if (running_.empty()) return;
    SimulatedSequence& sequence = pick();
    if (sequence.computed == 0) return;
    const Tokens tokens = first(sequence.tokens, sequence.computed);
    int32_t slot = 0;
    if (needs_state_) {
      if (!make_room(0, 1)) return;
      slot = fixture_.states.allocate();
      fixture_.states.set_label(slot, sequence.computed);
      states_[static_cast<size_t>(slot)] = sequence.hashes[tokens.size()];
    }
    // Some of them missing, as a sequence's are while its answer grows.
    const request::PrefixHashes hashes(first(tokens, draw(static_cast<int>(tokens.size()) + 1)),
                                       sequence.name_space);
    const PrefixInserted inserted = tree().insert({.tokens = tokens,
                                                   .name_space = sequence.name_space,
                                                   .hashes = hashes,
                                                   .pages = sequence.pages,
                                                   .state_slot = slot,
                                                   .keeps_hidden = draw(2) == 0});
    EXPECT_EQ(tree().depth(inserted.node), sequence.computed);
    if (needs_state_ && !inserted.state_taken) fixture_.states.release(slot);
    published_.emplace(sequence.name_space, tokens);
    for (const int32_t page : sequence.pages) {
      if (fixture_.pages.ids().owner(page) == Owner::kTree) sequence.own.erase(page);
    }
    PrefixLock moved = tree().lock(inserted.node, draw(4) == 0);
    if (needs_state_ && draw(2) == 0 && sequence.lock.node != inserted.node) {
      (void)tree().drop_unused_state(sequence.lock.node);
    }
    tree().unlock(sequence.lock);
    sequence.lock = moved;
    published_changed();
  }

  void finish(bool publishes) {
    if (running_.empty()) return;
    if (publishes) publish();
    const auto position = running_.begin() + draw(static_cast<int>(running_.size()));
    for (const int32_t page : position->own) fixture_.pages.ids().free_one(page);
    tree().unlock(position->lock);
    running_.erase(position);
    published_changed();
  }

  void evict() {
    const int64_t count = 1 + draw(3);
    const PrefixTreeStats before = tree().stats();
    int64_t freed = 0;
    switch (draw(3)) {
      case 0:
        freed = tree().evict_pages(count);
        EXPECT_EQ(freed, before.pages - tree().stats().pages);
        EXPECT_GE(freed, std::min(count, before.evictable_pages));
        break;
      case 1:
        freed = tree().evict_states(count);
        EXPECT_EQ(freed, std::min(count, before.evictable_states));
        EXPECT_EQ(freed, before.states - tree().stats().states);
        break;
      default:
        freed = tree().evict_bytes(20 * count);
        EXPECT_TRUE(freed >= 20 * count || tree().stats().evictable_pages == 0);
    }
    published_changed();
  }

  // Removes the prefixes that were evicted.
  void published_changed() {
    std::erase_if(published_, [&](const Prefix& prefix) {
      const auto& [name_space, tokens] = prefix;
      const int64_t length = std::ssize(tokens);
      return tree().match(tokens, name_space, length).usable_tokens < length;
    });
  }

  SimulatedSequence& pick() {
    return running_[static_cast<size_t>(draw(static_cast<int>(running_.size())))];
  }

  std::mt19937 random_;
  int64_t page_size_;
  bool needs_state_;
  TreeFixture fixture_;
  std::vector<uint64_t> rows_;    // [pages + 1, page_size]
  std::vector<uint64_t> states_;  // by slot
  std::vector<SimulatedSequence> running_;
  std::vector<Tokens> seen_;
  std::set<Prefix> published_;
  int64_t num_resumed_inside_pages_ = 0;
  int64_t num_resumed_at_boundaries_ = 0;
};

class PrefixTreeRandomTest
    : public ::testing::TestWithParam<std::tuple<int32_t, bool, EvictionPolicy>> {};

TEST_P(PrefixTreeRandomTest, EverySequenceResumesInItsOwnPast) {
  const auto [page_size, needs_state, eviction] = GetParam();
  for (const uint32_t seed : {1u, 2u}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    // Room for many sequences, and for hardly more than those that run.
    const int32_t pool_tokens = seed == 1 ? 2000 : 500;
    Simulation(page_size, needs_state, eviction, pool_tokens, seed).run(4000);
  }
}

INSTANTIATE_TEST_SUITE_P(PageSizes, PrefixTreeRandomTest,
                         ::testing::Combine(::testing::Values(1, 4, 16), ::testing::Bool(),
                                            ::testing::Values(EvictionPolicy::kFlops,
                                                              EvictionPolicy::kLru)));

}  // namespace
}  // namespace heddle::cache
