// SPDX-License-Identifier: Apache-2.0
// A line of a batch: an object with "prompt", "messages" or "input_ids", and the fields of a chat
// request to the server that say how to render messages, draw tokens, stop and schedule: "tools",
// "max_tokens", "priority" and so on. Fields that a line leaves out come from the command line,
// then from the model. Fields of a request that a line cannot have an effect of ("stream", "n",
// "logprobs", without "messages" fields that only their template reads) are errors.
//
// Threading: values and free functions.
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

// The lines that are not blank. Error: kNotFound when the file cannot be read.
Result<std::vector<BatchLine>> read_batch_lines(const std::string& path);

// Turns a "prompt" into ids.
using ToTokens = std::function<Result<std::vector<TokenId>>(const std::string&)>;

// The request has no id yet. Error: kInvalidArgument, naming the field.
Result<Request> request_of_line(const nlohmann::ordered_json& line,
                                const SamplingSettings& settings, const ModelInfo& model,
                                const server::TextCodec& codec, const ToTokens& to_tokens);

}  // namespace heddle::tools
