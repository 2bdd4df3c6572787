// SPDX-License-Identifier: Apache-2.0
// The worked examples of the hybrid cache as far as they concern the tree. A test plays the
// scheduler: it matches what a prompt of N tokens may use, N - 1 of them, and plants the
// snapshots that the rule of the example asks for.
#include <string>

#include <gtest/gtest.h>

#include "cache/prefix_tree.h"
#include "cache/prefix_tree_fixture.h"

namespace heddle::cache {
namespace {

constexpr int64_t kStateGrid = 64;

Tokens repeated(TokenId token, int64_t count) { return Tokens(static_cast<size_t>(count), token); }

int64_t on_grid(int64_t tokens) { return tokens - tokens % kStateGrid; }

// One snapshot per extend, as the reference has it: at the fork if there is one, otherwise at the
// last grid point. Returns how many tokens were reused.
int64_t serve_with_one_snapshot(TreeFixture& fixture, const Tokens& prompt,
                                int64_t chunk = 1 << 20) {
  const auto length = static_cast<int64_t>(prompt.size());
  const PrefixMatch match = fixture.tree.match(first(prompt, length - 1), "", length - 1);
  fixture.tree.touch(match.resume);
  const int64_t branch = on_grid(match.kv_tokens);
  for (int64_t begin = match.usable_tokens; begin < length;) {
    const int64_t end = std::min(begin + chunk, length);
    if (end - begin >= kStateGrid) {
      const bool forks = begin < branch && branch < end;
      fixture.insert(prompt, forks ? branch : begin + on_grid(end - begin));
    }
    begin = end;
  }
  return match.usable_tokens;
}

// Several: every `stride` tokens, the fork and the tail.
int64_t serve_with_stride(TreeFixture& fixture, const Tokens& prompt, int64_t stride) {
  const auto length = static_cast<int64_t>(prompt.size());
  const PrefixMatch match = fixture.tree.match(first(prompt, length - 1), "", length - 1);
  fixture.tree.touch(match.resume);
  for (int64_t at = on_grid(match.usable_tokens) + kStateGrid; at <= length; at += kStateGrid) {
    const bool wanted =
        at % stride == 0 || at == on_grid(match.kv_tokens) || at == on_grid(length - 1);
    if (wanted) fixture.insert(prompt, at);
  }
  return match.usable_tokens;
}

TEST(PrefixTreeExamplesTest, W5BranchingKit) {
  TreeFixture fixture({});
  const auto prompt = [&](TokenId last) { return joined(repeated(1, 257), repeated(last, 256)); };
  EXPECT_EQ(serve_with_one_snapshot(fixture, prompt(2)), 0);
  EXPECT_EQ(serve_with_one_snapshot(fixture, prompt(3)), 0);
  EXPECT_EQ(serve_with_one_snapshot(fixture, prompt(4)), 256);
  EXPECT_EQ(fixture.tree.to_string(),
            "[0,256)@256\n  [256,257)\n    [257,512)@512\n    [257,512)@512\n");
}

struct ContentCase {
  const char* name;
  int64_t before = 0;  // tokens of the chat template
  int64_t after = 0;
  int64_t stride = 0;  // 0: one snapshot
  std::vector<int64_t> hits;
};

class W6ContentRowsTest : public ::testing::TestWithParam<std::tuple<ContentCase, int32_t>> {};

TEST_P(W6ContentRowsTest, ReuseWhatTheRowsSay) {
  const auto& [example, page_size] = GetParam();
  TreeFixture fixture({.page_size = page_size});
  std::vector<int64_t> hits;
  for (const std::string digits : {"12", "13", "14", "125", "145", "135", "13", "13", "136"}) {
    Tokens prompt = repeated(100, example.before);
    for (const char digit : digits) prompt = joined(prompt, repeated(digit, 256));
    prompt = joined(prompt, repeated(101, example.after));
    hits.push_back(example.stride == 0 ? serve_with_one_snapshot(fixture, prompt)
                                       : serve_with_stride(fixture, prompt, example.stride));
  }
  EXPECT_EQ(hits, example.hits);
}

INSTANTIATE_TEST_SUITE_P(
    Rows, W6ContentRowsTest,
    ::testing::Combine(
        ::testing::Values(
            ContentCase{"Raw", 0, 0, 0, {0, 0, 256, 512, 512, 256, 256, 448, 512}},
            ContentCase{"Chat", 3, 5, 0, {0, 0, 256, 512, 512, 256, 256, 512, 512}},
            ContentCase{"RawStride256", 0, 0, 256, {0, 256, 256, 512, 512, 512, 448, 448, 512}},
            ContentCase{"ChatStride256", 3, 5, 256, {0, 256, 256, 512, 512, 512, 512, 512, 512}},
            ContentCase{"RawStride64", 0, 0, 64, {0, 256, 256, 512, 512, 512, 448, 448, 512}}),
        ::testing::Values(1, 16, 64)),
    [](const auto& row) {
      return std::string(std::get<0>(row.param).name) + "Page" +
             std::to_string(std::get<1>(row.param));
    });

TEST(PrefixTreeExamplesTest, W7EvictionsAndTombstones) {
  TreeFixture fixture({.tree = {.eviction = EvictionPolicy::kLru}});
  PrefixTree& tree = fixture.tree;
  const Tokens b = {1, 2, 3, 4, 5, 6, 7};
  const Tokens d = {1, 2, 3, 4, 5, 60, 70};
  for (const Tokens& key : {Tokens{1, 2, 3}, b, Tokens{10, 11, 12}, d}) fixture.insert(key);
  EXPECT_EQ(tree.to_string(), "[0,3)@3\n  [3,5)\n    [5,7)@7\n    [5,7)@7\n[0,3)@3\n");
  EXPECT_EQ(tree.stats().pages, 12);
  EXPECT_EQ(tree.stats().states, 4);

  // 1. The split refreshed the leaf of B, so that of C is the oldest.
  EXPECT_EQ(tree.evict_pages(1), 3);
  EXPECT_EQ(tree.stats().states, 3);
  EXPECT_EQ(fixture.match({10, 11, 12}).kv_tokens, 0);

  // 2. The oldest state is A's. Its KV stays, joined with the edge below.
  EXPECT_EQ(tree.evict_states(1), 1);
  EXPECT_EQ(tree.stats().pages, 9);
  EXPECT_EQ(tree.to_string(), "[0,5)\n  [5,7)@7\n  [5,7)@7\n");

  // 3. and 4.
  const PrefixMatch fork = fixture.match({1, 2, 3, 4, 5});
  EXPECT_EQ(fork.usable_tokens, 0);
  EXPECT_EQ(fork.kv_tokens, 5);
  for (const Tokens& key : {d, b}) {
    EXPECT_EQ(fixture.match(key).usable_tokens, 7);
    tree.touch(fixture.match(key).resume);
  }

  // 5. The leaf of D goes with its rows; what forked no more is one edge.
  EXPECT_EQ(tree.evict_states(1), 1);
  EXPECT_EQ(tree.stats().pages, 7);
  EXPECT_EQ(tree.to_string(), "[0,7)@7\n");

  // 6. and 7.
  EXPECT_EQ(fixture.match(d).usable_tokens, 0);
  EXPECT_EQ(fixture.match(b).usable_tokens, 7);
  EXPECT_EQ(tree.evict_pages(1), 7);
  EXPECT_EQ(tree.stats().states, 0);
  EXPECT_EQ(tree.to_string(), "");
  tree.check_invariants(true);
}

TEST(PrefixTreeExamplesTest, W8SplitUnderALock) {
  TreeFixture fixture({.page_size = 16});
  const Tokens prompt = fixture.unique(512);
  const PrefixInserted leaf = fixture.insert(prompt);
  PrefixLock lock = fixture.tree.lock(leaf.node, true);
  EXPECT_EQ(fixture.tree.stats().evictable_pages, 0);

  fixture.insert(joined(first(prompt, 256), fixture.unique(64)));
  EXPECT_EQ(fixture.tree.to_string(), "[0,256)\n  [256,512)@512\n  [256,320)@320\n");
  EXPECT_EQ(fixture.tree.depth(lock.node), 512);
  EXPECT_EQ(fixture.tree.stats().evictable_pages, 4);
  fixture.tree.clear();  // both halves are held
  EXPECT_EQ(fixture.tree.stats().pages, 32);
  EXPECT_EQ(fixture.match(prompt).usable_tokens, 512);
  fixture.tree.unlock(lock);
  EXPECT_EQ(fixture.tree.stats().evictable_pages, 32);
  EXPECT_EQ(fixture.tree.stats().evictable_states, 1);
  fixture.tree.check_invariants(true);
}

TEST(PrefixTreeExamplesTest, W9DuplicatePublish) {
  TreeFixture fixture({.page_size = 16});
  const Tokens prompt = fixture.unique(512);
  const PrefixInserted one = fixture.insert(prompt);
  const PrefixInserted other = fixture.insert(prompt);
  EXPECT_TRUE(one.state_taken);
  EXPECT_FALSE(other.state_taken);
  EXPECT_EQ(other.known_tokens, 512);
  EXPECT_EQ(other.node, one.node);
  EXPECT_EQ(fixture.pages.num_used(), 32);
  EXPECT_EQ(fixture.states.num_used(), 1);
}

TEST(PrefixTreeExamplesTest, W11FullLengthRepeat) {
  TreeFixture fixture({});
  const Tokens prompt = fixture.unique(512);
  EXPECT_EQ(serve_with_one_snapshot(fixture, prompt), 0);
  EXPECT_EQ(serve_with_one_snapshot(fixture, prompt), 0);
  EXPECT_EQ(serve_with_one_snapshot(fixture, prompt), 448);
  EXPECT_EQ(fixture.tree.to_string(), "[0,448)@448\n  [448,512)@512\n");
}

TEST(PrefixTreeExamplesTest, W15SystemPromptSharing) {
  TreeFixture fixture({.page_size = 64});
  const Tokens system = fixture.unique(400);
  std::vector<int64_t> hits;
  for (int user = 0; user < 3; ++user) {
    const Tokens prompt = joined(system, fixture.unique(600));
    hits.push_back(serve_with_one_snapshot(fixture, prompt));
    fixture.insert(joined(prompt, fixture.unique(600)), 1536);
  }
  EXPECT_EQ(hits, (std::vector<int64_t>{0, 0, 384}));
  // Edges end anywhere, so the sixteen tokens after the last common page are shared as well.
  EXPECT_EQ(fixture.tree.to_string(),
            "[0,384)@384\n"
            "  [384,400)\n"
            "    [400,960)@960\n"
            "      [960,1536)@1536\n"
            "    [400,1536)@1536\n"
            "    [400,960)@960\n"
            "      [960,1536)@1536\n");
}

TEST(PrefixTreeExamplesTest, W16LongSharingWithChunks) {
  TreeFixture fixture({});
  const Tokens shared = fixture.unique(6000);
  std::vector<int64_t> hits;
  for (int user = 0; user < 3; ++user) {
    hits.push_back(serve_with_one_snapshot(fixture, joined(shared, fixture.unique(4000)), 4096));
  }
  EXPECT_EQ(hits, (std::vector<int64_t>{0, 4096, 5952}));
  EXPECT_EQ(fixture.tree.to_string(),
            "[0,4096)@4096\n"
            "  [4096,5952)@5952\n"
            "    [5952,6000)\n"
            "      [6000,8192)@8192\n"
            "        [8192,9984)@9984\n"
            "      [6000,9984)@9984\n"
            "      [6000,9984)@9984\n");
}

}  // namespace
}  // namespace heddle::cache
