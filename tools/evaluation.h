// SPDX-License-Identifier: Apache-2.0
// Evaluation: asks a model the questions of a set and counts right answers and agreement with
// recorded token ids.
//
// A set is a .jsonl file; each line has `messages`, and where known `answer` and
// `reference_token_ids`. An output answers with what follows its last "####", or as a whole,
// trimmed. A function asks the questions: of an engine here (ask_engine()), or of a server
// (served_evaluation.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <heddle/engine.h>

#include "server/call/text_codec.h"
#include "tools/cli/options_sampling.h"

namespace heddle::tools {

struct Answer {
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<float> margins;  // between the two best logits, per token, if they were asked for
  Finish finish;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  int64_t cached_tokens = 0;
  double elapsed_seconds = 0;  // seconds from submit to the last token
  DraftReport drafts;

  [[nodiscard]] bool failed() const { return finish.reason == FinishReason::kError; }
};

struct AskOptions {
  int64_t parallel = 128;                                     // requests in flight
  std::function<void(int64_t done, int64_t total)> progress;  // may be empty
};

// Names the requests and waits for all of them; answers stand in the requests' order.
// Error: what the engine says when it refuses one; those in flight are waited for.
Result<std::vector<Answer>> ask(Engine& engine, std::vector<Request> requests,
                                const AskOptions& options);

struct Question {
  std::string messages;  // a chat as JSON; empty: continue `text`
  std::string text;
  std::string stop;  // text that ends the answer; empty: none
  std::optional<std::string> answer;
  std::optional<std::vector<TokenId>> reference;
};

struct EvaluationReport {
  int64_t total = 0;
  int64_t with_answer = 0;
  int64_t correct = 0;
  int64_t with_reference = 0;
  int64_t equal_to_reference = 0;
  int64_t near_ties = 0;  // differ first where the two best logits are closer than 1e-3
  int64_t different = 0;  // differ first elsewhere
  int64_t failed = 0;     // requests that ended in an error
  int64_t output_tokens = 0;
  double seconds = 0;
};

// Error: kNotFound, kDataLoss naming the line.
Result<std::vector<Question>> read_questions(const std::filesystem::path& path);

// The tokens of a question's prompt. Error: the chat template does not take the messages.
Result<std::vector<TokenId>> prompt_of(const Question& question, const server::TextCodec& codec);

// Whether `output` gives the answer.
bool answers(const std::string& output, const std::string& answer);

inline constexpr int64_t kDefaultAnswerTokens = 512;

struct EvaluationOptions {
  SamplingSettings sampling;
  AskOptions ask;
};

// A question as a request. Where the options leave it open, sampling is greedy and the answer has
// kDefaultAnswerTokens at most, whatever the model's own defaults: scores of models compare. Error:
// the prompt does not fit into the context.
Result<Request> evaluation_request(const EvaluationOptions& options, const ModelInfo& model,
                                   std::vector<TokenId> prompt);

// Answers in the order of the questions. Error: none can be asked.
using AskQuestions = std::function<Result<std::vector<Answer>>(
    const std::vector<Question>& questions, const EvaluationOptions& options)>;

// Both outlive the function.
AskQuestions ask_engine(Engine& engine, const server::TextCodec& codec);

// `end_tokens` at the end of an answer are no part of a recorded output.
Result<EvaluationReport> evaluate(const AskQuestions& ask, const std::vector<Question>& questions,
                                  const std::vector<TokenId>& end_tokens,
                                  const EvaluationOptions& options);

}  // namespace heddle::tools
