// SPDX-License-Identifier: Apache-2.0
// GSM8K: grade-school word problems whose answers are numbers. It reads the published files, whose
// lines are {"question": "...", "answer": "working ...\n#### 18"}.
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
  std::string answer;  // the answer with the steps that lead to it
};

// Whether the file's first line has a question; false if there is no such file.
bool is_gsm8k(const std::filesystem::path& path);

// Reads a file. Error: kNotFound; kDataLoss naming the line: not JSON, no question, no number after
// a "####".
Result<std::vector<Gsm8kExample>> read_gsm8k(const std::filesystem::path& path);

// The usual few-shot prompt, and the text that ends an answer to it:
//   Question: <shot>\nAnswer: <its answer>\n\n   for every shot
//   Question: <question>\nAnswer:
std::string gsm8k_prompt(std::span<const Gsm8kExample> shots, std::string_view question);
inline constexpr std::string_view kGsm8kStop = "Question";

// The last number after the last "####", or else the last number of the text. Commas are ignored
// ("1,234"); a '-' counts at the beginning of a word. Nullopt: no number.
std::optional<double> final_number(std::string_view text);

struct Gsm8kOptions {
  int64_t shots = 5;
  int64_t num_questions = 200;  // most questions to ask
  std::string shots_file;       // file of the examples; empty: the set itself
  bool chat = false;  // the prompt is sent as a user's message, and the end of the model's turn
                      // ends the answer
};

struct Gsm8kReport {
  int64_t shots = 0;
  int64_t total = 0;
  int64_t correct = 0;
  int64_t invalid = 0;  // answers without a number
  int64_t failed = 0;   // requests that ended in an error; they count as wrong
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // prompt tokens found in the prefix cache
  int64_t output_tokens = 0;
  double seconds = 0;          // seconds from the first request to the last answer
  double request_seconds = 0;  // average duration of a request

  [[nodiscard]] double share_of_total(int64_t count) const;
};

// Asks the questions of a set. Errors: those of read_gsm8k(); kInvalidArgument for options out of
// range, for a set without questions left to ask, or for a prompt longer than the context.
Result<Gsm8kReport> evaluate_gsm8k(const AskQuestions& ask, const std::filesystem::path& set,
                                   const Gsm8kOptions& gsm8k, const EvaluationOptions& options);

}  // namespace heddle::tools
