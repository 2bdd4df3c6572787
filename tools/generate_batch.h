// SPDX-License-Identifier: Apache-2.0
// A batch: a .jsonl file of prompts becomes a .jsonl file of answers, in the same order.
//
//   {"prompt": "..."}  or  {"messages": [...]}   ->   {"index": 0, "text": "...", "finish_reason":
//   ...}
//
// "index" is the line's place in its file, from 0; a "custom_id" comes back as it was (batch_line.h
// has the other fields). A line that cannot be served has an "error" instead of a text; the others
// are served all the same.
#pragma once

#include <string>
#include <vector>

#include <heddle/engine.h>

#include "server/call/text_codec.h"
#include "tools/batch_line.h"
#include "tools/cli/options_sampling.h"

namespace heddle::tools {

struct BatchSettings {
  std::string input;
  std::string output;        // empty: standard output
  bool json_report = false;  // totals on standard output
  SamplingSettings sampling;
};

struct Batch {
  BatchSettings settings;
  std::vector<BatchLine> lines;
};

// Before a model is loaded: reads the input, and finds out whether the output can be written.
// Error: kNotFound; kInvalidArgument when the output exists, which may be the input.
Result<Batch> read_batch(const BatchSettings& settings);

// Returns the exit code: 1 when a line failed, 130 when stopped half-way.
Result<int> generate_batch(const Batch& batch, Engine& engine, const server::TextCodec& codec,
                           const ToTokens& to_tokens);

}  // namespace heddle::tools
