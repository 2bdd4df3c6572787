// SPDX-License-Identifier: Apache-2.0
#include "models/cache_needs.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::models {
namespace {

using ::testing::ElementsAre;

std::vector<StatePart> state(const Shape& window, const Shape& matrices, bool is_rounded = true) {
  return {{.tensor = ops::StateTensor::kConv, .shape = window},
          {.tensor = ops::StateTensor::kRecurrent, .shape = matrices, .is_rounded = is_rounded}};
}

TEST(CacheNeedsTest, LayersOfOneShapeAndWindowShareAGroup) {
  CacheNeeds needs;
  EXPECT_EQ(needs.add_kv_layer({.num_heads = 2, .head_dim = 64}, 128), 0);
  EXPECT_EQ(needs.add_state_layer(state({3, 24}, {2, 8, 4})), 0);
  EXPECT_EQ(needs.add_kv_layer({.num_heads = 2, .head_dim = 64}, 0), 1);
  EXPECT_EQ(needs.add_kv_layer({.num_heads = 2, .head_dim = 64, .value_dim = 64}, 128), 2);
  EXPECT_EQ(needs.add_state_layer(state({3, 24}, {2, 8, 4})), 1);
  ASSERT_EQ(needs.page_groups.size(), 2U);
  EXPECT_EQ(needs.page_groups[0].num_layers, 2);
  EXPECT_EQ(needs.page_groups[1].num_layers, 1);
  EXPECT_EQ(needs.kv_layers[2].group, 0U);
  EXPECT_EQ(needs.kv_layers[2].index, 1);
  EXPECT_THAT(needs.windows(), ElementsAre(128, 0, 128));
  ASSERT_EQ(needs.state_groups.size(), 1U);
  EXPECT_EQ(needs.state_groups[0].num_layers, 2);
  EXPECT_EQ(needs.state_layers[1].index, 1);
}

TEST(CacheNeedsTest, AKvLayerOfAnotherShapeHasAGroupOfItsOwn) {
  const std::vector<KvShape> others = {{.num_heads = 1, .head_dim = 64},
                                       {.num_heads = 2, .head_dim = 32},
                                       {.num_heads = 2, .head_dim = 64, .value_dim = 32},
                                       {.num_heads = 2, .head_dim = 64, .value_dim = 0}};
  CacheNeeds needs;
  needs.add_kv_layer({.num_heads = 2, .head_dim = 64}, 0);
  for (const KvShape& other : others) needs.add_kv_layer(other, 0);
  EXPECT_EQ(needs.page_groups.size(), others.size() + 1);
  EXPECT_EQ(needs.kv_layers.back().group, others.size());
  EXPECT_EQ(needs.kv_layers.back().index, 0);
}

TEST(CacheNeedsTest, AStateLayerOfOtherPartsHasAGroupOfItsOwn) {
  CacheNeeds needs;
  needs.add_state_layer(state({3, 24}, {2, 8, 4}));
  needs.add_state_layer(state({1, 24}, {2, 8, 4}));
  needs.add_state_layer(state({3, 12}, {2, 8, 4}));
  needs.add_state_layer(state({3, 24}, {2, 4, 8}));
  needs.add_state_layer(state({3, 24}, {2, 8, 4}, /*is_rounded=*/false));
  needs.add_state_layer({{.tensor = ops::StateTensor::kConv, .shape = {3, 24}}});
  EXPECT_EQ(needs.state_groups.size(), 6U);
  EXPECT_EQ(needs.num_state_layers(), 6);
  needs.add_state_layer(state({3, 24}, {2, 4, 8}));
  EXPECT_EQ(needs.state_layers.back().group, 3U);
  EXPECT_EQ(needs.state_groups.size(), 6U);
}

}  // namespace
}  // namespace heddle::models
