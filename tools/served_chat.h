// SPDX-License-Identifier: Apache-2.0
// ServedChat: a conversation with a model that a server of OpenAI's chat completions has.
#pragma once

#include <memory>
#include <string>

#include <heddle/status.h>

#include "chat_model.h"
#include "load_client.h"
#include "options_sampling.h"

namespace heddle::tools {

struct ServedChatOptions {
  std::string url;
  std::string model;    // name to ask for; empty: the first of /v1/models
  std::string api_key;  // sent as a bearer token; empty: none
  SamplingSettings sampling;
};

// Reasoning that comes apart from the answer is shown before it and is no part of the conversation.
// Error: kInvalidArgument for a URL that is none; kUnavailable where no server answers; kNotFound
// where it names no model.
Result<std::unique_ptr<ChatModel>> make_served_chat(ServedChatOptions options);

}  // namespace heddle::tools
