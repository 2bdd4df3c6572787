// SPDX-License-Identifier: Apache-2.0
#include "cache/pool_sizing.h"

#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/pool_ids.h"

namespace heddle::cache {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

// Qwen3-Next-80B-A3B: 12 full-attention layers, 36 linear ones.
KvLayout large_kv(DType dtype = DType::kBf16, int32_t page_size = 1) {
  return {
      .num_layers = 12, .page_size = page_size, .num_kv_heads = 2, .head_dim = 256, .dtype = dtype};
}

StateLayout large_state(DType recurrent) {
  return {.num_layers = 36,
          .parts = {{.shape = {3, 8192}, .dtype = DType::kBf16},
                    {.shape = {32, 128, 128}, .dtype = recurrent}}};
}

// The model in the repository: 2 and 6 layers.
PoolBudget tiny_budget(int64_t bytes) {
  return {.bytes = bytes,
          .kv = {{.num_layers = 2, .page_size = 16, .num_kv_heads = 2, .head_dim = 128}},
          .states = {{.num_layers = 6, .parts = {{.shape = {3, 1024}}, {.shape = {4, 128, 128}}}}},
          .context_length = 8192};
}

TEST(SizePoolsTest, ANetworkThatDraftsHasItsPartOfEveryPage) {
  PoolBudget budget = tiny_budget(kGiB);
  const PoolSizes without = size_pools(budget)->sizes;
  budget.kv.push_back({.num_layers = 1, .page_size = 16, .num_kv_heads = 2, .head_dim = 128});
  const PoolSizes with = size_pools(budget)->sizes;
  EXPECT_EQ(with.page_bytes * 2, without.page_bytes * 3);
  EXPECT_LE(with.kv_pool_bytes() + with.state_pool_bytes(), kGiB);
  EXPECT_LT(with.num_pages, without.num_pages);
  budget.kv.back().page_size = 32;
  EXPECT_THAT(size_pools(budget).status().message(),
              HasSubstr("1 layers have pages of 32, the others pages of 16"));
}

TEST(KvLayoutTest, HasTheSizesOfTheLargeModel) {
  EXPECT_EQ(large_kv().bytes_per_token(), 24576);
  EXPECT_EQ(large_kv(DType::kF8E4M3).bytes_per_token(), 12288);
  EXPECT_EQ(large_kv(DType::kBf16, 64).bytes_per_page(), 1536 * 1024);
  const StateLayout fp32 = large_state(DType::kF32);
  EXPECT_EQ(fp32.parts[0].bytes(), 49152);
  EXPECT_EQ(fp32.parts[1].bytes(), 2097152);
  EXPECT_EQ(fp32.bytes_per_slot(), 77266944);
  EXPECT_EQ(large_state(DType::kBf16).bytes_per_slot(), 39518208);
  EXPECT_EQ(fp32.bytes_per_slot() / large_kv().bytes_per_token(), 3144);
  EXPECT_EQ(large_state(DType::kBf16).bytes_per_slot() / large_kv().bytes_per_token(), 1608);
}

// DeepSeek-V3 and Kimi-Linear-48B: one row of 512 + 64 channels per token and layer.
TEST(KvLayoutTest, HasTheSizesOfLatentAttention) {
  KvLayout latent{.num_layers = 61,
                  .page_size = 16,
                  .num_kv_heads = 1,
                  .head_dim = 576,
                  .value_dim = 0,
                  .dtype = DType::kBf16};
  EXPECT_TRUE(latent.validate().ok());
  EXPECT_EQ(latent.bytes_per_token(), 70272);
  EXPECT_EQ(latent.least_bytes_together(), 16 * 576 * 2);
  latent.num_layers = 7;
  EXPECT_EQ(latent.bytes_per_token(), 8064);
  latent.value_dim = 128;
  EXPECT_EQ(latent.bytes_per_token(), 7 * (576 + 128) * 2);
  EXPECT_EQ(latent.least_bytes_together(), 16 * 128 * 2);
  latent.value_dim = -1;
  EXPECT_THAT(latent.validate().message(), HasSubstr("value_dim is -1"));
}

TEST(KvLayoutTest, StoresInt8MatricesWithAScaleForEachRow) {
  StateLayout layout{.num_layers = 2,
                     .parts = {{.shape = {3, 5}}, {.shape = {3, 5, 7}, .dtype = DType::kI8}}};
  EXPECT_EQ(layout.parts[1].scales_offset(), 108) << "105 numbers, then the next float";
  EXPECT_EQ(layout.parts[1].bytes(), 108 + 3 * 5 * 4);
  EXPECT_EQ(layout.bytes_per_slot(), 2 * (60 + 168)) << "the window stays fp32";
  layout.parts[1].dtype = DType::kBf16;
  EXPECT_EQ(layout.parts[1].bytes(), 212);
}

TEST(KvLayoutTest, KnowsTheFormatsOfSnapshots) {
  EXPECT_EQ(snapshot_dtype(StateDtype::kFloat32), DType::kF32);
  EXPECT_EQ(snapshot_dtype(StateDtype::kBfloat16), DType::kBf16);
  EXPECT_EQ(snapshot_dtype(StateDtype::kInt8), DType::kI8);
}

TEST(KvLayoutTest, RefusesSizesThatNoModelHas) {
  EXPECT_THAT(KvLayout({.num_layers = -1}).validate().message(), HasSubstr("num_layers is -1"));
  EXPECT_THAT(KvLayout({.page_size = 24}).validate().message(),
              HasSubstr("page_size is 24; it must be a power of two from 1 to 128"));
  EXPECT_THAT(KvLayout({.num_layers = 1, .num_kv_heads = int64_t{1} << 40, .head_dim = 1})
                  .validate()
                  .message(),
              HasSubstr("num_kv_heads"));
  EXPECT_THAT(StateLayout({.num_layers = 1}).validate().message(),
              HasSubstr("number of parts is 0"));
  for (const Shape& shape : {Shape(), Shape{4, 0}, Shape{3, -1}, Shape{1, 1, 1, 1, 1},
                             Shape{int64_t{1} << 40, int64_t{1} << 40}}) {
    const StateLayout layout{.num_layers = 1, .parts = {{.shape = {2, 2}}, {.shape = shape}}};
    EXPECT_THAT(layout.validate().message(), HasSubstr("part 1 has the shape"))
        << shape.to_string();
  }
  EXPECT_TRUE(StateLayout{}.validate().ok());
}

TEST(KvLayoutTest, AddsUpGroupsThatHaveOneId) {
  const std::vector<KvLayout> pages = {
      {.num_layers = 2, .page_size = 4, .num_kv_heads = 2, .head_dim = 8},
      {.num_layers = 0, .page_size = 4, .num_kv_heads = 1, .head_dim = 1},
      {.num_layers = 1, .page_size = 4, .num_kv_heads = 1, .head_dim = 24, .value_dim = 12}};
  EXPECT_EQ(num_layers(pages), 3);
  EXPECT_EQ(bytes_per_page(pages), 4 * 4 * (2 * 2 * 16 + 24 + 12));
  EXPECT_EQ(least_bytes_together(pages), 4 * 4 * 12) << "a group without layers has no pieces";
  const std::vector<StateLayout> states = {{.num_layers = 2, .parts = {{.shape = {3, 5}}}},
                                           {.num_layers = 1, .parts = {{.shape = {7}}}}};
  EXPECT_EQ(num_layers(states), 3);
  EXPECT_EQ(bytes_per_slot(states), 4 * (2 * 15 + 7));
}

TEST(SplitByShareTest, GivesTheTabulatedSizes) {
  struct Row {
    int64_t gibibytes;
    DType recurrent;
    double share;
    int64_t states;
    int64_t kv_tokens;
    int64_t requests_of_three_slots;
    int64_t requests_of_five_slots;
  };

  for (const Row& row : {Row{40, DType::kF32, 0.9, 263, 920754, 87, 52},
                         Row{40, DType::kBf16, 0.9, 514, 921114, 171, 102},
                         Row{40, DType::kF32, 0.3, 128, 1345194, 42, 25},
                         Row{60, DType::kF32, 0.9, 394, 1382704, 131, 78}}) {
    SCOPED_TRACE(fmt::format("M = {} GiB, share = {}", row.gibibytes, row.share));
    const PoolSplit split =
        split_by_share(row.gibibytes * kGiB, large_state(row.recurrent).bytes_per_slot(),
                       large_kv().bytes_per_token(), 1, row.share);
    EXPECT_EQ(split.num_states, row.states);
    EXPECT_EQ(split.kv_tokens, row.kv_tokens);
    EXPECT_EQ(split.num_states / 3, row.requests_of_three_slots);
    EXPECT_EQ(split.num_states / 5, row.requests_of_five_slots);
  }
}

TEST(SizePoolsTest, FitsTheSmallModelIntoAnything) {
  const Result<PoolPlan> plan = size_pools(tiny_budget(8 * kGiB));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->sizes.max_sequences, 64);
  EXPECT_EQ(plan->sizes.num_state_slots, 64);
  EXPECT_EQ(plan->sizes.num_pages, 64 * 8192 / 16);  // rule 5
  EXPECT_EQ(plan->context_length, 8192);
  EXPECT_EQ(plan->sizes.kv_pool_bytes(), (64 * 512 + 1) * int64_t{64 * 1024});
}

