// SPDX-License-Identifier: Apache-2.0
// On every device the table has what a loop counts.
#include "ops/sampling/count_tokens.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "ops/device_fixture.h"

namespace heddle::ops {
namespace {

class CountTokensTest : public DeviceTest {
 protected:
  template <typename Element>
  device::Buffer uploaded(const std::vector<Element>& values) {
    const auto num_bytes = static_cast<int64_t>(values.size() * sizeof(Element));
    device::Buffer buffer = device().allocate(num_bytes).value();
    EXPECT_TRUE(stream().copy(buffer.data(), values.data(), num_bytes).ok());
    EXPECT_TRUE(stream().synchronize().ok());
    return buffer;
  }

  // Counts on top of `counts`, which become what the device has then.
  void count(const std::vector<CountedToken>& tokens, const std::vector<int32_t>& ids,
             int64_t vocab_size, std::vector<TokenCount>& counts) {
    const device::Buffer device_tokens = uploaded(tokens);
    const device::Buffer device_ids = uploaded(ids);
    const device::Buffer table = uploaded(counts);
    const Status status =
        count_tokens(context(), {.tokens = reinterpret_cast<CountedToken*>(device_tokens.data()),
                                 .num_tokens = std::ssize(tokens),
                                 .ids = reinterpret_cast<int32_t*>(device_ids.data()),
                                 .counts = reinterpret_cast<TokenCount*>(table.data()),
                                 .vocab_size = vocab_size});
    ASSERT_TRUE(status.ok()) << status.to_string();
    const auto num_bytes = static_cast<int64_t>(counts.size() * sizeof(TokenCount));
    ASSERT_TRUE(stream().copy(counts.data(), table.data(), num_bytes).ok());
    ASSERT_TRUE(stream().synchronize().ok());
  }
};

HEDDLE_ON_EVERY_DEVICE(CountTokensTest);

TEST_P(CountTokensTest, CountsWhatIsGivenAndWhatTheIdsAre) {
  std::mt19937 random(3);
  constexpr int64_t kRows = 3, kVocabulary = 5;  // rows share words
  for (int round = 0; round < 20; ++round) {
    std::vector<int32_t> ids(7);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % kVocabulary);
    std::vector<TokenCount> counts(kRows * kVocabulary + 1);
    for (TokenCount& count : counts) count = static_cast<TokenCount>(random() % 100);
    std::vector<TokenCount> want = counts;
    std::vector<CountedToken> tokens(round < 2 ? static_cast<size_t>(round) : random() % 300 + 1);
    for (CountedToken& counted : tokens) {
      counted.counts_row = static_cast<int32_t>(random() % kRows);
      if (random() % 2 == 0) {
        counted.id_row = static_cast<int32_t>(random() % ids.size());
        counted.token = -1;  // is not looked at
      } else {
        counted.token = static_cast<int32_t>(random() % kVocabulary);
      }
      const int32_t token =
          counted.id_row < 0 ? counted.token : ids[static_cast<size_t>(counted.id_row)];
      ++want[static_cast<size_t>(counted.counts_row * kVocabulary + token)];
    }
    count(tokens, ids, kVocabulary, counts);
    ASSERT_EQ(counts, want) << "round " << round;
  }
}

TEST_P(CountTokensTest, StopsAtTheMostThatIsCounted) {
  std::vector<TokenCount> counts = {7, kMostCounted - 40, 7, kMostCounted};
  std::vector<CountedToken> tokens(300, {.counts_row = 0, .token = 1});
  tokens.insert(tokens.end(), 9, {.counts_row = 1, .token = 1});
  count(tokens, {0}, 2, counts);
  EXPECT_EQ(counts, (std::vector<TokenCount>{7, kMostCounted, 7, kMostCounted}));
  const Penalties penalties{.frequency = 0.01f};
  EXPECT_EQ(penalties.apply(3.0f, 1 << 20), penalties.apply(3.0f, kMostCounted));
  EXPECT_NE(penalties.apply(3.0f, kMostCounted - 1), penalties.apply(3.0f, kMostCounted));
}

}  // namespace
}  // namespace heddle::ops
