// SPDX-License-Identifier: Apache-2.0
// Evaluation: asks a model the questions of a set and counts right answers and agreement with
// recorded token ids.
//
// A set is a .jsonl file; each line has `messages` and, if known, `answer` and
// `reference_token_ids`. The answer in an output is the text after its last "####", or the whole
// text, trimmed. The questions are asked by a function: for an engine in this process ask_engine(),
// for a server the one in served_evaluation.h.
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
  // If requested, for each token the difference between the two best logits.
  std::vector<float> margins;
  Finish finish;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  int64_t cached_tokens = 0;
  double elapsed_seconds = 0;  // time from submit() to the last token
  DraftReport drafts;

  [[nodiscard]] bool failed() const { return finish.reason == FinishReason::kError; }
};

struct AskOptions {
  int64_t parallel = 128;  // most requests in flight
  // Called while answers arrive; may be empty.
  std::function<void(int64_t done, int64_t total)> progress;
};

// Submits the requests with generated ids and waits for all. Answers are in the order of the
// requests. Error: that of the engine when it refuses a request; those in flight are then waited
// for.
Result<std::vector<Answer>> ask(Engine& engine, std::vector<Request> requests,
                                const AskOptions& options);

struct Question {
  std::string messages;  // a chat as a JSON list; empty: continue `text`
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
  // The first difference from the recorded tokens is at logits closer than 1e-3.
  int64_t near_ties = 0;
  int64_t different = 0;  // the first difference from the recorded tokens is at other logits
  int64_t failed = 0;     // requests that ended in an error
  int64_t output_tokens = 0;
  double seconds = 0;
};

// Reads a set. Error: kNotFound; kDataLoss, naming the line.
Result<std::vector<Question>> read_questions(const std::filesystem::path& path);

// The tokens of a question's prompt. Error: the chat template rejects the messages.
Result<std::vector<TokenId>> prompt_of(const Question& question, const server::TextCodec& codec);

// Whether `output` contains the right answer.
bool answers(const std::string& output, const std::string& answer);

inline constexpr int64_t kDefaultAnswerTokens = 512;

struct EvaluationOptions {
  SamplingSettings sampling;
  AskOptions ask;
};

// Converts a question to a request. If the options do not set them, sampling is greedy and the
// answer has at most kDefaultAnswerTokens, whatever the model's own defaults, so that scores of
// different models are comparable. Error: the prompt does not fit the context.
Result<Request> evaluation_request(const EvaluationOptions& options, const ModelInfo& model,
                                   std::vector<TokenId> prompt);

// Returns the answers in the order of the questions. Error: no question can be asked.
using AskQuestions = std::function<Result<std::vector<Answer>>(
    const std::vector<Question>& questions, const EvaluationOptions& options)>;

// Asks an engine in this process. Both arguments outlive the returned function.
AskQuestions ask_engine(Engine& engine, const server::TextCodec& codec);

// Asks the questions and compares the answers. `end_tokens` at the end of an answer are ignored in
// the comparison with recorded tokens.
Result<EvaluationReport> evaluate(const AskQuestions& ask, const std::vector<Question>& questions,
                                  const std::vector<TokenId>& end_tokens,
                                  const EvaluationOptions& options);

}  // namespace heddle::tools