TEST(SizePoolsTest, ServesFewerRowsAndAShorterContextInLittleMemory) {
  const Result<PoolPlan> plan = size_pools(tiny_budget(8 * kMiB));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_GE(plan->sizes.max_sequences, 1);
  EXPECT_LT(plan->sizes.max_sequences, 8);
  EXPECT_LT(plan->context_length, 8192);
  EXPECT_LE(plan->sizes.kv_pool_bytes() + plan->sizes.state_pool_bytes(), 8 * kMiB);
}

TEST(SizePoolsTest, NamesTheNeedOfOneRequestWhenNothingFits) {
  const Result<PoolPlan> plan = size_pools(tiny_budget(2 * kMiB));
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(plan.status().message(),
              HasSubstr("2.0 MiB are left beside the weights; raise memory_fraction"));
  EXPECT_EQ(size_pools(tiny_budget(-5)).status().code(), StatusCode::kResourceExhausted);
}

TEST(SizePoolsTest, ServesFixedTokensBeforeStatesAndFixedRowsBeforeKv) {
  PoolBudget budget = tiny_budget(64 * kMiB);
  budget.max_total_tokens = 8000;  // 500 pages, 31.25 MiB
  Result<PoolPlan> plan = size_pools(budget);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->sizes.num_pages, 500);
  EXPECT_EQ(plan->context_length, 8000);
  EXPECT_LE(plan->sizes.num_state_slots,
            (64 * kMiB - plan->sizes.kv_pool_bytes()) / bytes_per_slot(budget.states));

  budget.max_total_tokens = 0;
  budget.max_running_requests = 30;
  plan = size_pools(budget);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->sizes.num_state_slots, 30);
  EXPECT_EQ(plan->sizes.max_sequences, 30);
}

