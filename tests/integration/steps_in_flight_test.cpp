// SPDX-License-Identifier: Apache-2.0
// Steps with prompts that are submitted while the step before runs: texts that end meanwhile, and
// others that start in their batch slots, get the tokens that each gets alone.
#include <algorithm>
#include <deque>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "integration/on_device.h"
#include "runner/load/model_runner.h"
#include "support/hand_plan.h"
#include "support/test_data.h"

namespace heddle::runner {
namespace {

using Tokens = std::vector<TokenId>;
using testing::HandPlan;
using testing::HandSequence;

constexpr int64_t kPromptTokens = 100;
constexpr int64_t kChunkTokens = 64;
constexpr int32_t kPagesEach = 8, kPageSize = 16;

Tokens prompt_of(int64_t seed) {
  Tokens prompt;
  for (int64_t i = 0; i < kPromptTokens; ++i) {
    prompt.push_back(static_cast<TokenId>((i * 7919 + seed * 104729 + 11) % 1400));
  }
  return prompt;
}

// A text in a batch slot, with the state and the pages of that slot.
struct Text {
  int64_t id = 0;
  int32_t slot = 0;
  SamplingParams params{.temperature = 0.8f, .repetition_penalty = 1.2f};
  Tokens prompt = prompt_of(id);
  Tokens ending;
  Tokens drawn;
  std::vector<int32_t> pages = pages_of(slot);

  static std::vector<int32_t> pages_of(int32_t slot) {
    std::vector<int32_t> pages(kPagesEach);
    std::iota(pages.begin(), pages.end(), slot * kPagesEach + 1);
    return pages;
  }

  [[nodiscard]] HandSequence plan(int64_t context, std::span<const TokenId> tokens) const {
    return {.sequence_id = id,
            .batch_slot = slot,
            .new_tokens = tokens,
            .context_tokens = context,
            .pages = pages,
            .state_slot = slot + 1,
            .ending_tokens = ending,
            .sample = true,
            .sampling = &params,
            .seed = 12345};
  }

  [[nodiscard]] HandSequence all_of_prompt() const { return plan(0, prompt); }

  [[nodiscard]] HandSequence first_chunk() const {
    HandSequence chunk = plan(0, std::span(prompt).first(kChunkTokens));
    chunk.sample = false;
    return chunk;
  }

  [[nodiscard]] HandSequence last_chunk() const {
    return plan(kChunkTokens, std::span(prompt).subspan(kChunkTokens));
  }

  // On the token drawn last, which is the `count`-th.
  [[nodiscard]] HandSequence fed(int64_t count) const {
    HandSequence sequence = plan(kPromptTokens + count - 1, {});
    sequence.feeds_drawn_token = true;
    return sequence;
  }
};

class StepsInFlightTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    HEDDLE_DEVICE_OR_SKIP(GetParam());
    EngineOptions options{.model_dir = testing::repository_path("models/heddle-tiny"),
                          .exact = true,
                          .device = GetParam(),
                          .num_threads = 2,
                          .context_length = kPagesEach * kPageSize,
                          .max_running_requests = 4,
                          .chunked_prefill_tokens = 256,
                          .page_size = kPageSize,
                          .speculative = {.algorithm = DraftAlgorithm::kNone}};
    if (GetParam() == "cuda") options.memory_fraction = testing::kShareOfGpu;
    auto loaded = load_model(options);
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    model_.emplace(std::move(*loaded));
  }

  // `started`: those of the sequences that begin.
  void submit(std::vector<HandSequence> sequences, const std::vector<const Text*>& started) {
    HandPlan hand;
    hand.sequences = std::move(sequences);
    for (const Text* text : started) hand.zero_state_slots.push_back(text->slot + 1);
    request::BatchPlan& plan = plans_.emplace_back(hand.flat());
    const auto goes_on = [&started](int32_t slot) {
      return std::ranges::find(started, slot, &Text::slot) == started.end();
    };
    std::erase_if(plan.starts, [&](const auto& start) { return goes_on(start.batch_slot); });
    for (request::SlotStart& start : plan.starts) start.num_prompt_tokens = kPromptTokens;
    std::erase_if(plan.page_updates,
                  [&](const auto& update) { return goes_on(update.batch_slot); });
    ASSERT_TRUE(model_->runner->submit(plan).ok());
  }

