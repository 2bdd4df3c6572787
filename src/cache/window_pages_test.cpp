// SPDX-License-Identifier: Apache-2.0
// The owners of the pages of a table with a window: windows that slide, pages that the tree keeps,
// the order of eviction, the reserve of every sequence; and random sequences against a naive model
// of all that.
#include "cache/window_pages.h"

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::cache {
namespace {

// Pages of 4 tokens and a window of 8: a sequence needs ceil(10 / 4) + 3 = 6 pages to advance.
WindowPages window_of_8(int64_t num_pages, int32_t max_sequences) {
  return {{.num_pages = num_pages, .window = 8}, 4, max_sequences};
}

TEST(WindowPagesTest, ATokenSeesTheWindowThatEndsInIt) {
  const WindowPages pages = window_of_8(20, 2);
  EXPECT_EQ(pages.per_sequence(), 6);
  for (const auto& [position, first] :
       {std::pair{0, 0}, {7, 0}, {10, 0}, {11, 1}, {14, 1}, {15, 2}}) {
    EXPECT_EQ(pages.first_page(position), first) << "the token at " << position;
  }
}

TEST(WindowPagesTest, PagesASequenceSlidPastAreFreeOrTheTrees) {
  WindowPages pages = window_of_8(22, 2);
  PinnedWindow pinned;
  pages.begin(pinned, 0, 10);
  ASSERT_TRUE(pages.grow(pinned, 4));
  const PageRef kept = pages.adopt(pinned.pages[1]);
  const PageRef end = pages.adopt(pinned.pages[2]);
  EXPECT_EQ(pages.num_evictable(), 0) << "the sequence still holds them";
  pages.slide(pinned, 3, /*first_end=*/2, /*end_end=*/3);
  EXPECT_EQ(pinned.num_pinned(), 1);
  EXPECT_EQ(pages.ids().num_free(), 22 - 3) << "its own page before the window is free";
  EXPECT_EQ(pages.num_evictable(), 2);
  EXPECT_TRUE(pages.has(kept));
  pages.end(pinned);
  EXPECT_EQ(pages.ids().num_free(), 22 - 2);

  // The pages that were slid past go first.
  pages.begin(pinned, 0, 30);
  ASSERT_TRUE(pages.grow(pinned, 16)) << "the other sequence's 6 stay";
  EXPECT_FALSE(pages.grow(pinned, 17));
  EXPECT_TRUE(pages.has(kept) && pages.has(end)) << "there were enough free ones";
  pages.end(pinned);
  PinnedWindow others[2];
  for (PinnedWindow& other : others) pages.begin(other, 0, 30);
  ASSERT_TRUE(pages.grow(others[0], 15));
  ASSERT_TRUE(pages.grow(others[1], 6));
  EXPECT_FALSE(pages.has(kept));
  EXPECT_TRUE(pages.has(end));
  EXPECT_EQ(pages.num_evicted(), 1);
  ASSERT_TRUE(pages.grow(others[0], 16));
  EXPECT_FALSE(pages.has(end));
  pages.check_invariants();
}

TEST(WindowPagesTest, APageThatASequenceResumedFromCountsAsAnEnd) {
  WindowPages pages = window_of_8(7, 1);
  PinnedWindow pinned;
  pages.begin(pinned, 0, 10);
  ASSERT_TRUE(pages.grow(pinned, 2));
  const PageRef fork = pages.adopt(pinned.pages[0]);
  const PageRef passed = pages.adopt(pinned.pages[1]);
  pages.slide(pinned, 2, 0, 0);
  pages.end(pinned);
  pages.begin(pinned, 0, 10);
  pages.share(pinned, fork);
  EXPECT_EQ(pages.holders(fork.id), 1);
  pages.slide(pinned, 1, 0, 0);
  ASSERT_TRUE(pages.grow(pinned, 7)) << "one of the tree's goes";
  EXPECT_TRUE(pages.has(fork));
  EXPECT_FALSE(pages.has(passed)) << "though it was let go later";
  pages.end(pinned);
}

TEST(WindowPagesTest, AnIdOfAnotherGenerationIsNotThePage) {
  WindowPages pages = window_of_8(6, 1);
  PinnedWindow pinned;
  pages.begin(pinned, 0, 10);
  ASSERT_TRUE(pages.grow(pinned, 1));
  PageRef page = pages.adopt(pinned.pages[0]);
  pages.end(pinned);
  pages.begin(pinned, 0, 10);
  ASSERT_TRUE(pages.grow(pinned, 6)) << "all ids, that of the page too";
  const PageRef again = pages.adopt(page.id);
  EXPECT_FALSE(pages.has(page));
  EXPECT_TRUE(pages.has(again));
  pages.drop(page);
  EXPECT_TRUE(pages.has(again)) << "it was another page's id";
  pages.end(pinned);
  pages.clear();
  EXPECT_EQ(pages.ids().num_free(), 6);
  EXPECT_EQ(pages.num_evicted(), 1) << "dropped on request, not evicted";
}

TEST(WindowPagesTest, ACopySourceIsHeldUntilItIsCopied) {
  WindowPages pages = window_of_8(6, 1);
  PinnedWindow pinned;
  pages.begin(pinned, 0, 10);
  ASSERT_TRUE(pages.grow(pinned, 1));
  const PageRef source = pages.adopt(pinned.pages[0]);
  pages.end(pinned);
  pages.begin(pinned, 0, 10);
  pages.begin_copy(pinned, source);
  ASSERT_TRUE(pages.grow(pinned, 5));
  EXPECT_FALSE(pages.grow(pinned, 6)) << "6 pages, one of which is the source";
  EXPECT_TRUE(pages.has(source));
  pages.end_copy(pinned);
  ASSERT_TRUE(pages.grow(pinned, 6));
  EXPECT_FALSE(pages.has(source));
  pages.end(pinned);
}

// Sequences that grow, slide, give pages to the tree, share them and end, in a pool that is hardly
// more than the reserve. The model keeps for each page who holds it and whether the tree has it.
class RandomHolds {
 public:
  explicit RandomHolds(uint32_t seed)
      : random_(seed),
        num_pages_(kSequences * 6 + draw(12)),
        pages_(window_of_8(num_pages_, kSequences)) {}

  void run(int num_steps) {
    for (int step = 0; step < num_steps && !::testing::Test::HasFailure(); ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      const auto index = static_cast<size_t>(draw(kSequences));
      switch (draw(6)) {
        case 0:
          end(index);
          break;
        case 1:
          begin(index);
          break;
        case 2:
          publish(index);
          break;
        case 3:
          slide(index);
          break;
        default:
          grow(index);
      }
      check();
    }
  }

 private:
  static constexpr int kSequences = 4;

  struct Sequence {
    bool runs = false;
    PinnedWindow pinned;
  };

  int draw(int count) { return std::uniform_int_distribution<int>(0, count - 1)(random_); }

  [[nodiscard]] int64_t num_distinct() const {
    std::map<int32_t, int> held;
    for (const Sequence& sequence : sequences_) {
      for (auto i = static_cast<size_t>(sequence.pinned.first); i < sequence.pinned.pages.size();
           ++i) {
        ++held[sequence.pinned.pages[i]];
      }
    }
    return std::ssize(held);
  }

  void begin(size_t index) {
    Sequence& sequence = sequences_[index];
    if (sequence.runs) return;
    sequence.runs = true;
    pages_.begin(sequence.pinned, draw(3), 64);
    std::shuffle(tree_.begin(), tree_.end(), random_);
    for (const PageRef& page : tree_) {
      if (sequence.pinned.num_pinned() < draw(4) && pages_.has(page))
        pages_.share(sequence.pinned, page);
    }
  }

  void end(size_t index) {
    Sequence& sequence = sequences_[index];
    if (!sequence.runs) return;
    pages_.end(sequence.pinned);
    sequence.runs = false;
  }

  void publish(size_t index) {
    Sequence& sequence = sequences_[index];
    if (sequence.pinned.num_pinned() == 0) return;
    const int64_t at = sequence.pinned.first + draw(static_cast<int>(sequence.pinned.num_pinned()));
    const int32_t id = sequence.pinned.pages[static_cast<size_t>(at)];
    if (pages_.ids().owner(id) == Owner::kRequest) tree_.push_back(pages_.adopt(id));
  }

  void slide(size_t index) {
    PinnedWindow& pinned = sequences_[index].pinned;
    if (pinned.num_pinned() > 0) {
      pages_.slide(pinned, pinned.first + draw(static_cast<int>(pinned.num_pinned()) + 1), 0,
                   draw(20));
    }
  }

  // A sequence always gets its reserve, and more if the other sequences leave pages free.
  void grow(size_t index) {
    Sequence& sequence = sequences_[index];
    if (!sequence.runs || sequence.pinned.pages.size() > 50) return;
    const int64_t more = 1 + draw(4);
    const bool in_reserve = sequence.pinned.num_pinned() + more <= pages_.per_sequence();
    const int64_t room = pages_.room(sequence.pinned.num_pinned());
    const auto want = static_cast<int64_t>(sequence.pinned.pages.size()) + more;
    const bool grew = pages_.grow(sequence.pinned, want);
    EXPECT_EQ(grew, more <= room);
    EXPECT_TRUE(grew || !in_reserve);
    EXPECT_EQ(std::ssize(sequence.pinned.pages) == want, grew);
  }

  void check() {
    pages_.check_invariants();
    std::erase_if(tree_, [&](const PageRef& page) { return !pages_.has(page); });
    std::map<int32_t, int64_t> held;
    for (const Sequence& sequence : sequences_) {
      for (auto i = static_cast<size_t>(sequence.pinned.first); i < sequence.pinned.pages.size();
           ++i) {
        ++held[sequence.pinned.pages[i]];
      }
    }
    int64_t num_evictable = 0;
    for (const PageRef& page : tree_) {
      EXPECT_EQ(pages_.holders(page.id), held[page.id]);
      if (held[page.id] == 0) ++num_evictable;
    }
    EXPECT_EQ(pages_.num_evictable(), num_evictable);
    EXPECT_EQ(pages_.ids().count(Owner::kTree), std::ssize(tree_));
    EXPECT_EQ(pages_.ids().num_free(), num_pages_ - num_distinct() - num_evictable);
    for (const auto& [id, holders] : held) {
      EXPECT_TRUE(holders == 1 || pages_.ids().owner(id) == Owner::kTree) << "page " << id;
    }
  }

  std::mt19937 random_;
  int64_t num_pages_;
  WindowPages pages_;
  std::array<Sequence, kSequences> sequences_;
  std::vector<PageRef> tree_;
};

TEST(WindowPagesTest, RandomSequencesNeverLackTheirReserve) {
  for (const uint32_t seed : {1u, 2u, 3u, 4u}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomHolds(seed).run(5000);
  }
}

}  // namespace
}  // namespace heddle::cache