TEST(SizePoolsTest, RefusesFixedTokensThatDoNotFit) {
  PoolBudget budget = tiny_budget(64 * kMiB);
  budget.max_total_tokens = 100000;
  EXPECT_THAT(size_pools(budget).status().message(),
              HasSubstr("max_total_tokens = 100000 needs 390.6 MiB of KV"));
  budget.max_total_tokens = INT64_MAX;
  EXPECT_EQ(size_pools(budget).status().code(), StatusCode::kResourceExhausted);
  budget.max_total_tokens = -1;
  EXPECT_EQ(size_pools(budget).status().code(), StatusCode::kInvalidArgument);
}

TEST(SizePoolsTest, KnowsModelsWithoutStateAndModelsWithoutKv) {
  PoolBudget attention = tiny_budget(kGiB);
  attention.states.clear();
  Result<PoolPlan> plan = size_pools(attention);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->sizes.num_state_slots, 0);
  EXPECT_EQ(plan->sizes.state_pool_bytes(), 0);
  EXPECT_EQ(plan->sizes.max_sequences, 64);

  PoolBudget recurrent = tiny_budget(kGiB);
  recurrent.kv.clear();
  plan = size_pools(recurrent);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->sizes.kv_pool_bytes(), 0);
  EXPECT_EQ(plan->sizes.num_state_slots, 64);
  EXPECT_EQ(plan->context_length, 8192);
  EXPECT_EQ(plan->sizes.num_pages, 64 * 512);
}

