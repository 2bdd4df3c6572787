// SPDX-License-Identifier: Apache-2.0
// W6: nine prompts of digits, one token per digit, 256 of each, through the scheduler. Checks
// the tokens that each of them finds in the cache and leaves there, under every policy, raw and
// inside a chat template of three tokens before and five after.
#include <ostream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/hybrid_cache_fixture.h"

namespace heddle::scheduler {
namespace {

// Rows 8 and 9 are a continuation of the published seven.
const char* const kRows[] = {"12", "13", "14", "125", "145", "135", "13", "13", "136"};

struct ContentCase {
  const char* name;
  SnapshotPolicy policy;
  int32_t page_size;
  bool chat;
  std::vector<int64_t> hits;
  std::vector<std::vector<int64_t>> kept;
};

void PrintTo(const ContentCase& example, std::ostream* out) { *out << example.name; }

Tokens content(const std::string& digits, bool chat) {
  Tokens prompt;
  if (chat) prompt = {2000, 2001, 2002};
  for (const char digit : digits) prompt = joined(prompt, repeated(1000 + digit, 256));
  if (chat) prompt = joined(prompt, {2003, 2004, 2005, 2006, 2007});
  return prompt;
}

class W6ContentTest : public ::testing::TestWithParam<ContentCase> {};

TEST_P(W6ContentTest, EveryPromptFindsAndLeavesTheExpectedStates) {
  const ContentCase& example = GetParam();
  HybridCacheFixture fixture(reference(example.policy, example.page_size));
  std::vector<int64_t> hits;
  std::vector<std::vector<int64_t>> kept;
  for (const char* const digits : kRows) {
    const Served served = fixture.serve(content(digits, example.chat), 8);
    hits.push_back(served.hit);
    kept.push_back(served.kept);
  }
  EXPECT_EQ(hits, example.hits);
  EXPECT_EQ(kept, example.kept);
}

// Line by line: (1) cold. (2) 256 tokens are known without a state there: the fork is kept in place
// of the tail. (3) finds the fork. (4) and (5) find the tails of 1 and 3. (6) finds only the fork,
// because 2 did not keep its tail. (7) ends inside the edge of 6, where the KV agrees up to 511
// tokens raw, the last one has to run, and up to 515 in the chat: a fork again. (8) raw, the state
// after 512 tokens is kept now, for (9); in the chat, 8 tokens leave nothing.
const std::vector<int64_t> kRawHits = {0, 0, 256, 512, 512, 256, 256, 448, 512};
const std::vector<int64_t> kChatHits = {0, 0, 256, 512, 512, 256, 256, 512, 512};
const std::vector<std::vector<int64_t>> kRawKept = {{512}, {256}, {512}, {768}, {768},
                                                    {768}, {448}, {512}, {768}};
const std::vector<std::vector<int64_t>> kChatKept = {{512}, {256}, {512}, {768}, {768},
                                                     {768}, {512}, {},    {768}};

INSTANTIATE_TEST_SUITE_P(
    Rows, W6ContentTest,
    ::testing::Values(
        ContentCase{"ExtraBufferRawPage1", SnapshotPolicy::kExtraBuffer, 1, false, kRawHits,
                    kRawKept},
        ContentCase{"ExtraBufferRawPage64", SnapshotPolicy::kExtraBuffer, 64, false, kRawHits,
                    kRawKept},
        ContentCase{"ExtraBufferChatPage1", SnapshotPolicy::kExtraBuffer, 1, true, kChatHits,
                    kChatKept},
        ContentCase{"ExtraBufferChatPage64", SnapshotPolicy::kExtraBuffer, 64, true, kChatHits,
                    kChatKept},
        // The exact end of every prompt: found by those that go on there, (4) to (6) and (9), and
        // by none that parts before.
        ContentCase{"NoBufferRaw",
                    SnapshotPolicy::kNoBuffer,
                    1,
                    false,
                    {0, 0, 0, 512, 512, 512, 0, 0, 512},
                    {{512}, {512}, {512}, {768}, {768}, {768}, {512}, {512}, {768}}},
        // In the chat the end of a prompt lies behind the template's, which no prompts share.
        ContentCase{"NoBufferChat",
                    SnapshotPolicy::kNoBuffer,
                    1,
                    true,
                    {0, 0, 0, 0, 0, 0, 0, 0, 0},
                    {{520}, {520}, {520}, {776}, {776}, {776}, {520}, {520}, {776}}}),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace heddle::scheduler
