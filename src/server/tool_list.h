// SPDX-License-Identifier: Apache-2.0
// The tools of a request as plain text, for models whose chat template has no form for calls.
//
// Threading: a free function without state.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "server/tool_fields.h"

namespace heddle::server {

// Lists `tools` in the first system text, with how a call of one is written (ToolCallFormat::kJson)
// and, where `choice` names one, which it has to be.
void list_tools(const nlohmann::ordered_json& tools, const ToolChoice& choice,
                nlohmann::ordered_json& messages);

}  // namespace heddle::server