TEST(SizePoolsTest, SharesNothingWhereMemoryDoesNotGoBack) {
  PoolBudget budget = tiny_budget(kGiB);
  budget.elastic = true;
  budget.release_granule_bytes = 0;
  budget.default_max_running = 256;
  const Result<PoolPlan> plan = size_pools(budget);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(plan->sizes.shared_bytes, 0);
  EXPECT_GT(plan->sizes.num_state_slots, 0);
  EXPECT_GT(plan->sizes.num_pages, 0);
  EXPECT_EQ(plan->sizes.max_sequences, 256);
  EXPECT_LE(plan->sizes.kv_pool_bytes() + plan->sizes.state_pool_bytes(), kGiB);
}

TEST(SizePoolsTest, GivesBothPoolsIdsForNearlyAllOfAnElasticBudget) {
  PoolBudget budget = tiny_budget(64 * kMiB);
  budget.elastic = true;
  budget.slot_extra_bytes = 1024;
  const int64_t slot_bytes = bytes_per_slot(budget.states) + 1024;
  const int64_t page_bytes = bytes_per_page(budget.kv);
  const Result<PoolPlan> plan = size_pools(budget);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(plan->sizes.shared_bytes, 64 * kMiB - page_bytes - slot_bytes);
  EXPECT_EQ(plan->sizes.num_pages, (plan->sizes.shared_bytes - slot_bytes) / page_bytes);
  EXPECT_EQ(plan->sizes.num_state_slots, (plan->sizes.shared_bytes - page_bytes) / slot_bytes);
  EXPECT_EQ(plan->sizes.max_sequences, plan->sizes.shared_bytes / (slot_bytes + page_bytes));
  EXPECT_EQ(plan->context_length, 8192);
  EXPECT_EQ(plan->sizes.kv_pool_bytes(), (plan->sizes.num_pages + 1) * page_bytes);

  budget.bytes = 8 * kGiB;
  const Result<PoolPlan> roomy = size_pools(budget);
  ASSERT_TRUE(roomy.ok());
  EXPECT_EQ(roomy->sizes.max_sequences, kDefaultMaxRunning);
  EXPECT_GT(roomy->sizes.num_pages, 64 * 8192 / 16)
      << "more than running requests need: rule 5 is off";
}

PoolBudget snapshot_budget(int64_t bytes, DType dtype) {
  PoolBudget budget = tiny_budget(bytes);
  budget.elastic = true;
  budget.slot_extra_bytes = 1024;
  budget.snapshots = budget.states;
  budget.snapshots[0].parts[1].dtype = dtype;
  return budget;
}

