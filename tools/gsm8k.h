// SPDX-License-Identifier: Apache-2.0
// GSM8K: grade-school word problems whose answers are numbers, in the files as published: a line is
// {"question": "...", "answer": "working ...\n#### 18"}.
// Cobbe et al., "Training Verifiers to Solve Math Word Problems", arXiv:2110.14168.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/status.h>

#include "tools/evaluation.h"

namespace heddle::tools {

struct Gsm8kExample {
  std::string question;
  std::string answer;  // the answer with its working
};

// Whether the file's first line has a question. False also when there is no such file.
bool is_gsm8k(const std::filesystem::path& path);

// Error: kNotFound; kDataLoss naming the line: not JSON, no question, no number after a "####".
Result<std::vector<Gsm8kExample>> read_gsm8k(const std::filesystem::path& path);

// The prompt that is customary for few-shot scores, and what ends the answer to it:
//   Question: <shot>\nAnswer: <its answer>\n\n   for every shot
//   Question: <question>\nAnswer:
std::string gsm8k_prompt(std::span<const Gsm8kExample> shots, std::string_view question);
inline constexpr std::string_view kGsm8kStop = "Question";

// The last number after the last "####", or else the last number of the text. Commas are ignored
// ("1,234"); a '-' counts at the beginning of a word. Nullopt: no number.
std::optional<double> final_number(std::string_view text);

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
  int64_t cached_tokens = 0;  // prompt tokens that came from the cache
  int64_t output_tokens = 0;
  double seconds = 0;          // seconds from the first request to the last answer
  double request_seconds = 0;  // average seconds of a request

  [[nodiscard]] double share_of_total(int64_t count) const;
};

// Error: as read_gsm8k; kInvalidArgument for options out of range or a set with nothing left to
// ask, or a prompt longer than the context.
Result<Gsm8kReport> evaluate_gsm8k(const AskQuestions& ask, const std::filesystem::path& set,
                                   const Gsm8kOptions& gsm8k, const EvaluationOptions& options);

}  // namespace heddle::tools
