// SPDX-License-Identifier: Apache-2.0
// Random sequences over three letters run, publish, fork and end against a small pool. Every KV row
// and every state holds a hash of the tokens before it, so that whatever a sequence reuses shows
// whether it is its own past. A list of the published prefixes says what must be found. Where
// layers slide, so do the rows of the window, and a walk over all pages of a path says where it is
// whole.
#include <algorithm>
#include <random>
#include <set>
#include <string>

#include <fmt/format.h>
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
  std::vector<PinnedWindow> windows;
  PrefixLock lock;
};

class Simulation {
 public:
  Simulation(int32_t page_size, bool needs_state, EvictionPolicy eviction, int32_t pool_tokens,
             uint32_t seed, const std::vector<int64_t>& windows = {})
      : random_(seed),
        page_size_(page_size),
        widths_(windows),
        needs_state_(needs_state),
        fixture_({.page_size = page_size,
                  .num_pages = pool_tokens / page_size,
                  .num_states = 24,
                  .windows = window_sizes(page_size, windows),
                  .max_sequences = kMostRunning,
                  .tree = {.needs_state = needs_state,
                           .eviction = eviction,
                           .page_bytes = 3 * page_size,
                           .state_bytes = 40}}),
        rows_(static_cast<size_t>((fixture_.pages.num_pages() + 1) * page_size)),
        states_(static_cast<size_t>(fixture_.states.num_slots()) + 1) {
    for (const WindowPages& window : fixture_.windows) {
      window_rows_.emplace_back(static_cast<size_t>((window.ids().size() + 1) * page_size));
    }
  }

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
    for (const WindowPages& window : fixture_.windows) EXPECT_EQ(window.ids().num_used(), 0);
    if (!widths_.empty()) return;
    EXPECT_GT(num_resumed_inside_pages_ + num_resumed_at_boundaries_, 20);
    EXPECT_EQ(num_resumed_inside_pages_ > 0, needs_state_ && page_size_ > 1);
  }

  // Counts of events that a test requires to have happened often.
  struct Reached {
    int64_t resumed = 0;
    int64_t resumed_inside_pages = 0;
    int64_t evicted_from_windows = 0;  // pages
    int64_t cut_by_windows = 0;        // looked up, and usable less deep for want of these
  };

  void count(Reached& reached) const {
    reached.resumed += num_resumed_inside_pages_ + num_resumed_at_boundaries_;
    reached.resumed_inside_pages += num_resumed_inside_pages_;
    for (const WindowPages& window : fixture_.windows) {
      reached.evicted_from_windows += window.num_evicted();
    }
    reached.cut_by_windows += num_cut_by_windows_;
  }

 private:
  static constexpr int kMostRunning = 6;

  // The reserve of all sequences, which the tree may use while they do not.
  static std::vector<PageWindow> window_sizes(int64_t page_size,
                                              const std::vector<int64_t>& widths) {
    std::vector<PageWindow> all;
    for (const int64_t width : widths) {
      PageWindow& sizes = all.emplace_back();
      sizes.window = width;
      sizes.num_pages = kMostRunning * sizes.per_sequence(page_size);
    }
    return all;
  }

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

  uint64_t& window_row(const SimulatedSequence& sequence, size_t window, int64_t t) {
    const int32_t page = sequence.windows[window].pages[static_cast<size_t>(t / page_size_)];
    return window_rows_[window][static_cast<size_t>(page * page_size_ + t % page_size_)];
  }

  // The rows that the next token sees.
  void expect_windows(const SimulatedSequence& sequence) {
    for (size_t window = 0; window < widths_.size(); ++window) {
      for (int64_t t = std::max<int64_t>(sequence.computed + 1 - widths_[window], 0);
           t < sequence.computed; ++t) {
        ASSERT_EQ(window_row(sequence, window, t), sequence.hashes[static_cast<size_t>(t) + 1])
            << "row " << t << " of the layers that see " << widths_[window] << " tokens";
      }
    }
  }

  // Whether all windows before `length` tokens of the path to `node` are there.
  bool windows_are_whole(const PrefixNode* node, int64_t length) {
    for (size_t window = 0; window < widths_.size(); ++window) {
      if (!window_is_whole(node, length, window)) return false;
    }
    return true;
  }

  bool window_is_whole(const PrefixNode* node, int64_t length, size_t window) {
    std::vector<const PrefixNode*> path;
    for (; !node->is_root(); node = node->parent) path.insert(path.begin(), node);
    std::vector<bool> there(static_cast<size_t>(fixture_.pages.pages_for(length)));
    for (const PrefixNode* one : path) {
      for (size_t i = 0; i < one->pages.size(); ++i) {
        const size_t index = static_cast<size_t>(one->first_page) + i;
        if (index < there.size()) {
          there[index] = fixture_.windows[window].has(one->refs_of(i)[window]);
        }
      }
    }
    const int64_t first = std::max<int64_t>(length + 1 - widths_[window], 0) / page_size_;
    return std::all_of(there.begin() + first, there.end(), [](bool one) { return one; });
  }

  // The deepest point at most `limit` where a sequence can resume, found by looking at all of them.
  int64_t deepest_usable(const PrefixMatch& match, int64_t limit) {
    if (!needs_state_) {
      int64_t length = std::max<int64_t>(std::min(match.kv_tokens, limit), 0);
      length -= length % page_size_;
      while (length > 0 && !windows_are_whole(tree().covering(match.kv_node, length), length)) {
        length -= page_size_;
      }
      return length;
    }
    for (const PrefixNode* node = match.kv_node; node != nullptr && !node->is_root();
         node = node->parent) {
      const int64_t length = node->depth();
      if (node->has_state() && length <= std::min(match.kv_tokens, limit) &&
          windows_are_whole(node, length)) {
        return length;
      }
    }
    return 0;
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
    if (!widths_.empty()) {
      EXPECT_EQ(match.usable_tokens, deepest_usable(match, limit));
      EXPECT_LE(match.usable_tokens, match.known_tokens);
      if (match.usable_tokens < match.known_tokens) ++num_cut_by_windows_;
    } else if (needs_state_) {
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

  // Holds what the tree has of the windows; copies the page that the sequence resumes inside.
  void begin_windows(SimulatedSequence& sequence, const PrefixMatch& match) {
    sequence.windows.resize(widths_.size());
    for (size_t window = 0; window < widths_.size(); ++window)
      begin_window(sequence, match, window);
    expect_windows(sequence);
  }

  void begin_window(SimulatedSequence& sequence, const PrefixMatch& match, size_t window) {
    WindowPages& pages = fixture_.windows[window];
    PinnedWindow& pinned = sequence.windows[window];
    std::vector<PageRef> found;
    tree().append_window(match.resume, match.usable_tokens, window, found);
    pages.begin(pinned, pages.first_page(match.usable_tokens), 64);
    const bool copies = match.usable_tokens % page_size_ != 0;
    for (size_t i = 0; i + (copies ? 1 : 0) < found.size(); ++i) pages.share(pinned, found[i]);
    if (!copies) return;
    pages.begin_copy(pinned, found.back());
    ASSERT_TRUE(pages.grow(pinned, fixture_.pages.pages_for(match.usable_tokens)));
    const auto rows = window_rows_[window].begin();
    std::copy_n(rows + found.back().id * page_size_, page_size_,
                rows + pinned.pages.back() * page_size_);
    pages.end_copy(pinned);
  }

  void slide(SimulatedSequence& sequence) {
    const int64_t prompt = std::ssize(sequence.tokens) / 2;
    for (size_t window = 0; window < widths_.size(); ++window) {
      WindowPages& pages = fixture_.windows[window];
      pages.slide(sequence.windows[window], pages.first_page(sequence.computed),
                  pages.first_page(prompt), fixture_.pages.pages_for(prompt));
    }
  }

  void start() {
    if (running_.size() >= kMostRunning) return;
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
    begin_windows(sequence, match);
    tree().release_state(sequence.lock);
    running_.push_back(std::move(sequence));
  }

  void advance() {
    if (running_.empty()) return;
    SimulatedSequence& sequence = pick();
    int64_t end = std::min<int64_t>(sequence.computed + 1 + draw(40), std::ssize(sequence.tokens));
    for (size_t window = 0; window < widths_.size(); ++window) {
      const WindowPages& pages = fixture_.windows[window];
      const PinnedWindow& pinned = sequence.windows[window];
      const auto most_tokens = [&] {
        return (std::ssize(pinned.pages) + pages.room(pinned.num_pinned())) * page_size_;
      };
      if (most_tokens() <= sequence.computed) slide(sequence);
      ASSERT_GT(most_tokens(), sequence.computed) << "the reserve is for a page at least";
      end = std::min(end, most_tokens());
    }
    const int64_t more = fixture_.pages.pages_for(end) - std::ssize(sequence.pages);
    if (!make_room(more, 0)) return;
    const size_t before = sequence.pages.size();
    ASSERT_TRUE(fixture_.pages.grow(end, sequence.pages));
    sequence.own.insert(sequence.pages.begin() + static_cast<int64_t>(before),
                        sequence.pages.end());
    for (size_t window = 0; window < widths_.size(); ++window) {
      ASSERT_TRUE(
          fixture_.windows[window].grow(sequence.windows[window], fixture_.pages.pages_for(end)));
    }
    expect_windows(sequence);
    for (int64_t t = sequence.computed; t < end; ++t) {
      row(sequence.pages, t) = sequence.hashes[static_cast<size_t>(t) + 1];
      for (size_t window = 0; window < widths_.size(); ++window) {
        window_row(sequence, window, t) = sequence.hashes[static_cast<size_t>(t) + 1];
      }
    }
    sequence.computed = end;
    if (!widths_.empty() && draw(2) == 0) slide(sequence);  // others first publish what they have
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
                                                   .windows = sequence.windows,
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
    slide(sequence);
    published_changed();
  }

  void finish(bool publishes) {
    if (running_.empty()) return;
    if (publishes) publish();
    const auto position = running_.begin() + draw(static_cast<int>(running_.size()));
    for (size_t window = 0; window < widths_.size(); ++window) {
      fixture_.windows[window].end(position->windows[window]);
    }
    for (const int32_t page : position->own) fixture_.pages.ids().free_one(page);
    tree().unlock(position->lock);
    running_.erase(position);
    published_changed();
  }

  void evict() {
    if (!widths_.empty() && draw(3) == 0) {
      fixture_.windows[static_cast<size_t>(draw(static_cast<int>(widths_.size())))].clear();
    }
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
  std::vector<int64_t> widths_;  // of windows, by table; empty: no layer slides
  bool needs_state_;
  TreeFixture fixture_;
  std::vector<uint64_t> rows_;                      // [pages + 1, page_size]
  std::vector<std::vector<uint64_t>> window_rows_;  // likewise, of each table with a window
  std::vector<uint64_t> states_;                    // by slot
  std::vector<SimulatedSequence> running_;
  std::vector<Tokens> seen_;
  std::set<Prefix> published_;
  int64_t num_resumed_inside_pages_ = 0;
  int64_t num_resumed_at_boundaries_ = 0;
  int64_t num_cut_by_windows_ = 0;
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

TEST_P(PrefixTreeRandomTest, EverySequenceResumesInItsOwnPastWhereLayersSlide) {
  const auto [page_size, needs_state, eviction] = GetParam();
  Simulation::Reached reached;
  for (const uint32_t seed : {1u, 2u}) {
    for (const std::vector<int64_t>& windows :
         {std::vector<int64_t>{3}, {11}, {30}, {3, 11}, {7, 8, 40}}) {
      SCOPED_TRACE(fmt::format("seed {}, windows {}", seed, fmt::join(windows, ", ")));
      const int32_t pool_tokens = seed == 1 ? 2000 : 500;
      Simulation simulation(page_size, needs_state, eviction, pool_tokens, seed, windows);
      simulation.run(2500);
      simulation.count(reached);
    }
  }
  EXPECT_GT(reached.resumed, 20);
  EXPECT_EQ(reached.resumed_inside_pages > 0, needs_state && page_size > 1);
  EXPECT_GT(reached.cut_by_windows, 60);
  RecordProperty("evicted", std::to_string(reached.evicted_from_windows));
}

INSTANTIATE_TEST_SUITE_P(PageSizes, PrefixTreeRandomTest,
                         ::testing::Combine(::testing::Values(1, 4, 16), ::testing::Bool(),
                                            ::testing::Values(EvictionPolicy::kFlops,
                                                              EvictionPolicy::kLru)));

}  // namespace
}  // namespace heddle::cache
