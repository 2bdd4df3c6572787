// SPDX-License-Identifier: Apache-2.0
// Prompts as APIs accept them: one text, a list of texts, one list of ids, or a list of such lists.
//
// Threading: free functions without state.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "server/call/api_adapter.h"

namespace heddle::server {

inline constexpr size_t kMaxPrompts = 1024;   // most prompts of one call
inline constexpr size_t kMaxRequests = 4096;  // most requests of one call: prompts times answers

struct PromptList {
  std::vector<std::vector<TokenId>> prompts;  // token ids of the prompts; none of them empty
  bool batched = false;                       // the field was a list of prompts, even if of one
};

// The longest prompt of a list, which is not empty.
[[nodiscard]] const std::vector<TokenId>& longest_prompt(const PromptList& list);

// The number of tokens up to which a prompt's text is encoded. A prompt of up to twice the context
// is counted completely, so that the error says by how much it is too long. A longer one is not, so
// that it does not delay other calls.
[[nodiscard]] size_t max_counted_tokens(const ModelInfo& model);

// Encodes a prompt's text to at most `max_tokens` tokens. Error: context_length_exceeded naming
// `param`.
std::optional<ApiError> encode_prompt(std::string_view text, bool add_special_tokens,
                                      size_t max_tokens, std::string_view param,
                                      const CallContext& context, std::vector<TokenId>& ids);

// Reads the prompts of a field. `allow_text` and `allow_ids`: whether it may contain texts, and
// ids.
std::optional<ApiError> read_prompts(const nlohmann::ordered_json& value, std::string_view param,
                                     const CallContext& context, bool allow_text, bool allow_ids,
                                     PromptList& list);

}  // namespace heddle::server
