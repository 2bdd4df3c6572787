// SPDX-License-Identifier: Apache-2.0
// Answers held to a form, with drafts and without, and with forced tokens: in exact mode the same
// tokens and the bits of their logprobs, with chains and trees of both drafters.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <heddle/constraint.h>
#include <heddle/engine.h>

#include "integration/on_device.h"
#include "server/call/text_codec.h"
#include "support/finish_count.h"
#include "support/silent_form.h"
#include "support/test_data.h"
#include "tokenizer/tokenizer.h"

namespace heddle {
namespace {

using grammar::GrammarKind;
using grammar::GrammarSource;

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  DraftReport drafts;
  std::optional<Finish> finish;
};

std::vector<GrammarSource> forms() {
  return {{.kind = GrammarKind::kJsonSchema,
           .text = R"({"type": "object", "required": ["name", "count", "kinds"],
                       "properties": {"name": {"type": "string", "maxLength": 12},
                                      "count": {"type": "integer"},
                                      "kinds": {"type": "array", "maxItems": 3,
                                                "items": {"enum": ["red", "blue", "green"]}}}})"},
          {.kind = GrammarKind::kRegex, .text = "(the answer is [0-9]{1,3}, ){2,4}and no other"},
          {.kind = GrammarKind::kEbnf, .text = R"(root ::= ("a" | "b" | "c") root? "!")"},
          {.kind = GrammarKind::kJsonObject, .text = ""},
          {.kind = GrammarKind::kRegex, .text = "[a-z ]*"}};
}

// Answers to all forms at once, each greedy and drawn, and one that is free. Where the forms are
// silent about what they force, every token takes a step.
std::vector<Answer> answers_with(const std::string& device, const SpeculativeOptions& speculative,
                                 bool silent = false) {
  const auto model = testing::repository_path("models/heddle-tiny");
  EngineOptions options{.model_dir = model,
                        .exact = true,
                        .device = device,
                        .num_threads = 2,
                        .max_total_tokens = 8192,
                        .speculative = speculative};
  if (device == "cuda") options.memory_fraction = testing::kShareOfGpu;
  auto engine = Engine::create(options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  if (!engine.ok()) return {};
  const auto codec = server::make_model_codec(model, *(*engine)->tokenizer(), "").value();
  const std::vector<TokenId> prompt =
      codec->encode("Tell me what there is, how many of them, and of which kinds.", false).value();
  std::vector<Request> requests;
  for (const GrammarSource& form : forms()) {
    for (const float temperature : {0.0f, 0.9f}) {
      Request& request = requests.emplace_back();
      request.prompt = prompt;
      request.sampling.temperature = temperature;
      request.sampling.seed = 11;
      if (temperature > 0) {
        request.sampling.frequency_penalty = 0.3f;
        request.sampling.logit_bias = {{prompt.front(), 2.0f}, {prompt.back(), -2.0f}};
      }
      request.constraint = codec->compile(form, (*engine)->model_info().eos_token_ids).value();
      if (silent) request.constraint = std::make_shared<testing::SilentForm>(request.constraint);
    }
  }
  requests.push_back({.prompt = prompt});
  requests.back().sampling.seed = 12;
  testing::FinishCount finished;
  std::vector<Answer> answers(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    Request& request = requests[i];
    request.id = fmt::format("{}", i);
    request.stop.max_new_tokens = 60;
    request.return_logprobs = true;
    const Status status = (*engine)->submit(std::move(request), [&, i](const RequestEvent& event) {
      Answer& answer = answers[i];
      answer.tokens.insert(answer.tokens.end(), event.tokens.begin(), event.tokens.end());
      for (const TokenLogprob& logprob : event.logprobs) {
        answer.logprobs.push_back(logprob.logprob);
      }
      answer.drafts = event.drafts;
      answer.finish = event.finish;
      if (event.finish) finished.add();
    });
    EXPECT_TRUE(status.ok()) << status.to_string();
    if (!status.ok()) return {};
  }
  finished.wait_for(answers.size());
  return answers;
}

class ConstrainedDraftsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ConstrainedDraftsTest, ChangeNoTokenAndNoBitOfAnAnswer) {
  HEDDLE_DEVICE_OR_SKIP(GetParam());
  const std::vector<Answer> plain =
      answers_with(GetParam(), {.algorithm = DraftAlgorithm::kNone}, /*silent=*/true);
  for (const auto& [algorithm, num_tokens, branches] :
       {std::tuple(DraftAlgorithm::kNone, 0, 1), std::tuple(DraftAlgorithm::kMtp, 2, 1),
        std::tuple(DraftAlgorithm::kMtp, 4, 1), std::tuple(DraftAlgorithm::kMtp, 8, 1),
        std::tuple(DraftAlgorithm::kMtp, 8, 2), std::tuple(DraftAlgorithm::kNgram, 5, 1),
        std::tuple(DraftAlgorithm::kNgram, 8, 3)}) {
    SCOPED_TRACE(fmt::format("{}, {} rows, {} ways", to_string(algorithm), num_tokens, branches));
    const std::vector<Answer> drafted = answers_with(
        GetParam(), {.algorithm = algorithm,
                     .num_draft_tokens = num_tokens,
                     .num_steps = algorithm == DraftAlgorithm::kMtp && branches > 1 ? 4 : 0,
                     .eagle_topk = branches});
    ASSERT_EQ(drafted.size(), plain.size());
    int64_t num_accepted = 0;
    int64_t num_rejected = 0;
    int64_t num_forced = 0;
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_EQ(drafted[i].tokens, plain[i].tokens) << "answer " << i;
      EXPECT_EQ(drafted[i].logprobs, plain[i].logprobs) << "answer " << i;
      ASSERT_TRUE(drafted[i].finish && plain[i].finish);
      EXPECT_EQ(drafted[i].finish->reason, plain[i].finish->reason) << "answer " << i;
      if (i + 1 == plain.size()) break;  // the free one
      EXPECT_NE(plain[i].finish->reason, FinishReason::kError);
      num_accepted += drafted[i].drafts.accepted_tokens;
      num_rejected += drafted[i].drafts.rejected_tokens;
      num_forced += drafted[i].drafts.forced_tokens;
      EXPECT_EQ(plain[i].drafts.forced_tokens, 0);
    }
    EXPECT_GT(num_forced, 20);
    if (algorithm == DraftAlgorithm::kNone) {
      EXPECT_EQ(num_accepted + num_rejected, 0);
      continue;
    }
    EXPECT_GT(num_accepted, algorithm == DraftAlgorithm::kMtp ? 20 : 2) << "drafts hold";
    EXPECT_GT(num_rejected, 5) << "and do not";
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, ConstrainedDraftsTest, ::testing::Values("cpu"));
INSTANTIATE_TEST_SUITE_P(Cuda, ConstrainedDraftsTest, ::testing::Values("cuda"));

}  // namespace
}  // namespace heddle
