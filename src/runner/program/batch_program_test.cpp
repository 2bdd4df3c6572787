// SPDX-License-Identifier: Apache-2.0
#include "runner/program/batch_program.h"

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "device/cuda/cuda_device.h"
#include "request/batch_slots.h"
#include "runner/program/forward_pass.h"
#include "runner/step/forward_batch.h"
#include "runner/step/pools.h"
#include "support/dense_model.h"
#include "support/hand_plan.h"
#include "support/test_data.h"

namespace heddle::runner {
namespace {

// Two sequences of two rows each, whose step may be computed any number of times: in this model
// nothing but keys and values is kept, and each step writes the same.
class BatchProgramTest : public ::testing::Test {
 protected:
  static constexpr int64_t kRowsEach = 2, kRows = 4;

  void load() {
    auto device = ComputeDevice::open_cuda(0, /*exact=*/true);
    ASSERT_TRUE(device.ok()) << device.status().to_string();
    auto pass = ForwardPass::create({.model_dir = heddle::testing::dense_model(),
                                     .exact = true,
                                     .max_step_tokens = 16,
                                     .max_logit_rows = 16},
                                    std::move(*device));
    ASSERT_TRUE(pass.ok()) << pass.status().to_string();
    pass_ = std::move(*pass);
    auto pools = Pools::create(pass_->device(), pass_->cache_needs(),
                               {.sizes = {.num_pages = 2, .page_size = 16},
                                .kv_dtype = pass_->kv_dtype(),
                                .kv_scales = pass_->kv_scales()});
    ASSERT_TRUE(pools.ok()) << pools.status().to_string();
    pools_.emplace(std::move(*pools));
    heddle::testing::HandPlan plan;
    for (const int32_t b : {0, 1}) {
      const auto index = static_cast<size_t>(b);
      plan.sequences.push_back({.sequence_id = b,
                                .batch_slot = b,
                                .new_tokens = std::span(tokens_).subspan(index * 2, kRowsEach),
                                .pages = std::span(pages_).subspan(index, 1),
                                .sample = true});
    }
    const request::BatchPlan flat = plan.flat();
    ASSERT_TRUE(slots_.take(flat).ok());
    ASSERT_TRUE(batch_.build(flat, slots_, LogitRows::kAll).ok());
  }

  // The logits of the step in this order of rows, each of V numbers.
  std::vector<std::vector<float>> run(const std::array<int32_t, kRows>& rows) {
    ops::ForwardContext context = batch_.context(*pools_);
    context.logit_rows = rows;
    const Status status = pass_->run(batch_.ids(), batch_.positions(), context);
    EXPECT_TRUE(status.ok()) << status.to_string();
    std::vector<std::vector<float>> logits;
    for (int64_t row = 0; row < kRows; ++row) {
      const float* first = pass_->logits().row<float>(row);
      logits.emplace_back(first, first + pass_->config().vocab_size);
    }
    return logits;
  }

  std::array<TokenId, kRows> tokens_{3, 14, 15, 92};
  std::array<int32_t, 2> pages_{1, 2};
  std::unique_ptr<ForwardPass> pass_;
  std::optional<Pools> pools_;
  request::BatchSlots slots_{2, 1};
  ForwardBatch batch_{
      {.max_tokens = kRows, .max_sequences = 2, .max_pages_per_sequence = 1, .page_size = 16}};
};

// Launches may depend on whether all rows are wanted, so that one graph must not serve for both.
TEST_F(BatchProgramTest, CapturesStepsThatWantAllRowsApartFromThoseInAnotherOrder) {
  if (const auto opened = device::open_cuda_device(0); !opened.ok()) {
    GTEST_SKIP() << opened.status().message();
  }
  ASSERT_NO_FATAL_FAILURE(load());
  const std::array<int32_t, kRows> all{0, 1, 2, 3}, swapped{1, 0, 3, 2};
  const std::vector<std::vector<float>> expected = run(all);
  EXPECT_NE(expected[0], expected[1]);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(run(all), expected) << "round " << round;
    const std::vector<std::vector<float>> logits = run(swapped);
    for (size_t i = 0; i < swapped.size(); ++i) {
      EXPECT_EQ(logits[i], expected[static_cast<size_t>(swapped[i])]) << "round " << round;
    }
  }
  EXPECT_EQ(pass_->num_captured(), 2);
}

}  // namespace
}  // namespace heddle::runner