  // The oldest step; what it drew goes to those of `texts` that it has.
  void wait(const std::vector<Text*>& texts) {
    Result<request::StepOutput> output = model_->runner->wait();
    ASSERT_TRUE(output.ok()) << output.status().to_string();
    for (const request::SampledToken& sampled : output->tokens) {
      EXPECT_TRUE(sampled.error.ok()) << sampled.error.to_string();
      const auto text = std::ranges::find(texts, sampled.sequence_id, &Text::id);
      if (sampled.skipped || text == texts.end()) continue;
      (*text)->drawn.push_back(sampled.token);
    }
    model_->runner->recycle(std::move(*output));
    plans_.pop_front();
  }

  // The tokens that a text draws with nothing in flight.
  Tokens drawn_alone(Text text, int64_t count) {
    submit({text.all_of_prompt()}, {&text});
    wait({&text});
    for (int64_t i = 1; i < count; ++i) {
      submit({text.fed(i)}, {});
      wait({&text});
    }
    return text.drawn;
  }

  std::optional<LoadedModel> model_;
  std::deque<request::BatchPlan> plans_;
};

TEST_P(StepsInFlightTest, PromptsStartWhereATextEndsMeanwhile) {
  Text ends{.id = 1, .slot = 0}, follows{.id = 2, .slot = 0}, stays{.id = 3, .slot = 1};
  const Tokens of_ends = drawn_alone(ends, 3);
  const Tokens of_follows = drawn_alone(follows, 3);
  const Tokens of_stays = drawn_alone(stays, 5);
  ends.ending = {of_ends[2]};
  ASSERT_EQ(std::ranges::count(of_ends, of_ends[2]), 1);

  const std::vector<Text*> all = {&ends, &follows, &stays};
  submit({ends.all_of_prompt()}, {&ends});
  submit({ends.fed(1), stays.first_chunk()}, {&stays});
  wait(all);
  submit({ends.fed(2), stays.last_chunk()}, {});
  wait(all);
  submit({ends.fed(3), stays.fed(1)}, {});
  wait(all);
  // The host knows that `ends` has ended; its row is in the step that runs.
  submit({stays.fed(2), follows.first_chunk()}, {&follows});
  wait(all);
  submit({follows.last_chunk(), stays.fed(3)}, {});
  wait(all);
  submit({follows.fed(1), stays.fed(4)}, {});
  wait(all);
  submit({follows.fed(2)}, {});
  wait(all);
  wait(all);
  EXPECT_EQ(ends.drawn, of_ends);
  EXPECT_EQ(follows.drawn, of_follows);
  EXPECT_EQ(stays.drawn, of_stays);
}

// A text that is given up draws in the step that runs, when another one takes its batch slot: what
// it drew does not become output of the other one.
TEST_P(StepsInFlightTest, PromptsStartWhereATextIsGivenUp) {
  Text leaves{.id = 1, .slot = 0}, follows{.id = 2, .slot = 0};
  const Tokens of_follows = drawn_alone(follows, 4);
  const std::vector<Text*> all = {&leaves, &follows};
  submit({leaves.all_of_prompt()}, {&leaves});
  submit({leaves.fed(1)}, {});
  wait(all);
  submit({follows.all_of_prompt()}, {&follows});
  wait(all);
  for (int64_t i = 1; i < 4; ++i) {
    submit({follows.fed(i)}, {});
    wait(all);
  }
  wait(all);
  EXPECT_EQ(follows.drawn, of_follows);
}

INSTANTIATE_TEST_SUITE_P(Cpu, StepsInFlightTest, ::testing::Values("cpu"));
INSTANTIATE_TEST_SUITE_P(Cuda, StepsInFlightTest, ::testing::Values("cuda"));

}  // namespace
}  // namespace heddle::runner
