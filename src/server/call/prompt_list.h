// SPDX-License-Identifier: Apache-2.0
// Prompts as APIs take them: one text, a list of texts, one list of ids, or a list of such lists.
//
// Threading: free functions without state.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "server/call/api_adapter.h"

namespace heddle::server {

inline constexpr size_t kMaxPrompts = 1024;   // of one call
inline constexpr size_t kMaxRequests = 4096;  // of one call: prompts times answers

struct PromptList {
  std::vector<std::vector<TokenId>> prompts;  // none of them empty
  bool batched = false;                       // it was a list, even of one
};

// Of a list with at least one prompt.
[[nodiscard]] const std::vector<TokenId>& longest_prompt(const PromptList& list);

// The most tokens that a prompt's text is encoded to: a prompt of up to twice the context is
// counted to its end, so that its error says by how much it is too long; a longer one delays other
// calls no further.
[[nodiscard]] size_t max_counted_tokens(const ModelInfo& model);

// The tokens of a prompt's text, at most `max_tokens`. Error: context_length_exceeded naming
// `param`.
std::optional<ApiError> encode_prompt(std::string_view text, bool add_special_tokens,
                                      size_t max_tokens, std::string_view param,
                                      const CallContext& context, std::vector<TokenId>& ids);

// `allow_text` and `allow_ids` say which spellings the field takes.
std::optional<ApiError> read_prompts(const nlohmann::ordered_json& value, std::string_view param,
                                     const CallContext& context, bool allow_text, bool allow_ids,
                                     PromptList& list);

}  // namespace heddle::server
