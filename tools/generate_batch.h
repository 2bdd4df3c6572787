// SPDX-License-Identifier: Apache-2.0
// A batch: a .jsonl file of prompts becomes a .jsonl file of answers, in the same order.
//
//   {"prompt": "..."}  or  {"messages": [...]}   ->   {"index": 0, "text": "...", "finish_reason":
//   ...}
//
// A line that cannot be served has an "error" instead; the others are served all the same.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <heddle/engine.h>

#include "options_sampling.h"
#include "server/text_codec.h"

namespace heddle::tools {

inline constexpr int64_t kDefaultOutputTokens = 256;

struct BatchSettings {
  std::string input;
  std::string output;        // empty: standard output
  bool json_report = false;  // totals on standard output
  SamplingSettings sampling;
};

// `to_tokens` turns a line's "prompt" into ids. Returns the exit code: 1 when a line failed, 130
// when stopped half-way.
Result<int> generate_batch(
    const BatchSettings& settings, Engine& engine, const server::TextCodec& codec,
    const std::function<Result<std::vector<TokenId>>(const std::string&)>& to_tokens);

}  // namespace heddle::tools
