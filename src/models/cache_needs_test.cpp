// SPDX-License-Identifier: Apache-2.0
#include "models/cache_needs.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::models {
namespace {

using ::testing::HasSubstr;

constexpr StateShape kState{
    .conv_channels = 24, .conv_width = 4, .num_value_heads = 2, .value_dim = 8, .key_dim = 4};

TEST(CacheNeedsTest, LayersOfOneShapeAreCountedWhateverTheirWindows) {
  CacheNeeds needs;
  EXPECT_EQ(needs.add_kv_layer({.num_heads = 2, .head_dim = 64}, 128), 0);
  EXPECT_EQ(needs.add_state_layer(kState), 0);
  EXPECT_EQ(needs.add_kv_layer({.num_heads = 2, .head_dim = 64, .value_dim = 64}, 0), 1);
  EXPECT_EQ(needs.add_state_layer(kState), 1);
  EXPECT_TRUE(needs.check_shapes().ok());
  EXPECT_EQ(needs.num_kv_layers, 2);
  EXPECT_EQ(needs.num_state_layers, 2);
  EXPECT_EQ(needs.kv_windows, (std::vector<int64_t>{128, 0}));
  EXPECT_EQ(needs.key_dim, 4);
}

TEST(CacheNeedsTest, AKvLayerOfAnotherShapeIsRefusedWithBothShapes) {
  const std::vector<KvShape> others = {{.num_heads = 1, .head_dim = 64},
                                       {.num_heads = 2, .head_dim = 32},
                                       {.num_heads = 2, .head_dim = 64, .value_dim = 32},
                                       {.num_heads = 2, .head_dim = 64, .value_dim = 0}};
  for (const KvShape& other : others) {
    CacheNeeds needs;
    needs.add_kv_layer({.num_heads = 2, .head_dim = 64}, 0);
    EXPECT_EQ(needs.add_kv_layer(other, 0), 1);
    EXPECT_EQ(needs.head_dim, 64) << "the first layer's shape stays";
    const Status status = needs.check_shapes();
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status.message()), HasSubstr("KV layer 1 has"));
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("layer 0 has 2 KV heads with keys of 64 and values of 64"));
  }
}

TEST(CacheNeedsTest, AStateLayerOfAnotherShapeIsRefusedWithBothShapes) {
  std::vector<StateShape> others(5, kState);
  others[0].conv_channels = 12;
  others[1].conv_width = 2;
  others[2].num_value_heads = 1;
  others[3].value_dim = 4;
  others[4].key_dim = 8;
  for (const StateShape& other : others) {
    CacheNeeds needs;
    needs.add_state_layer(kState);
    needs.add_state_layer(kState);
    EXPECT_EQ(needs.add_state_layer(other), 2);
    const Status status = needs.check_shapes();
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status.message()), HasSubstr("state layer 2 has"));
  }
}

TEST(CacheNeedsTest, TheFirstLayerThatDiffersIsNamed) {
  CacheNeeds needs;
  for (const int64_t head_dim : {64, 32, 16}) {
    needs.add_kv_layer({.num_heads = 2, .head_dim = head_dim}, 0);
  }
  EXPECT_THAT(needs.mixed_shapes, HasSubstr("KV layer 1 has 2 KV heads with keys of 32"));
}

}  // namespace
}  // namespace heddle::models
