// SPDX-License-Identifier: Apache-2.0
#include "runner/drafting/written_rows.h"

#include <map>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "request/batch_plan.h"

namespace heddle::runner {
namespace {

using Pages = std::vector<int32_t>;

// A plan in which a sequence starts in slot 0 with so many tokens in these pages.
request::BatchPlan start(const Pages& pages, int64_t context_tokens, int64_t kv_tokens = 0) {
  request::BatchPlan plan;
  plan.starts.push_back({.sequence_id = 1, .batch_slot = 0});
  plan.page_updates.push_back({.batch_slot = 0, .pages = plan.add_pages(pages)});
  plan.sequences.push_back({.sequence_id = 1,
                            .batch_slot = 0,
                            .context_tokens = context_tokens,
                            .kv_tokens = kv_tokens});
  return plan;
}

TEST(WrittenRowsTest, OfATextThatIsNewNothingIsWritten) {
  WrittenRows rows(8, 4, 2);
  const Pages pages = {3, 5, 1};
  rows.take(start(pages, 0));
  EXPECT_EQ(rows.count(pages), 0);
  rows.add(pages, 0, 6);
  EXPECT_EQ(rows.count(pages), 6);
  EXPECT_EQ(rows.count(pages, 6), 6);
  rows.add(pages, 6, 12);
  EXPECT_EQ(rows.count(pages), 12);
  rows.take(start(pages, 0));
  EXPECT_EQ(rows.count(pages), 0) << "the pages went to another text";
}

TEST(WrittenRowsTest, AContextKeepsWhatWasWrittenOfIt) {
  WrittenRows rows(8, 4, 2);
  const Pages pages = {3, 5, 1};
  rows.take(start(pages, 0));
  rows.add(pages, 0, 11);
  rows.take(start(pages, 8));
  EXPECT_EQ(rows.count(pages), 8);
  rows.take(start(pages, 4, 7));
  EXPECT_EQ(rows.count(pages), 7) << "what is shared beyond the context is there as well";
  request::BatchPlan plan;  // one more page: it held another text
  plan.page_updates.push_back({.batch_slot = 0, .first = 3, .pages = plan.add_pages(Pages{2})});
  rows.take(plan);
  EXPECT_EQ(rows.count({{2}}), 0);
  EXPECT_EQ(rows.count(pages), 7);
}

// Two texts of the same tokens were read in part: what is written lies in pages of both.
TEST(WrittenRowsTest, APageThatWasNotReadIsAGap) {
  WrittenRows rows(8, 4, 2);
  rows.add(Pages{3, 4, 5}, 0, 12);
  const Pages mixed = {3, 7, 5};
  rows.take(start(mixed, 12));
  EXPECT_EQ(rows.count(mixed), 4);
  EXPECT_EQ(rows.unwritten_end(mixed, 4, 7), 7);
  EXPECT_EQ(rows.unwritten_end(mixed, 4, 12), 8);
  rows.add(mixed, 4, 7);
  EXPECT_EQ(rows.count(mixed, 4), 7);
  rows.add(mixed, 7, 8);
  EXPECT_EQ(rows.count(mixed, 7), 12) << "what follows is there";
}

TEST(WrittenRowsTest, CopiedPagesHaveTheRowsOfTheirOrigin) {
  WrittenRows rows(8, 4, 2);
  rows.add(Pages{3, 5}, 0, 7);
  request::BatchPlan plan = start({3, 6}, 6);
  plan.add_move({.from = 5, .to = 6});
  rows.take(plan);
  EXPECT_EQ(rows.count(Pages{3, 6}), 6) << "the last row was another text's";
  EXPECT_EQ(rows.count(Pages{3, 5}), 7);
}

TEST(WrittenRowsTest, PagesThatWereGivenBackHaveNone) {
  WrittenRows rows(8, 4, 2);
  rows.add(Pages{3, 5}, 0, 8);
  request::BatchPlan plan;
  plan.add_move({.kind = request::MoveKind::kReleasePage, .from = 5});
  rows.take(plan);
  EXPECT_EQ(rows.count(Pages{3, 5}), 4);
}

// Texts that share their beginnings come and go; beside them every row has a label, what it was
// written for.
TEST(WrittenRowsTest, RowsThatCountAreThoseOfTheText) {
  constexpr int32_t kPageSize = 4;
  constexpr int32_t kNumPages = 12;
  constexpr int64_t kLength = 16;
  std::mt19937 random(7);
  const auto below = [&](int64_t end) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
  };
  WrittenRows rows(kNumPages, kPageSize, 1);
  std::vector<int64_t> labels((kNumPages + 1) * kPageSize, -1);  // of rows that were written
  std::map<int32_t, std::pair<int64_t, int64_t>> held;           // by page: label and tokens
  int64_t num_used = 0;
  for (int step = 0; step < 20000; ++step) {
    const int64_t family = below(3);
    const auto label_at = [&](int64_t token, int64_t fork, int64_t own) {
      return (token < fork ? family : own) * 100 + token;
    };
    // The pages that hold the family's text, as the cache would give them.
    Pages pages;
    const int64_t fork = below(kLength + 1);
    const int64_t own = 1000 + step;
    request::BatchPlan plan;
    int64_t context = 0;
    for (int64_t first = 0; first < fork; first += kPageSize) {
      const auto page = std::ranges::find_if(
          held, [&](const auto& one) { return one.second.first == family * 100 + first; });
      if (page == held.end()) break;
      const int64_t here = std::min({page->second.second, fork - first, int64_t{kPageSize}});
      if (here == kPageSize) {
        pages.push_back(page->first);
        context += here;
        continue;
      }
      int32_t copy = 1 + static_cast<int32_t>(below(kNumPages));
      if (copy == page->first || std::ranges::find(pages, copy) != pages.end()) break;
      plan.add_move({.from = page->first, .to = copy});
      std::copy_n(labels.begin() + page->first * kPageSize, kPageSize,
                  labels.begin() + copy * kPageSize);
      held.erase(copy);
      pages.push_back(copy);
      context += here;
      break;
    }
    while (std::ssize(pages) * kPageSize < kLength) {
      const auto page = 1 + static_cast<int32_t>(below(kNumPages));
      if (std::ranges::find(pages, page) != pages.end()) continue;
      pages.push_back(page);
      held.erase(page);
    }
    request::BatchPlan started = start(pages, context);
    started.moves = plan.moves;
    rows.take(started);
    const auto label_of_row = [&](int64_t token) -> int64_t& {
      return labels[static_cast<size_t>(pages[static_cast<size_t>(token / kPageSize)] * kPageSize +
                                        token % kPageSize)];
    };
    const int64_t counted = rows.count(pages);
    ASSERT_LE(counted, context);
    num_used += counted;
    for (int64_t token = 0; token < counted; ++token) {
      ASSERT_EQ(label_of_row(token), label_at(token, fork, own)) << "step " << step;
    }
    // It reads some of it, up to its end at best, and then guesses behind that.
    const int64_t read = rows.unwritten_end(pages, counted, counted + below(kLength - counted + 1));
    for (int64_t token = counted; token < read; ++token) {
      const auto page = static_cast<size_t>(token / kPageSize);
      ASSERT_LE(rows.count(std::span(pages).subspan(page, 1)), token % kPageSize)
          << "it may be read for others";
      label_of_row(token) = label_at(token, fork, own);
    }
    if (read > counted) rows.add(pages, counted, read);
    for (int64_t token = std::max(read, context); token < kLength && read >= context; ++token) {
      label_of_row(token) = -step;
    }
    const int64_t then = rows.count(pages, counted);
    ASSERT_GE(then, read);
    for (int64_t token = 0; token < then; ++token) {
      ASSERT_EQ(label_of_row(token), label_at(token, fork, own)) << "step " << step;
    }
    // The model has computed all of it. The pages of the family stay in the cache.
    for (int64_t first = 0; first < fork; first += kPageSize) {
      held[pages[static_cast<size_t>(first / kPageSize)]] = {
          family * 100 + first, std::min<int64_t>(fork - first, kPageSize)};
    }
  }
  EXPECT_GT(num_used, 10000);
}

}  // namespace
}  // namespace heddle::runner
