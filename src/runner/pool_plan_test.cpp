// SPDX-License-Identifier: Apache-2.0
#include "runner/pool_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/registry.h"
#include "support/test_data.h"

namespace heddle::runner {
namespace {

using ::testing::HasSubstr;

class PoolPlanTest : public ::testing::Test {
 protected:
  [[nodiscard]] Result<PlannedPools> planned(const EngineOptions& options, int64_t bytes) const {
    return plan_pools(options, config_, models::create_model(config_)->cache_needs(), DType::kBf16,
                      bytes);
  }

  checkpoint::ModelConfig config_ =
      models::load_config(heddle::testing::repository_path("models/heddle-tiny")).value();
};

TEST_F(PoolPlanTest, PoolsStayWithinTheirShareOfTheMemory) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  const PlannedPools half = planned({.memory_fraction = 0.5}, kBytes).value();
  EXPECT_LE(half.plan.sizes.shared_bytes, kBytes / 2);
  EXPECT_GT(half.plan.sizes.shared_bytes, kBytes / 2 - (kBytes >> 5));
  EXPECT_EQ(half.hidden_width, config_.hidden_size);
  const PlannedPools quarter = planned({.memory_fraction = 0.25}, kBytes).value();
  EXPECT_LE(quarter.plan.sizes.shared_bytes, kBytes / 4);
}

TEST_F(PoolPlanTest, WithoutACacheNothingIsKeptOrShared) {
  EngineOptions options;
  options.cache.enabled = false;
  const PlannedPools pools = planned(options, int64_t{1} << 30).value();
  EXPECT_EQ(pools.hidden_width, 0);
  EXPECT_EQ(pools.plan.sizes.shared_bytes, 0);
  EXPECT_EQ(pools.plan.sizes.num_snapshot_slots, 0);
}

TEST_F(PoolPlanTest, WhatCannotBeIsRefusedByName) {
  const Status context =
      planned({.context_length = config_.max_position_embeddings + 1}, int64_t{1} << 30).status();
  EXPECT_EQ(context.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(context.message(), HasSubstr("context_length 8193"));
  const Status memory = planned({}, 4096).status();
  EXPECT_EQ(memory.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(memory.message(), HasSubstr("memory_fraction"));
}

}  // namespace
}  // namespace heddle::runner
