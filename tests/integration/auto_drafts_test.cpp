// SPDX-License-Identifier: Apache-2.0
// The default choice of a drafter: the checkpoint's prediction head, if it has one and nothing
// rules it out.
#include <filesystem>

#include <gtest/gtest.h>

#include <heddle/options.h>

#include "runner/load/cache_plan.h"
#include "runner/load/model_runner.h"
#include "speculative/draft_limits.h"
#include "support/dense_model.h"
#include "support/test_data.h"

namespace heddle {
namespace {

EngineOptions options_of(const std::filesystem::path& model) {
  return {.model_dir = model,
          .device = "cpu",
          .num_threads = 1,
          .max_total_tokens = 4096,
          .skip_tokenizer = true};
}

void expect_no_drafts(const EngineOptions& options) {
  const auto loaded = runner::load_model(options);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded->options.speculative.algorithm, DraftAlgorithm::kNone);
  EXPECT_EQ(loaded->runner->step_limits().max_made_drafts, 0);
  EXPECT_LE(loaded->runner->step_limits().max_draft_rows, speculative::kMostForcedRows)
      << "of forced tokens";
  EXPECT_LE(loaded->plan.draft_state_bytes,
            speculative::kMostForcedRows * loaded->runner->pool_sizes().state_slot_bytes);
}

TEST(AutoDraftsTest, AHeadInTheCheckpointDraftsAndItsMemoryIsPlanned) {
  const auto loaded =
      runner::load_model(options_of(testing::repository_path("models/heddle-tiny")));
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded->options.speculative.algorithm, DraftAlgorithm::kMtp);
  EXPECT_TRUE(loaded->options.speculative.adapts());
  EXPECT_EQ(loaded->runner->step_limits().max_made_drafts, 7);
  EXPECT_GE(loaded->runner->step_limits().max_draft_rows, 8);
  EXPECT_GT(loaded->plan.draft_state_bytes, 0);
}

TEST(AutoDraftsTest, StepsAndTokensFixTheDepth) {
  EngineOptions options = options_of(testing::repository_path("models/heddle-tiny"));
  options.speculative.num_steps = 3;
  options.speculative.num_draft_tokens = 9;  // a chain of three steps has four
  const auto loaded = runner::load_model(options);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded->options.speculative.num_draft_tokens, 4);
  EXPECT_FALSE(loaded->options.speculative.adapts());
  EXPECT_EQ(loaded->runner->step_limits().max_made_drafts, 3);
}

TEST(AutoDraftsTest, WithoutAHeadThereAreNone) {
  expect_no_drafts(options_of(testing::dense_model()));
}

TEST(AutoDraftsTest, UnusableDraftsAreAnErrorOnlyIfAskedFor) {
  EngineOptions options = options_of(testing::repository_path("models/heddle-tiny"));
  options.cache.state_dtype = StateDtype::kBfloat16;
  expect_no_drafts(options);
  options.speculative.algorithm = DraftAlgorithm::kMtp;
  EXPECT_EQ(runner::load_model(options).status().code(), StatusCode::kInvalidArgument);
}

TEST(AutoDraftsTest, RandomWeightsDraftNothing) {
  EngineOptions options = options_of(testing::repository_path("models/heddle-tiny"));
  options.load_format = LoadFormat::kDummy;
  expect_no_drafts(options);
}

}  // namespace
}  // namespace heddle