TEST(SizePoolsTest, GivesSnapshotsOfAnotherFormatSlotsOfTheirOwn) {
  for (const DType dtype : {DType::kBf16, DType::kI8}) {
    const PoolBudget budget = snapshot_budget(64 * kMiB, dtype);
    const int64_t s = bytes_per_slot(budget.states);
    const int64_t f = bytes_per_slot(budget.snapshots) + 1024;
    const int64_t k = bytes_per_page(budget.kv);
    const Result<PoolPlan> plan = size_pools(budget);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    EXPECT_EQ(plan->sizes.shared_bytes, 64 * kMiB - s - f - k);
    EXPECT_EQ(plan->sizes.max_sequences, plan->sizes.shared_bytes / (s + k));
    EXPECT_EQ(plan->sizes.num_state_slots, plan->sizes.max_sequences)
        << "for running requests only";
    EXPECT_EQ(plan->sizes.num_snapshot_slots, (plan->sizes.shared_bytes - s - k) / f);
    EXPECT_EQ(plan->sizes.num_pages, (plan->sizes.shared_bytes - s) / k);
    EXPECT_EQ(plan->sizes.state_pool_bytes(), (plan->sizes.num_state_slots + 1) * s);
    EXPECT_EQ(plan->sizes.snapshot_pool_bytes(), (plan->sizes.num_snapshot_slots + 1) * f);

    PoolBudget same = budget;  // fp32, in the slots of running requests
    same.snapshots.clear();
    const double factor = static_cast<double>(plan->sizes.num_snapshot_slots) /
                          static_cast<double>(size_pools(same)->sizes.num_state_slots);
    EXPECT_GT(factor, dtype == DType::kBf16 ? 1.8 : 3.2);
  }
}

TEST(SizePoolsTest, LeavesSnapshotsRoomWhereNothingIsShared) {
  PoolBudget budget = snapshot_budget(64 * kMiB, DType::kBf16);
  budget.max_total_tokens = 4000;
  Result<PoolPlan> plan = size_pools(budget);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(plan->sizes.shared_bytes, 0);
  EXPECT_EQ(plan->sizes.num_pages, 250);
  const int64_t f = bytes_per_slot(budget.snapshots) + 1024;
  const int64_t states = plan->sizes.state_pool_bytes() + plan->sizes.snapshot_pool_bytes();
  EXPECT_LE(plan->sizes.state_pool_bytes(), states / 2 + bytes_per_slot(budget.states));
  EXPECT_LE(plan->sizes.kv_pool_bytes() + states, 64 * kMiB);
  EXPECT_GT(plan->sizes.kv_pool_bytes() + states + f, 64 * kMiB) << "snapshots take the rest";

  budget.max_running_requests = 1000;
  plan = size_pools(budget);
  ASSERT_TRUE(plan.ok());
  EXPECT_GE(plan->sizes.num_snapshot_slots, 1);
  EXPECT_LT(plan->sizes.num_snapshot_slots * f, bytes_per_slot(budget.states) + f)
      << "requests come first";
  EXPECT_GT(plan->sizes.max_sequences, 20);

  budget = snapshot_budget(kGiB, DType::kBf16);
  budget.page_size = budget.kv[0].page_size = 1;  // 1 KiB a layer
  plan = size_pools(budget);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->sizes.shared_bytes, 0);
  EXPECT_EQ(plan->sizes.max_sequences, kDefaultMaxRunning);
  EXPECT_GT(plan->sizes.num_snapshot_slots, 400);

  PoolBudget recurrent = snapshot_budget(kGiB, DType::kI8);
  recurrent.kv.clear();
  plan = size_pools(recurrent);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->sizes.num_state_slots, kDefaultMaxRunning);
  EXPECT_EQ(plan->sizes.num_pages,
            (plan->sizes.num_state_slots + plan->sizes.num_snapshot_slots) * 512);
}

TEST(SizePoolsTest, RefusesSnapshotsThatBelongToNothing) {
  PoolBudget budget = snapshot_budget(kGiB, DType::kBf16);
  budget.elastic = false;
  EXPECT_THAT(size_pools(budget).status().message(), HasSubstr("kept by a cache"));
  budget = snapshot_budget(kGiB, DType::kBf16);
  budget.snapshots[0].num_layers = 3;
  EXPECT_THAT(size_pools(budget).status().message(), HasSubstr("of 3 layers beside states of 6"));
}

