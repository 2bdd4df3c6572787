// SPDX-License-Identifier: Apache-2.0
// The answer of /v1/chat/completions: the events of a call as reasoning, content and tool calls, in
// chunks of a stream or as one body. The other chat APIs take the same options (delta_adapter.h).
//
// Threading: as ApiAdapter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/answer_stream.h"
#include "server/api_adapter.h"
#include "server/call_fields.h"

namespace heddle::server {

// The form of an answer; apart from the request so that recorded events can test it.
struct ChatAnswerOptions {
  std::string id;
  std::string model;
  int64_t created = 0;
  std::string weight_version = "default";
  std::string system_fingerprint;  // empty: not shown
  size_t num_choices = 1;
  StreamOptions streaming;
  bool logprobs = false;
  bool return_token_ids = false;
  bool cache_details = false;                            // in the usage
  std::optional<std::vector<TokenId>> prompt_token_ids;  // to be shown
  ReasoningField reasoning_field = ReasoningField::kReasoningContent;
  AnswerStreamOptions stream;        // of every choice, which get ids of their own
  const TextCodec* codec = nullptr;  // outlives the adapter
};

std::unique_ptr<ApiAdapter> make_chat_adapter(ChatAnswerOptions options);

}  // namespace heddle::server
