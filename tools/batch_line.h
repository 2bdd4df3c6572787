// SPDX-License-Identifier: Apache-2.0
// Lines of a batch file: each is an object with "prompt", "messages" or "input_ids", and those
// fields of a chat request that set how to render messages, draw tokens, stop and schedule:
// "tools", "max_tokens", "priority" and so on. Missing fields get the values of the command line,
// then those of the model. Fields that can have no effect for a line are errors: "stream", "n",
// "logprobs", and, without "messages", fields that only the chat template reads.
//
// Threading: plain values and free functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <heddle/engine.h>

#include "server/call/text_codec.h"
#include "tools/cli/options_sampling.h"

namespace heddle::tools {

inline constexpr int64_t kDefaultOutputTokens = 256;

struct BatchLine {
  int64_t index = 0;  // line number in its file, from 0; blank lines count
  std::string text;
};

// Reads the lines that are not blank. Error: kNotFound when the file cannot be read.
Result<std::vector<BatchLine>> read_batch_lines(const std::string& path);

// Encodes a "prompt" to ids.
using ToTokens = std::function<Result<std::vector<TokenId>>(const std::string&)>;

// Converts a line to a request without an id. Error: kInvalidArgument, naming the field.
Result<Request> request_of_line(const nlohmann::ordered_json& line,
                                const SamplingSettings& settings, const ModelInfo& model,
                                const server::TextCodec& codec, const ToTokens& to_tokens);

}  // namespace heddle::tools
