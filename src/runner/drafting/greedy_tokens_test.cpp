// SPDX-License-Identifier: Apache-2.0
#include "runner/drafting/greedy_tokens.h"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/device_fixture.h"
#include "sampling/sampler.h"

namespace heddle::runner {
namespace {

constexpr int64_t kNumLogits = 1000, kRows = 5, kSteps = 3;

class GreedyTokensTest : public ops::DeviceTest {};

HEDDLE_ON_EVERY_DEVICE(GreedyTokensTest);

TEST_P(GreedyTokensTest, AreTheBestOfEachRowOfEachStep) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 3);
  GreedyTokens greedy = GreedyTokens::create(device(), stream(), kSteps, kRows, kNumLogits).value();
  std::vector<std::vector<TokenId>> wanted_before;
  for (int round = 0; round < 10; ++round) {
    greedy.begin();
    std::vector<std::vector<TokenId>> wanted;
    std::vector<ops::DeviceTensor> kept;  // until the device has read them
    for (int64_t step = 0; step < kSteps; ++step) {
      const int64_t num_rows = kRows - (step + round) % 3;  // fewer than there are logits
      Tensor logits({kRows, kNumLogits}, DType::kF32);
      wanted.emplace_back();
      for (int64_t r = 0; r < kRows; ++r) {
        float* row = logits.view().row<float>(r);
        std::generate_n(row, kNumLogits, [&] { return normal(random); });
        if (r == 2) row[17] = row[900] = 50;  // the first of two
        if (r == 1 && step == 1) row[3] = std::numeric_limits<float>::quiet_NaN();
        const bool none = r == 1 && step == 1;
        if (r >= num_rows) continue;
        wanted.back().push_back(
            none ? sampling::kNoToken
                 : static_cast<TokenId>(std::max_element(row, row + kNumLogits) - row));
      }
      kept.push_back(upload(logits));
      ASSERT_TRUE(greedy.choose(context(), stream(), kept.back().view(), num_rows).ok());
      EXPECT_EQ(greedy.num_steps(), step + 1);
    }
    ASSERT_TRUE(greedy.fetch(stream()).ok());
    ASSERT_TRUE(stream().synchronize().ok());
    for (int64_t step = 0; step < kSteps; ++step) {
      SCOPED_TRACE(fmt::format("round {}, step {}", round, step));
      int32_t row = 0;
      for (const TokenId token : wanted[static_cast<size_t>(step)]) {
        EXPECT_EQ(greedy.token(greedy.place(step, row++)), token);
      }
    }
    // Where the host reads the logits it knows the tokens at once, and keeps none.
    for (int64_t step = 0; round > 0 && !greedy.known_at_once() && step < kSteps; ++step) {
      int32_t row = 0;
      for (const TokenId token : wanted_before[static_cast<size_t>(step)]) {
        EXPECT_EQ(greedy.token(greedy.place(step, row++), 1 - greedy.table()), token);
      }
    }
    wanted_before = std::move(wanted);
  }
}

}  // namespace
}  // namespace heddle::runner
