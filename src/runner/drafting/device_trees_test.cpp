// SPDX-License-Identifier: Apache-2.0
// Trees that a device grows are those that the host grows from the same logits.
#include "runner/drafting/device_trees.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runner/program/device_ints_fixture.h"

namespace heddle::runner {
namespace {

using speculative::Candidate;
using speculative::TreeGrowth;
using speculative::TreeShape;

constexpr int64_t kNumTokens = 300, kMaxRows = 64;

// A tree as the host grows it.
struct HostTree {
  TreeGrowth growth;
  std::vector<uint64_t> masks;  // of its branches
  int32_t row = 0;
  int32_t num_levels = 0;
};

class DeviceTreesTest : public DeviceIntsTest {
 protected:
  // The candidates behind each of `num_rows` rows, as many as a tree takes of each.
  static std::vector<Candidate> candidates_of(const Tensor& logits, int64_t row, int64_t num_rows,
                                              int32_t topk) {
    std::vector<Candidate> all, of_row;
    for (int64_t r = row; r < row + num_rows; ++r) {
      speculative::most_probable({logits.view().row<float>(r), static_cast<size_t>(kNumTokens)},
                                 topk, of_row);
      of_row.resize(static_cast<size_t>(topk),
                    {.token = 0, .probability = std::numeric_limits<float>::quiet_NaN()});
      all.insert(all.end(), of_row.begin(), of_row.end());
    }
    return all;
  }

  Tensor random_logits(int64_t num_rows) {
    std::normal_distribution<float> normal(0, 2);
    Tensor logits({num_rows, kNumTokens}, DType::kF32);
    for (int64_t r = 0; r < num_rows; ++r) {
      float* const row = logits.view().row<float>(r);
      const bool has_equals = random_() % 4 == 0;
      for (int64_t i = 0; i < kNumTokens; ++i) {
        row[i] = normal(random_);
        if (has_equals) row[i] = std::round(row[i]);
      }
      if (random_() % 12 == 0) row[random_() % kNumTokens] = NAN;  // nothing follows there
    }
    return logits;
  }

  // Trees of so many shapes, twice each.
  void grow_beside_the_host(int num_shapes);

  std::mt19937 random_{7};
};

HEDDLE_ON_EVERY_DEVICE(DeviceTreesTest);

void DeviceTreesTest::grow_beside_the_host(int num_shapes) {
  std::vector<int32_t> names(kNumTokens);
  for (size_t i = 0; i < names.size(); ++i) names[i] = static_cast<int32_t>(1000 + i);
  const device::Buffer token_ids = uploaded(names);
  for (int round = 0; round < num_shapes; ++round) {
    const auto topk = static_cast<int32_t>(2 + random_() % 7);
    const auto num_steps = static_cast<int32_t>(1 + random_() % 5);
    const TreeShape shape{.topk = topk, .num_steps = num_steps, .num_drafts = 20};
    SCOPED_TRACE(fmt::format("round {}: {} levels of {}", round, num_steps, topk));
    DeviceTrees trees =
        DeviceTrees::create(device(), stream(), shape, kMaxRows, kNumTokens).value();
    for (int again = 0; again < 2; ++again) {
      trees.begin();
      std::vector<HostTree> host(1 + random_() % static_cast<uint64_t>(kMaxRows / topk));
      std::vector<size_t> going_on;
      for (size_t i = 0; i < host.size(); ++i) {
        host[i].row = static_cast<int32_t>(i);
        going_on.push_back(i);
      }
      std::vector<ops::DeviceTensor> kept;
      auto num_rows = std::ssize(host);
      for (int32_t level = 0; level < num_steps && !going_on.empty(); ++level) {
        const Tensor logits = random_logits(num_rows);
        std::vector<ops::GrownTree> grown;
        std::vector<size_t> next;
        num_rows = 0;
        for (const size_t i : going_on) {
          HostTree& tree = host[i];
          tree.num_levels = level + 1;
          if (level == 0) {
            tree.growth.begin(candidates_of(logits, tree.row, 1, topk));
            tree.masks.assign(static_cast<size_t>(topk), 0);
          } else {
            tree.growth.add_level(candidates_of(logits, tree.row, topk, topk));
          }
          const bool goes_on = level + 1 < num_steps && random_() % 6 != 0;
          grown.push_back({.tree = static_cast<int32_t>(i), .row = tree.row});
          if (!goes_on) continue;
          grown.back().next_row = static_cast<int32_t>(num_rows);
          num_rows += topk;
          next.push_back(i);
        }
        kept.push_back(upload(logits));
        const Status status = trees.grow(context(), stream(), kept.back().view(), logits.shape()[0],
                                         grown, on_device(token_ids));
        ASSERT_TRUE(status.ok()) << status.to_string();
        const auto ids = downloaded(trees.ids(), static_cast<size_t>(num_rows));
        const auto parents = downloaded(trees.parent_rows(), static_cast<size_t>(num_rows));
        const auto masks = downloaded(trees.masks(), static_cast<size_t>(num_rows));
        for (const ops::GrownTree& one : grown) {
          if (one.next_row < 0) continue;
          HostTree& tree = host[static_cast<size_t>(one.tree)];
          std::vector<uint64_t> own;
          for (const TreeGrowth::Branch& branch : tree.growth.branches()) {
            const auto row = static_cast<size_t>(one.next_row) + own.size();
            const size_t node = static_cast<size_t>(level * topk) + own.size();
            own.push_back(tree.masks[static_cast<size_t>(branch.from)] | uint64_t{1} << node);
            ASSERT_EQ(ids[row], 1000 + branch.token);
            ASSERT_EQ(parents[row], one.row + branch.from);
            ASSERT_EQ(masks[row], own.back());
          }
          tree.masks = std::move(own);
          tree.row = one.next_row;
        }
        going_on = std::move(next);
      }
      std::vector<ops::SelectedTree> wanted;
      for (size_t i = 0; i < host.size(); ++i) {
        wanted.push_back({.tree = static_cast<int32_t>(i),
                          .num_levels = host[i].num_levels,
                          .wanted = static_cast<int32_t>(1 + random_() % 63)});
      }
      ASSERT_TRUE(trees.select(context(), stream(), wanted).ok());
      ASSERT_TRUE(stream().synchronize().ok());
      for (size_t i = 0; i < host.size(); ++i) {
        speculative::Drafts want, got;
        host[i].growth.select(wanted[i].wanted, want);
        for (TokenId& token : want.tokens) token += 1000;
        trees.drafts(i, got);
        ASSERT_EQ(got.tokens, want.tokens) << "tree " << i;
        ASSERT_EQ(got.parents, want.parents) << "tree " << i;
      }
    }
  }
}

TEST_P(DeviceTreesTest, SmallestTreesAreThoseOfTheHost) { grow_beside_the_host(1); }

TEST_P(DeviceTreesTest, TreesOfManyShapesAreThoseOfTheHost) { grow_beside_the_host(30); }

}  // namespace
}  // namespace heddle::runner
