// SPDX-License-Identifier: Apache-2.0
// Prompts for the text that belongs between two given texts, as editors need at their cursor
// (Bavarian et al., "Efficient Training of Language Models to Fill in the Middle",
// arXiv:2207.14255).
//
// Threading: free functions without state.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/call/api_adapter.h"

namespace heddle::server {

// Encodes the prompt for the text between `prefix` and `suffix`, either of which may be empty.
// Errors name the fields `prompt` and `suffix`: unsupported_parameter if the model has no marks for
// this; context_length_exceeded.
std::optional<ApiError> encode_infill(std::string_view prefix, std::string_view suffix,
                                      const CallContext& context, std::vector<TokenId>& ids);

}  // namespace heddle::server
