// SPDX-License-Identifier: Apache-2.0
// Tools, calls and their results as plain text, for models whose chat template knows none of them.
//
// Threading: free functions without state.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "server/text_codec.h"
#include "server/tool_fields.h"

namespace heddle::server {

// Whether the chat template leaves the calls of a history out: it does not speak of them.
[[nodiscard]] bool template_drops_calls(const TextCodec& codec);

// Lists `tools` in the first system text, with how a call of one is written (ToolCallFormat::kJson)
// and, where `choice` names one, which it has to be.
void list_tools(const nlohmann::ordered_json& tools, const ToolChoice& choice,
                nlohmann::ordered_json& messages);

// Writes calls into the text of the messages that made them, as a model writes them, and their
// results into turns of the user.
void write_calls(nlohmann::ordered_json& messages);

}  // namespace heddle::server
