// SPDX-License-Identifier: Apache-2.0
#include "runner/step/draft_walk.h"

#include <optional>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runner/program/device_ints_fixture.h"
#include "speculative/draft_tree.h"

namespace heddle::runner {
namespace {

class DraftWalkTest : public DeviceIntsTest {};

HEDDLE_ON_EVERY_DEVICE(DraftWalkTest);

// Few tokens, so that many drafts hold, some of them endings, and draws that failed: as far as the
// host's tree goes down, in step after step.
TEST_P(DraftWalkTest, SmallestChainsHoldAsOnTheHost) {
  if (GetParam() == device::DeviceKind::kCpu) GTEST_SKIP() << "there the host walks";
  constexpr int32_t kSequences = 70, kMostDrafts = 5, kSlots = 1000;
  std::mt19937 random(3);
  const auto between = [&random](int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random);
  };
  DraftWalk walk(device(), 1);
  speculative::DraftTree tree;
  Ints missing_before;
  for (int step = 0; step < 20; ++step) {
    SCOPED_TRACE(step);
    const Ints endings = {2, 5};
    Ints ids, drawn;
    Ints missing;
    std::vector<ops::IdCopy> copies;
    walk.begin();
    for (int32_t i = 0; i < kSequences; ++i) {
      const int32_t num_drafts = between(0, kMostDrafts);
      for (int32_t row = between(0, 2); row > 0; --row) ids.push_back(7);  // of its prompt
      ops::WalkedDrafts walked{.first_row = static_cast<int32_t>(ids.size()),
                               .logit_row = static_cast<int32_t>(drawn.size()),
                               .num_drafts = num_drafts,
                               .state_slot = 1 + i,
                               .draft_slot = i % 3 == 0 ? 0 : kSlots + i * (kMostDrafts + 1)};
      ids.push_back(7);
      Ints drafts;
      for (int32_t d = 0; d < num_drafts; ++d) drafts.push_back(between(1, 2));
      ids.insert(ids.end(), drafts.begin(), drafts.end());
      Ints tokens;
      for (int32_t d = 0; d <= num_drafts; ++d) {
        const bool is_next = d < num_drafts && between(0, 3) > 0;
        tokens.push_back(is_next ? drafts[static_cast<size_t>(d)] : between(-1, 5));
      }
      Ints now = tokens;  // with what is simulated
      if (i % 5 == 1) {
        walked.simulated = (uint64_t{1} << num_drafts) - 1;
        walked.holding = static_cast<uint64_t>(between(0, 31));
        for (int32_t d = 0; d < num_drafts; ++d) {
          const int32_t draft = drafts[static_cast<size_t>(d)];
          int32_t& token = now[static_cast<size_t>(d)];
          if ((walked.holding >> d & 1) != 0) {
            token = draft;
          } else if (token == draft) {
            token = draft - 1;
          }
        }
      }
      drawn.insert(drawn.end(), tokens.begin(), tokens.end());
      const std::span<const TokenId> ends = i % 2 == 0 ? std::span(endings) : std::span<TokenId>();
      walk.add(walked, ends);
      ASSERT_TRUE(tree.assign(drafts, {}).ok());
      Ints path;
      tree.walk(
          [&](int32_t node) -> std::optional<TokenId> {
            const TokenId token = now[static_cast<size_t>(node)];
            const bool is_end = token < 0 || std::ranges::find(ends, token) != ends.end();
            return is_end ? std::optional<TokenId>() : token;
          },
          path);
      const int32_t held = path.back();
      missing.push_back(num_drafts - held);
      if (walked.draft_slot == 0) continue;
      copies.push_back({.from = walked.draft_slot + (held == num_drafts ? 0 : 1 + held),
                        .to = walked.state_slot});
    }
    const device::Buffer ids_there = uploaded(ids), drawn_there = uploaded(drawn);
    const Status status =
        walk.enqueue(context(), stream(), on_device(ids_there), on_device(drawn_there));
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(downloaded(walk.missing(), kSequences), missing);
    EXPECT_EQ(Ints(walk.told(true).begin(), walk.told(true).end()), missing);
    if (step > 0) {
      EXPECT_EQ(Ints(walk.told(false).begin(), walk.told(false).end()), missing_before);
    }
    missing_before = missing;
    ASSERT_EQ(walk.copies().size(), std::ssize(copies));
    const auto copied = downloaded(walk.copies().device, copies.size());
    for (size_t i = 0; i < copies.size(); ++i) {
      EXPECT_EQ(copied[i].from, copies[i].from) << i;
      EXPECT_EQ(copied[i].to, copies[i].to) << i;
    }
  }
}

}  // namespace
}  // namespace heddle::runner