TEST(SizePoolsTest, SharesNothingWhereTheBorderIsFixedOrMemoryCannotGoBack) {
  PoolBudget budget = tiny_budget(64 * kMiB);
  budget.elastic = true;
  budget.max_total_tokens = 8000;
  Result<PoolPlan> plan = size_pools(budget);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->sizes.shared_bytes, 0);
  EXPECT_EQ(plan->sizes.num_pages, 500);
  EXPECT_LE(plan->sizes.kv_pool_bytes() + plan->sizes.state_pool_bytes(), 64 * kMiB);
  EXPECT_GT(
      plan->sizes.kv_pool_bytes() + plan->sizes.state_pool_bytes() + bytes_per_slot(budget.states),
      64 * kMiB)
      << "states take the rest";

  budget.max_total_tokens = 0;
  budget.page_size = budget.kv[0].page_size = 1;  // 1 KiB a layer
  budget.bytes = kGiB;
  plan = size_pools(budget);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->sizes.shared_bytes, 0);
  EXPECT_LE(plan->sizes.kv_pool_bytes() + plan->sizes.state_pool_bytes(), kGiB);
  EXPECT_GT(plan->sizes.num_state_slots, kDefaultMaxRunning)
      << "the share of states, for cached ones too";

  PoolBudget attention = tiny_budget(kGiB);
  attention.elastic = true;
  attention.states.clear();
  plan = size_pools(attention);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->sizes.shared_bytes, 0);
  EXPECT_EQ(plan->sizes.num_pages, kGiB / bytes_per_page(attention.kv) - 1);

  PoolBudget recurrent = tiny_budget(kGiB);
  recurrent.elastic = true;
  recurrent.kv.clear();
  plan = size_pools(recurrent);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->sizes.shared_bytes, 0);
  EXPECT_EQ(plan->sizes.kv_pool_bytes(), 0);
  EXPECT_EQ(plan->sizes.num_state_slots, kGiB / bytes_per_slot(recurrent.states) - 1);
  EXPECT_EQ(plan->sizes.num_pages, plan->sizes.num_state_slots * 512);
}

TEST(SizePoolsTest, NeverPromisesMoreThanTheBudget) {
  std::mt19937_64 random(3);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  for (int round = 0; round < 20000; ++round) {
    PoolBudget budget = tiny_budget(below(int64_t{1} << (10 + below(30))));
    budget.page_size = budget.kv[0].page_size = 1 << below(8);
    budget.kv[0].num_layers = below(5);
    budget.states[0].num_layers = below(5);
    if (below(2) == 0) {
      budget.kv.push_back({.num_layers = below(3),
                           .page_size = budget.page_size,
                           .num_kv_heads = 1 + below(3),
                           .head_dim = 1 + below(300)});
      budget.states.push_back(
          {.num_layers = below(3), .parts = {{.shape = {1 + below(4), 1 + below(3000)}}}});
    }
    budget.max_running_requests = static_cast<int32_t>(below(3) == 0 ? below(200) : 0);
    budget.max_total_tokens = below(3) == 0 ? below(100000) : 0;
    budget.slots_per_request = static_cast<int32_t>(1 + below(5));
    budget.state_share = static_cast<double>(below(300)) / 100;
    budget.elastic = below(3) > 0;
    budget.slot_extra_bytes = below(5000);
    const bool apart = budget.elastic && num_layers(budget.states) > 0 && below(2) == 0;
    if (apart) {
      budget.snapshots = budget.states;
      budget.snapshots[0].parts[1].dtype = below(2) == 0 ? DType::kBf16 : DType::kI8;
    }
    const Result<PoolPlan> plan = size_pools(budget);
    if (!plan.ok()) continue;
    SCOPED_TRACE(fmt::format("round {}", round));
    const int64_t snapshot_bytes =
        apart ? bytes_per_slot(budget.snapshots) + budget.slot_extra_bytes : 0;
    const int64_t slot_bytes =
        bytes_per_slot(budget.states) + (apart ? 0 : budget.slot_extra_bytes);
    const int64_t page_bytes = bytes_per_page(budget.kv);
    if (plan->sizes.shared_bytes == 0) {
      ASSERT_LE(plan->sizes.kv_pool_bytes() + plan->sizes.state_pool_bytes() +
                    plan->sizes.snapshot_pool_bytes(),
                budget.bytes);
    } else {
      ASSERT_TRUE(budget.elastic);
      ASSERT_EQ(plan->sizes.shared_bytes + slot_bytes + snapshot_bytes + page_bytes, budget.bytes);
      ASSERT_LE(std::max({plan->sizes.kv_pool_bytes(), plan->sizes.state_pool_bytes(),
                          plan->sizes.snapshot_pool_bytes()}),
                budget.bytes);
      ASSERT_LE(plan->sizes.max_sequences * (budget.slots_per_request * slot_bytes + page_bytes),
                plan->sizes.shared_bytes);
      ASSERT_LE(plan->sizes.num_pages * page_bytes + budget.slots_per_request * slot_bytes,
                plan->sizes.shared_bytes);
    }
    ASSERT_GE(plan->sizes.max_sequences, 1);
    ASSERT_GE(plan->sizes.num_pages, plan->sizes.max_sequences);
    ASSERT_GE(plan->context_length, 1);
    if (num_layers(budget.states) > 0) {
      ASSERT_GE(plan->sizes.num_state_slots,
                int64_t{plan->sizes.max_sequences} * budget.slots_per_request);
    }
    ASSERT_EQ(plan->sizes.num_snapshot_slots > 0, apart);
    if (budget.max_running_requests > 0) {
      ASSERT_LE(plan->sizes.max_sequences, budget.max_running_requests);
    }
  }
}

