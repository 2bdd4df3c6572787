// SPDX-License-Identifier: Apache-2.0
// Ollama's API: POST /api/chat and /api/generate as adapters over chat completions, and what its
// clients ask about models.
//
// `options` has the sampling fields under Ollama's names; `num_predict` unset is the rest of the
// context, and one beyond it is cut to that, unless --max-tokens-overflow says otherwise. Options
// that only Ollama's own runner has (num_ctx, num_gpu, mirostat, ...) have no effect. Durations are
// nanoseconds.
//
// Threading: prepare_* are thread-safe: they run on the workers. The others are free functions
//            without state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "server/call/api_adapter.h"

namespace heddle::server {

PrepareResult prepare_ollama_chat(const CallContext& context, std::string_view body);

// `raw` sends the prompt without the chat template. Without a prompt the answer is empty, as one
// that asks Ollama to load the model.
PrepareResult prepare_ollama_generate(const CallContext& context, std::string_view body);

// GET /api/version: the release of Ollama whose API this is. Clients ask for a minimum, as Codex
// does for 0.13.4. docs/server.md lists what that release has and this server does not.
inline constexpr std::string_view kServedOllamaVersion = "0.13.4";

struct OllamaListing {
  std::string digest;     // weights_digest()
  int64_t loaded_at = 0;  // seconds since 1970
  bool running = false;   // of /api/ps
};

// GET /api/tags; GET /api/ps with `running`. `names` are those that the client may ask for.
[[nodiscard]] nlohmann::ordered_json ollama_models(const Engine& engine,
                                                   const std::vector<std::string>& names,
                                                   const OllamaListing& listing);

// POST /api/show, whose body names a model.
AnswerResult answer_ollama_show(const CallContext& context, std::string_view body);

}  // namespace heddle::server
