// SPDX-License-Identifier: Apache-2.0
#include "cache/prefix_tree.h"

#include <gtest/gtest.h>

#include "cache/prefix_tree_test_bench.h"

namespace heddle::cache {
namespace {

TEST(PrefixTreeTest, ResumesWhereAStateWasKept) {
  TreeBench bench({.page_size = 16});
  const Tokens prompt = bench.unique(100);
  bench.insert(prompt, 64);
  bench.insert(prompt, 90);
  EXPECT_EQ(bench.tree.to_string(), "[0,64)@64\n  [64,90)@90\n");
  const PrefixMatch match = bench.match(prompt);
  EXPECT_EQ(match.usable_tokens, 90);
  EXPECT_EQ(match.kv_tokens, 90);
  EXPECT_EQ(bench.tree.match(prompt, "", 89).usable_tokens, 64);
  bench.tree.check_invariants(true);
  bench.tree.clear();
  EXPECT_EQ(bench.tree.to_string(), "");
  EXPECT_EQ(bench.pages.num_used(), 0);
  EXPECT_EQ(bench.states.num_used(), 0);
}

}  // namespace
}  // namespace heddle::cache
