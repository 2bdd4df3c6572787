// SPDX-License-Identifier: Apache-2.0
// The prediction head of heddle-tiny, in the model's folder and taken out of it, and the memory
// that its rows take. tests/integration/draft_pass_test.cpp holds networks to their references.
#include "runner/drafting/draft_pass.h"

#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/export_nextn.h"
#include "runner/load/cache_plan.h"
#include "runner/load/model_runner.h"
#include "speculative/draft_limits.h"
#include "support/hand_plan.h"
#include "support/test_data.h"

namespace heddle::runner {
namespace {

constexpr int32_t kHeadDrafts = 3;

EngineOptions with_head_in(const std::filesystem::path& folder) {
  return {.model_dir = heddle::testing::repository_path("models/heddle-tiny"),
          .exact = true,
          .device = "cpu",
          .num_threads = 2,
          .context_length = 128,
          .max_running_requests = 2,
          .chunked_prefill_tokens = 64,
          .page_size = 16,
          .max_total_tokens = 1024,
          .speculative = {.algorithm = DraftAlgorithm::kMtp,
                          .draft_model_dir = folder,
                          .num_draft_tokens = kHeadDrafts + 1},
          .skip_tokenizer = true};
}

// One step of a sequence alone.
struct HeadStep {
  std::vector<TokenId> drawn;
  std::vector<TokenId> drafts;  // made behind the token drawn last

  friend bool operator==(const HeadStep&, const HeadStep&) = default;
};

// The step of a prompt and two that verify the drafts made before them, greedily.
std::vector<HeadStep> steps_with_head_in(const std::filesystem::path& folder) {
  auto loaded = load_model(with_head_in(folder));
  EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
  if (!loaded.ok()) return {};
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < 20; ++i) tokens.push_back((i * 37 + 11) % 1400);
  std::vector<TokenId> drafts;
  const std::vector<int32_t> pages = {1, 2, 3, 4};
  SamplingParams greedy;
  greedy.temperature = 0;
  int64_t context = 0;
  std::vector<HeadStep> steps;
  for (int i = 0; i < 3; ++i) {
    heddle::testing::HandPlan hand;
    if (i == 0) hand.zero_state_slots = {1};
    hand.sequences = {{.sequence_id = 1,
                       .new_tokens = tokens,
                       .drafts = drafts,
                       .context_tokens = context,
                       .pages = pages,
                       .state_slot = 1,
                       .sample = true,
                       .sampling = &greedy}};
    request::BatchPlan plan = hand.flat();
    plan.computes_draft_slots = true;
    plan.sequences[0].wanted_drafts = kHeadDrafts;
    const auto output = loaded->runner->run(plan);
    EXPECT_TRUE(output.ok()) << output.status().to_string();
    if (!output.ok() || output->tokens.empty()) return {};
    HeadStep& step = steps.emplace_back();
    for (const auto& sampled : output->tokens) step.drawn.push_back(sampled.token);
    for (const auto& draft : output->drafts) step.drafts.push_back(draft.token);
    context += std::ssize(tokens) + std::ssize(step.drawn) - 1;
    tokens.assign(1, step.drawn.back());
    drafts = step.drafts;
  }
  return steps;
}

TEST(DraftPassTest, AnExportedHeadDraftsAsItDoesInItsModel) {
  const checkpoint::testing::TemporaryFolder parent;
  const std::filesystem::path exported = parent.path() / "head";
  const auto report =
      checkpoint::export_nextn(heddle::testing::repository_path("models/heddle-tiny"), exported);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  const auto expected = steps_with_head_in({});
  ASSERT_EQ(expected.size(), 3u);
  for (const HeadStep& step : expected) EXPECT_EQ(std::ssize(step.drafts), kHeadDrafts);
  EXPECT_EQ(steps_with_head_in(exported), expected);
}

// Where the logits of verified rows are not counted, memory runs out at the first step that
// verifies. Here the model and both programs of its network have room for the logits of all rows
// before the pools get the rest.
TEST(DraftPassTest, LogitsOfAllRowsArePlanned) {
  const auto loaded = load_model(with_head_in({}));
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const int64_t rows = speculative::max_draft_rows(loaded->options.speculative);
  EXPECT_EQ(rows, speculative::kMostDraftRows);
  const int64_t row_bytes = bytes_of(DType::kF32, loaded->info.vocab_size);
  EXPECT_GE(loaded->plan.activation_bytes, 3 * rows * row_bytes);
}

}  // namespace
}  // namespace heddle::runner
