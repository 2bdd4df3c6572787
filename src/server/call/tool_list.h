// SPDX-License-Identifier: Apache-2.0
// The tools of a request as plain text, for models whose chat template shows none.
//
// Threading: a free function without state.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "server/call/tool_fields.h"

namespace heddle::server {

// Lists `tools` in the first system text. If `choice` forces a call, the text asks for one, and
// with `as_json` it explains how to write a call (ToolCallFormat::kJson).
void list_tools(const nlohmann::ordered_json& tools, const ToolChoice& choice, bool as_json,
                nlohmann::ordered_json& messages);

}  // namespace heddle::server
