// SPDX-License-Identifier: Apache-2.0
#include "runner/load/cache_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/registry.h"
#include "runner/step/pools.h"
#include "speculative/draft_limits.h"
#include "support/test_data.h"

namespace heddle::runner {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PoolPlanTest : public ::testing::Test {
 protected:
  [[nodiscard]] Result<PlannedPools> planned(const EngineOptions& options, int64_t bytes) const {
    return plan_pools(options, config_, models::create_model(config_)->cache_needs(), DType::kBf16,
                      {.available_bytes = bytes});
  }

  [[nodiscard]] int64_t state_bytes() const {
    return cache::bytes_per_slot(state_layouts(models::create_model(config_)->cache_needs()));
  }

  checkpoint::ModelConfig config_ =
      models::load_config(heddle::testing::repository_path("models/heddle-tiny")).value();
};

TEST_F(PoolPlanTest, APageHasItsBytesInAllGroupsThatDoNotSlideApart) {
  models::CacheNeeds mixed;
  mixed.add_kv_layer({.num_heads = 1, .head_dim = 64}, /*window=*/0);
  mixed.add_kv_layer({.num_heads = 2, .head_dim = 128}, /*window=*/0);
  mixed.add_kv_layer({.num_heads = 1, .head_dim = 32}, /*window=*/256);
  mixed.add_kv_layer({.num_heads = 1, .head_dim = 16}, /*window=*/64);
  mixed.add_state_layer({{.shape = {3, 100}}});
  mixed.add_state_layer(
      {{.tensor = ops::StateTensor::kRecurrent, .shape = {2, 8, 8}, .is_rounded = true}});
  EngineOptions options;
  options.cache.state_dtype = StateDtype::kBfloat16;
  options.speculative.algorithm = DraftAlgorithm::kNone;
  const PlannedPools pools =
      plan_pools(options, config_, mixed, DType::kBf16, {.available_bytes = int64_t{1} << 30})
          .value();
  const cache::PoolSizes& sizes = pools.plan.sizes;
  EXPECT_EQ(sizes.page_bytes, 16 * 2 * 2 * (64 + 256));
  ASSERT_EQ(sizes.windows.size(), 2U);
  EXPECT_EQ(sizes.windows[0].window, 64);
  EXPECT_EQ(sizes.windows[0].page_bytes, 16 * 2 * 2 * 16);
  EXPECT_EQ(sizes.windows[1].window, 256);
  EXPECT_EQ(sizes.windows[1].page_bytes, 16 * 2 * 2 * 32);
  EXPECT_EQ(sizes.state_slot_bytes, 4 * (300 + 128));
  EXPECT_EQ(sizes.snapshot_slot_bytes, 4 * 300 + 2 * 128 + 4 * pools.hidden_width);
}

TEST_F(PoolPlanTest, AStaticShareIsOfAllMemoryAndCountsTheWeights) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  const auto with_share = [this](double share) {
    return plan_pools(
        {.static_memory_fraction = share}, config_, models::create_model(config_)->cache_needs(),
        DType::kBf16,
        {.available_bytes = kBytes / 2, .total_bytes = kBytes, .weights_bytes = kBytes / 4});
  };
  const PlannedPools half = with_share(0.5).value();
  EXPECT_LE(half.plan.sizes.shared_bytes, kBytes / 4);
  EXPECT_GT(half.plan.sizes.shared_bytes, kBytes / 4 - (kBytes >> 5));
  EXPECT_THAT(with_share(0.2).status().message(),
              AllOf(HasSubstr("the weights take 256 MiB"), HasSubstr("raise static_memory")));
  EXPECT_THAT(with_share(0.9).status().message(),
              AllOf(HasSubstr("512 MiB are free beside them"), HasSubstr("lower static_memory")));
}

TEST_F(PoolPlanTest, PoolsStayWithinTheirShareOfTheMemory) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  const PlannedPools half = planned({.memory_fraction = 0.5}, kBytes).value();
  EXPECT_LE(half.plan.sizes.shared_bytes, kBytes / 2);
  EXPECT_GT(half.plan.sizes.shared_bytes, kBytes / 2 - (kBytes >> 5));
  EXPECT_EQ(half.hidden_width, config_.hidden_size);
  const PlannedPools quarter = planned({.memory_fraction = 0.25}, kBytes).value();
  EXPECT_LE(quarter.plan.sizes.shared_bytes, kBytes / 4);
}

