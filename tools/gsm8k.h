// SPDX-License-Identifier: Apache-2.0
// GSM8K: grade-school word problems whose answers are numbers, in the files as published: a line is
// {"question": "...", "answer": "working ...\n#### 18"}.
// Cobbe et al., "Training Verifiers to Solve Math Word Problems", arXiv:2110.14168.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/status.h>

namespace heddle::tools {

struct Gsm8kExample {
  std::string question;
  std::string answer;  // with its working
};

// Whether the file's first line has a question. False also when there is no such file.
bool is_gsm8k(const std::filesystem::path& path);

// Error: kNotFound; kDataLoss naming the line: not JSON, no question, no number behind a "####".
Result<std::vector<Gsm8kExample>> read_gsm8k(const std::filesystem::path& path);

// The prompt that is customary for few-shot scores, and what ends the answer to it:
//   Question: <shot>\nAnswer: <its answer>\n\n   for every shot
//   Question: <question>\nAnswer:
std::string gsm8k_prompt(std::span<const Gsm8kExample> shots, std::string_view question);
inline constexpr std::string_view kGsm8kStop = "Question";

// The last number behind the last "####"; without one there, the last number of the text. Commas do
// not count ("1,234"), a '-' does at the beginning of a word. None when there is no number.
std::optional<double> final_number(std::string_view text);

}  // namespace heddle::tools