// gpt-oss-120b: 18 layers with a window of 128 tokens and 18 that see everything.
PoolBudget gpt_oss_budget(int64_t bytes) {
  const KvLayout half{
      .num_layers = 18, .page_size = 16, .num_kv_heads = 8, .head_dim = 64, .dtype = DType::kBf16};
  return {.bytes = bytes,
          .kv = {half},
          .sliding = {{.window = 128, .kv = {half}}},
          .chunk_tokens = 512,
          .context_length = 131072,
          .elastic = true};
}

TEST(WindowPoolTest, SlidingLayersGetWhatAWindowIsOfATypicalSequence) {
  const PoolBudget budget = gpt_oss_budget(16 * kGiB);
  const Result<PoolPlan> plan = size_pools(budget);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const PoolSizes& sizes = plan->sizes;
  EXPECT_EQ(sizes.page_bytes, sizes.windows[0].page_bytes);
  EXPECT_EQ(sizes.windows[0].window, 128);
  EXPECT_EQ(sizes.windows[0].per_sequence(16), 12) << "8 pages of the window and what steps add";
  // 12 of 12 + 128 pages, those of 2,048 tokens.
  EXPECT_NEAR(static_cast<double>(sizes.windows[0].num_pages) / 12,
              static_cast<double>(sizes.num_pages) / 128, 5);
  EXPECT_LE(sizes.kv_pool_bytes() + sizes.window_pool_bytes(), 16 * kGiB);
  EXPECT_GT(sizes.kv_pool_bytes() + sizes.window_pool_bytes(),
            16 * kGiB - 2 * sizes.page_bytes - 2 * sizes.windows[0].page_bytes);
  EXPECT_EQ(sizes.max_sequences, 64);

  PoolBudget one_group = budget;  // as if nothing slid
  one_group.kv[0].num_layers = 36;
  one_group.sliding.clear();
  const PoolPlan before = size_pools(one_group).value();
  EXPECT_GT(static_cast<double>(sizes.kv_tokens()),
            1.8 * static_cast<double>(before.sizes.kv_tokens()));
}