TEST_F(PoolPlanTest, OnTheCpuASmallModelLeavesMemoryToOthers) {
  constexpr int64_t kGibibyte = int64_t{1} << 30;
  const models::CacheNeeds needs = models::create_model(config_)->cache_needs();
  const auto pool_bytes = [&](const EngineOptions& options, int64_t weights_bytes,
                              device::DeviceKind kind = device::DeviceKind::kCpu) -> double {
    const PlannedPools pools = plan_pools(options, config_, needs, DType::kBf16,
                                          {.available_bytes = 20 * kGibibyte,
                                           .weights_bytes = weights_bytes,
                                           .defaults = defaults_for(kind)})
                                   .value();
    const cache::PoolSizes& sizes = pools.plan.sizes;
    return static_cast<double>(sizes.shared_bytes > 0 ? sizes.shared_bytes
                                                      : sizes.num_pages * sizes.page_bytes);
  };
  constexpr double kGiB = kGibibyte, kSlack = kGiB / 16;
  EXPECT_NEAR(pool_bytes({}, 1 << 20), kGiB, kSlack);
  EXPECT_NEAR(pool_bytes({}, kGibibyte / 2), 4 * kGiB, kSlack);
  EXPECT_NEAR(pool_bytes({}, 4 * kGibibyte), 10 * kGiB, kSlack) << "half of what is free";
  EXPECT_NEAR(pool_bytes({.memory_fraction = 0.5}, 1 << 20), 10 * kGiB, kSlack);
  EXPECT_NEAR(pool_bytes({.max_running_requests = 1}, 1 << 20), kGiB, kSlack);
  EXPECT_GT(pool_bytes({.max_running_requests = 400}, 1 << 20), 2 * kGiB);
  EXPECT_NEAR(pool_bytes({}, 1 << 20, device::DeviceKind::kCuda), 18 * kGiB, kSlack);
  EXPECT_GT(pool_bytes({.max_total_tokens = 2'000'000}, 1 << 20), 2 * kGiB);

  config_.max_position_embeddings = 1'000'000;
  EXPECT_GT(pool_bytes({}, 1 << 20), 2 * kGiB) << "a whole context fits";
}

TEST_F(PoolPlanTest, WithoutACacheNothingIsKeptOrShared) {
  EngineOptions options;
  options.cache.enabled = false;
  const PlannedPools pools = planned(options, int64_t{1} << 30).value();
  EXPECT_EQ(pools.hidden_width, 0);
  EXPECT_EQ(pools.plan.sizes.shared_bytes, 0);
  EXPECT_EQ(pools.plan.sizes.num_snapshot_slots, 0);
}

// States of all that run, of those that guess, and slot 0.
TEST_F(PoolPlanTest, WithoutADrafterForcedTokensHaveRowsWhereTheseCostLittle) {
  const auto rows = [&](int64_t bytes, StateDtype dtype = StateDtype::kFloat32) {
    EngineOptions options{.context_length = 256, .memory_fraction = 1.0};
    options.cache.state_dtype = dtype;
    options.speculative.algorithm = DraftAlgorithm::kNone;
    const PlannedPools pools = planned(options, bytes).value();
    const int64_t states = pools.limits.max_draft_rows * state_bytes();
    EXPECT_LE(states, bytes / 100);
    return pools.limits.max_draft_rows;
  };
  const int64_t slot = state_bytes();
  EXPECT_EQ(rows(100 * 40 * slot), speculative::kMostForcedRows);
  EXPECT_EQ(rows(100 * 5 * slot), 5);
  EXPECT_EQ(rows(100 * slot), 0) << "a row alone is of no use";
  EXPECT_EQ(rows(100 * 40 * slot, StateDtype::kBfloat16), 0) << "drafts need float32";
}

TEST_F(PoolPlanTest, ASmallModelThatDraftsHasItsPart) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  const models::CacheNeeds needs = models::create_model(config_)->cache_needs();
  const auto plan = [&](const SpeculativeOptions& speculative, int32_t max_running) {
    const EngineOptions options{.max_running_requests = max_running, .speculative = speculative};
    return plan_pools(options, config_, needs, DType::kBf16,
                      {.available_bytes = kBytes, .draft_needs = needs});
  };
  const SpeculativeOptions small{.algorithm = DraftAlgorithm::kStandalone, .num_draft_tokens = 4};
  const PlannedPools own = plan(small, 40).value();
  const PlannedPools head =
      plan({.algorithm = DraftAlgorithm::kMtp, .num_draft_tokens = 4}, 40).value();
  EXPECT_EQ(drafter_state_bytes(needs, 40), (1 + 40 + 32) * state_bytes());
  EXPECT_EQ(drafter_state_bytes(needs, 7), (1 + 7 + 7) * state_bytes());
  EXPECT_EQ(drafter_state_bytes({}, 7), 0);
  EXPECT_NEAR(static_cast<double>(head.plan.sizes.shared_bytes - own.plan.sizes.shared_bytes),
              static_cast<double>(drafter_state_bytes(needs, 40)), kBytes >> 5);
  EXPECT_EQ(own.limits.draft_slots(3), 3) << "the token drawn last has one, too";
  EXPECT_EQ(head.limits.draft_slots(3), 2);
  const Status many = plan(small, 4096).status();
  EXPECT_EQ(many.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(many.message(),
              AllOf(HasSubstr("recurrent states of the model that drafts"),
                    HasSubstr("4096 sequences"), HasSubstr("max_running_requests")));
}

TEST_F(PoolPlanTest, RefusesOptionsThatTheModelOrTheMemoryCannotMeet) {
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
