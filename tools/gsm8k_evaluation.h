// SPDX-License-Identifier: Apache-2.0
// Scores a model on GSM8K (gsm8k.h) with a few worked examples before every question.
//
// The examples are those of another file, or the first of the set itself; then the questions that
// are asked begin behind them, so that no prompt holds its own answer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <heddle/engine.h>

#include "evaluation.h"
#include "server/text_codec.h"

namespace heddle::tools {

struct Gsm8kOptions {
  int64_t shots = 5;
  int64_t num_questions = 200;  // at most
  std::string shots_file;       // empty: the set itself
  bool chat = false;            // the whole prompt as a user's message; its turn ends the answer
};

struct Gsm8kReport {
  int64_t shots = 0;
  int64_t total = 0;
  int64_t correct = 0;
  int64_t invalid = 0;  // answers without a number
  int64_t failed = 0;   // requests that ended in an error; they count as wrong
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of them, not computed again
  int64_t output_tokens = 0;
  double seconds = 0;          // from the first request to the last answer
  double request_seconds = 0;  // of one request, on average

  [[nodiscard]] double share_of_total(int64_t count) const;
};

// Error: as read_gsm8k; kInvalidArgument for options out of range or a set with nothing left to
// ask, or a prompt longer than the context.
Result<Gsm8kReport> evaluate_gsm8k(Engine& engine, const server::TextCodec& codec,
                                   const std::filesystem::path& set, const Gsm8kOptions& gsm8k,
                                   const EvaluationOptions& options);

}  // namespace heddle::tools