TEST(WindowPoolTest, EveryRowCanAdvanceAndFewerRunWhereThereIsLittle) {
  for (const int64_t mebibytes : {16, 40, 100, 400, 3000}) {
    for (const bool elastic : {false, true}) {
      for (const int32_t requests : {0, 1, 64, 300}) {
        SCOPED_TRACE(fmt::format("{} MiB, elastic {}, {} requests", mebibytes, elastic, requests));
        PoolBudget budget = gpt_oss_budget(mebibytes * kMiB);
        budget.elastic = elastic;
        budget.max_running_requests = requests;
        const Result<PoolPlan> plan = size_pools(budget);
        ASSERT_TRUE(plan.ok()) << plan.status().to_string();
        const PoolSizes& sizes = plan->sizes;
        EXPECT_GE(sizes.max_sequences, 1);
        EXPECT_LE(sizes.max_sequences * sizes.windows[0].per_sequence(16),
                  sizes.windows[0].num_pages);
        EXPECT_GE(sizes.num_pages, 1);
        EXPECT_LE(sizes.kv_pool_bytes() + sizes.window_pool_bytes(), mebibytes * kMiB);
      }
    }
  }
  EXPECT_THAT(size_pools(gpt_oss_budget(4 * kMiB)).status().message(),
              HasSubstr("one request needs"));
}

TEST(WindowPoolTest, AFixedNumberOfTokensIsThatOfTheOtherLayers) {
  PoolBudget budget = gpt_oss_budget(kGiB);
  budget.max_total_tokens = 2048;
  const PoolPlan plan = size_pools(budget).value();
  EXPECT_EQ(plan.sizes.kv_tokens(), 2048);
  EXPECT_EQ(plan.sizes.windows[0].num_pages, 64 * 12 + 64) << "all requests and two chunks";
}

// Each width of window has a page table; together they stay within half of the memory.
TEST(WindowPoolTest, SeveralWidthsHaveATableEach) {
  const PoolBudget one = gpt_oss_budget(kGiB);
  for (const int64_t mebibytes : {150, 400, 3000}) {
    for (const std::vector<int64_t>& widths :
         {std::vector<int64_t>{64, 128}, {128, 1024}, {32, 128, 4096}}) {
      PoolBudget budget = gpt_oss_budget(mebibytes * kMiB);
      budget.sliding.clear();
      for (const int64_t width : widths) {
        budget.sliding.push_back({.window = width, .kv = one.sliding[0].kv});
        budget.sliding.back().kv[0].num_layers = 18 / std::ssize(widths);
      }
      const Result<PoolPlan> plan = size_pools(budget);
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      const PoolSizes& sizes = plan->sizes;
      ASSERT_EQ(sizes.windows.size(), widths.size());
      for (size_t i = 0; i < widths.size(); ++i) {
        const PageWindow& window = sizes.windows[i];
        EXPECT_EQ(window.window, widths[i]);
        EXPECT_EQ(sizes.table_for(widths[i]), i + 1);
        EXPECT_EQ(sizes.table_for(widths[i] - 1), i + 1);
        EXPECT_LE(sizes.max_sequences * window.per_sequence(16), window.num_pages);
      }
      EXPECT_EQ(sizes.table_for(widths.back() + 1), 0U);
      EXPECT_EQ(sizes.table_for(0), 0U);
      EXPECT_GE(sizes.max_sequences, 1);
      EXPECT_LE(sizes.kv_pool_bytes() + sizes.window_pool_bytes(), mebibytes * kMiB);
    }
  }
}

TEST(WindowPoolTest, NamesLayersThatDoNotGoTogether) {
  PoolBudget budget = gpt_oss_budget(kGiB);
  budget.sliding[0].window = 0;
  EXPECT_THAT(size_pools(budget).status().message(), HasSubstr("18 layers with a window of 0"));
  budget.sliding[0].window = 128;
  budget.sliding.push_back(budget.sliding[0]);
  EXPECT_THAT(size_pools(budget).status().message(),
              HasSubstr("a window of 128 tokens after one of 128"));
  budget.sliding.resize(ops::kMaxPageTables, budget.sliding[0]);
  EXPECT_THAT(size_pools(budget).status().message(), HasSubstr("4 widths of window; at most 3"));
  budget = gpt_oss_budget(kGiB);
  budget.sliding[0].kv[0].page_size = 32;
  EXPECT_THAT(size_pools(budget).status().message(), HasSubstr("18 layers have pages of 32"));
}

}  // namespace
}  // namespace heddle::cache
