// SPDX-License-Identifier: Apache-2.0
// A batch: reads prompts from a .jsonl file and writes the answers to a .jsonl file in the same
// order.
//
//   {"prompt": "..."}  or  {"messages": [...]}   ->   {"index": 0, "text": "...", "finish_reason":
//   ...}
//
// "index" is the line's number in its file, from 0; a "custom_id" is copied (batch_line.h lists the
// other fields). A line that cannot be answered gets an "error" instead of a text; the other lines
// are not affected.
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
  std::string output;        // file for the answers; empty: standard output
  bool json_report = false;  // print totals on standard output as JSON
  SamplingSettings sampling;
};

struct Batch {
  BatchSettings settings;
  std::vector<BatchLine> lines;
};

// Reads the input and checks that the output can be written, before a model is loaded. Error:
// kNotFound; kInvalidArgument if the output exists, which may be the input file.
Result<Batch> read_batch(const BatchSettings& settings);

// Runs the batch. Returns the exit code: 1 if a line failed, 130 if stopped before the end.
Result<int> generate_batch(const Batch& batch, Engine& engine, const server::TextCodec& codec,
                           const ToTokens& to_tokens);

}  // namespace heddle::tools
