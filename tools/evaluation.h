// SPDX-License-Identifier: Apache-2.0
// Evaluation: asks a model the questions of a set, greedily, and counts right answers and agreement
// with recorded token ids.
//
// A set is a .jsonl file; each line has `messages`, and where known `answer` and
// `reference_token_ids`. An output answers with what follows its last "####", or as a whole,
// trimmed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <heddle/engine.h>

#include "chat/chat_template.h"

namespace heddle::tools {

struct Question {
  std::vector<TokenId> prompt;
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
Result<std::vector<Question>> read_questions(const std::filesystem::path& path,
                                             const Engine& engine,
                                             const chat::ChatTemplate& chat_template);

// Whether `output` gives the answer.
bool answers(const std::string& output, const std::string& answer);

struct EvaluationOptions {
  int64_t parallel = 64;  // questions in flight
  int64_t max_new_tokens = 512;
  std::function<void(int64_t done, int64_t total)> progress;
};

Result<EvaluationReport> evaluate(Engine& engine, const std::vector<Question>& questions,
                                  const EvaluationOptions& options);

}  // namespace heddle::tools
