// SPDX-License-Identifier: Apache-2.0
#include "runner/step/token_source.h"

#include <deque>
#include <map>
#include <optional>
#include <random>

#include <gtest/gtest.h>

namespace heddle::runner {
namespace {

using Place = TokenSource::Place;

TEST(TokenSourceTest, ATokenIsOnTheDeviceUntilItsStepIsFinished) {
  TokenSource tokens(2);
  EXPECT_EQ(tokens.last(0).place, Place::kNone);
  tokens.begin(0, /*step=*/0, /*row=*/5);
  EXPECT_EQ(tokens.last(0).place, Place::kDevice);
  EXPECT_EQ(tokens.last(0).row, 5);
  EXPECT_TRUE(tokens.is_computing(0));
  EXPECT_FALSE(tokens.is_computing(1));
  tokens.begin(0, /*step=*/1, /*row=*/3);
  tokens.drew(0, /*step=*/0, 42, /*ends=*/false);
  tokens.finish(0);
  EXPECT_EQ(tokens.last(0).row, 3);
  EXPECT_EQ(tokens.known(0), 42) << "that the running step feeds on";
  tokens.drew(0, /*step=*/1, 43, /*ends=*/false);
  tokens.finish(1);
  EXPECT_EQ(tokens.last(0).place, Place::kHost);
  EXPECT_EQ(tokens.last(0).token, 43);
}

TEST(TokenSourceTest, ATextThatEndedIsLeftOutOfTheStepThatRuns) {
  TokenSource tokens(1);
  tokens.begin(0, 0, 5);
  tokens.begin(0, 1, 6);
  tokens.drew(0, 0, 42, /*ends=*/true);
  tokens.finish(0);
  EXPECT_FALSE(tokens.is_computing(0)) << "another text may start in the slot";
  EXPECT_EQ(tokens.last(0).place, Place::kHost);
}

TEST(TokenSourceTest, AfterAFailedStepNothingIsKnown) {
  TokenSource tokens(2);
  tokens.begin(0, 0, 5);
  tokens.begin(1, 0, 6);
  tokens.drew(0, 0, 42, false);
  tokens.drew(1, 0, sampling::kNoToken, true);
  tokens.finish(0);
  EXPECT_EQ(tokens.last(1).place, Place::kNone);
  tokens.begin(1, 1, 0);
  tokens.lose_all();
  EXPECT_EQ(tokens.last(0).place, Place::kNone);
  EXPECT_EQ(tokens.last(1).place, Place::kNone);
  EXPECT_TRUE(tokens.is_computing(1)) << "what runs still reads the slot";
}

// Every step that was begun, looked through from the newest for what is known.
class NaiveSource {
 public:
  struct Step {
    int64_t number = 0;
    std::map<int32_t, int32_t> rows;  // by batch slot; -1: it draws nothing
    std::map<int32_t, bool> left_out;
  };

  std::deque<Step> running;
  std::map<int32_t, TokenId> known;

  [[nodiscard]] std::optional<int32_t> running_row(int32_t slot) const {
    for (auto step = running.rbegin(); step != running.rend(); ++step) {
      const auto row = step->rows.find(slot);
      if (row == step->rows.end() || step->left_out.contains(slot)) continue;
      return row->second;
    }
    return std::nullopt;
  }
};

TEST(TokenSourceTest, AgreesWithANaiveHistory) {
  constexpr int32_t kNumSlots = 4;
  std::mt19937 random(11);
  const auto percent = [&](uint32_t chance) { return random() % 100 < chance; };
  TokenSource tokens(kNumSlots);
  NaiveSource naive;
  std::map<int32_t, bool> runs;  // slots with a text
  int64_t num_begun = 0;
  for (int i = 0; i < 20000; ++i) {
    if (naive.running.size() < 2 && percent(60)) {
      NaiveSource::Step& step = naive.running.emplace_back();
      step.number = num_begun++;
      for (int32_t slot = 0; slot < kNumSlots; ++slot) {
        const bool starts = !runs[slot] && !naive.running_row(slot) && percent(40);
        if (!starts && !(runs[slot] && percent(80))) continue;
        runs[slot] = true;
        const int32_t row = starts && percent(30) ? -1 : static_cast<int32_t>(random() % 100);
        step.rows[slot] = row;
        tokens.begin(slot, step.number, row);
      }
    } else if (!naive.running.empty()) {
      const NaiveSource::Step step = naive.running.front();
      naive.running.pop_front();
      for (const auto& [slot, row] : step.rows) {
        if (row < 0 || step.left_out.contains(slot)) continue;
        const bool fails = percent(5);
        const bool ends = fails || percent(20);
        const TokenId token = fails ? sampling::kNoToken : static_cast<TokenId>(random() % 1000);
        naive.known[slot] = token;
        tokens.drew(slot, step.number, token, ends);
        if (!ends) continue;
        runs[slot] = false;
        for (NaiveSource::Step& later : naive.running) {
          if (later.rows.contains(slot)) later.left_out[slot] = true;
        }
      }
      tokens.finish(step.number);
    }
    for (int32_t slot = 0; slot < kNumSlots; ++slot) {
      const std::optional<int32_t> row = naive.running_row(slot);
      const TokenSource::Drawn last = tokens.last(slot);
      ASSERT_EQ(tokens.is_computing(slot), row.has_value()) << i << " " << slot;
      ASSERT_EQ(last.place == Place::kDevice, row && *row >= 0) << i << " " << slot;
      if (last.place == Place::kDevice) {
        ASSERT_EQ(last.row, *row);
      } else if (last.place == Place::kHost) {
        ASSERT_EQ(last.token, naive.known[slot]);
      }
      ASSERT_EQ(tokens.known(slot),
                naive.known.contains(slot) ? naive.known[slot] : sampling::kNoToken);
    }
  }
}

}  // namespace
}  // namespace heddle::runner
