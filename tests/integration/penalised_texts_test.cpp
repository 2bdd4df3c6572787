// SPDX-License-Identifier: Apache-2.0
// Penalties of requests that run together, planned ahead and with drafts: each text is the one that
// the CPU's Sampler gives it alone.
#include <array>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <heddle/engine.h>

#include "checkpoint/safetensors.h"
#include "integration/on_device.h"
#include "support/test_data.h"

namespace heddle {
namespace {

using Tokens = std::vector<TokenId>;

constexpr int32_t kTokensOfText = 120;

// Parts of a recorded chat, each with other penalties; the last one has none.
std::vector<Request> requests() {
  const auto file = checkpoint::SafetensorsFile::open(
                        testing::repository_path("tests/golden/heddle_tiny/logits.safetensors"))
                        .value();
  const TensorView ids = file.view("chat0.input_ids").value();
  std::vector<Request> requests(6);
  for (size_t i = 0; i < requests.size(); ++i) {
    Request& request = requests[i];
    request.id = std::to_string(i);
    request.prompt.assign(ids.as<int32_t>(), ids.as<int32_t>() + 16 + 7 * i);
    request.sampling.temperature = 0;
    request.stop.max_new_tokens = kTokensOfText;
    request.stop.ignore_eos = true;
  }
  requests[0].sampling.frequency_penalty = 0.02f;
  requests[1].sampling.presence_penalty = 0.4f;
  requests[2].sampling.repetition_penalty = 1.1f;
  requests[3].sampling.frequency_penalty = -0.05f;
  requests[4].sampling = {.temperature = 0.8f, .presence_penalty = 0.3f, .seed = 5};
  return requests;
}

EngineOptions options_on(const std::string& device) {
  EngineOptions options{.model_dir = testing::repository_path("models/heddle-tiny"),
                        .exact = true,
                        .device = device,
                        .num_threads = 2,
                        .max_total_tokens = 4096,
                        .speculative = {.algorithm = DraftAlgorithm::kNone},
                        .skip_tokenizer = true};
  if (device == "cuda") options.memory_fraction = testing::kShareOfGpu;
  return options;
}

struct Answers {
  std::vector<Tokens> texts;
  int64_t accepted = 0;  // drafts
};

Answers answers_of(const EngineOptions& options) {
  auto engine = Engine::create(options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  if (!engine.ok()) return {};
  std::vector<Request> asked = requests();
  Answers answers;
  answers.texts.resize(asked.size());
  std::vector<std::promise<RequestEvent>> last(asked.size());
  for (size_t i = 0; i < asked.size(); ++i) {
    const auto note = [&answers, &last, i](const RequestEvent& event) {
      Tokens& text = answers.texts[i];
      text.insert(text.end(), event.tokens.begin(), event.tokens.end());
      if (event.finish) last[i].set_value(event);
    };
    const Status status = (*engine)->submit(std::move(asked[i]), note);
    EXPECT_TRUE(status.ok()) << status.to_string();
    if (!status.ok()) last[i].set_value({});
  }
  for (auto& one : last) answers.accepted += one.get_future().get().drafts.accepted_tokens;
  return answers;
}

class PenalisedTexts : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Cpu, PenalisedTexts, ::testing::Values("cpu"));
INSTANTIATE_TEST_SUITE_P(Cuda, PenalisedTexts, ::testing::Values("cuda"));

TEST_P(PenalisedTexts, AreThoseOfTheSamplerAlone) {
  HEDDLE_DEVICE_OR_SKIP(std::string(GetParam()));
  EngineOptions alone = options_on("cpu");
  alone.max_running_requests = 1;
  alone.scheduling.overlap = false;
  const std::vector<Tokens> want = answers_of(alone).texts;
  for (const Tokens& text : want) ASSERT_EQ(std::ssize(text), kTokensOfText);

  EngineOptions options = options_on(GetParam());
  EXPECT_EQ(answers_of(options).texts, want) << "plain";
  options.max_total_tokens = 400;  // some give way and come back
  EXPECT_EQ(answers_of(options).texts, want) << "with little memory";
  options.max_total_tokens = 4096;
  const std::array drafts = {
      SpeculativeOptions{.algorithm = DraftAlgorithm::kMtp, .num_draft_tokens = 4},
      SpeculativeOptions{.algorithm = DraftAlgorithm::kMtp,
                         .num_draft_tokens = 7,
                         .num_steps = 3,
                         .eagle_topk = 2},
      SpeculativeOptions{.algorithm = DraftAlgorithm::kNgram, .num_draft_tokens = 4}};
  for (size_t i = 0; i < drafts.size(); ++i) {
    options.speculative = drafts[i];
    const Answers answers = answers_of(options);
    EXPECT_EQ(answers.texts, want) << "drafts " << i;
    EXPECT_GT(answers.accepted, 20) << "drafts " << i;
  }
}

}  // namespace
}  // namespace heddle
