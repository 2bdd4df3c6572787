// SPDX-License-Identifier: Apache-2.0
// POST /load_lora_adapter and /unload_lora_adapter: change the adapters that the server offers,
// with the bodies of SGLang and vLLM.
//
// Threading: called on workers; loading blocks while the files are read.
#pragma once

#include <string_view>

#include "server/call/api_adapter.h"

namespace heddle::server {

// Both answer {"success", "message", "loaded_adapters": {name: folder}}.
AnswerResult answer_load_adapter(const CallContext& context, std::string_view body);
AnswerResult answer_unload_adapter(const CallContext& context, std::string_view body);

}  // namespace heddle::server
