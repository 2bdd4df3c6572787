// SPDX-License-Identifier: Apache-2.0
// Ollama's API: POST /api/chat and /api/generate as adapters over chat completions, and its routes
// about models.
//
// `options` has the sampling fields by Ollama's names. Without `num_predict` the answer may fill
// the context, and a larger value is cut to that, unless --max-tokens-overflow is set otherwise.
// Options of Ollama's own runner (num_ctx, num_gpu, mirostat, ...) have no effect. Durations are in
// nanoseconds.
//
// Threading: the prepare_* functions are thread-safe: they run on the workers. The others are free
//            functions without state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "server/call/api_adapter.h"

namespace heddle::server {

PrepareResult prepare_ollama_chat(const CallContext& context, std::string_view body);

// `raw` sends the prompt without the chat template. Without a prompt the answer is empty, like
// Ollama's answer to a request to load the model.
PrepareResult prepare_ollama_generate(const CallContext& context, std::string_view body);

// GET /api/version: the release of Ollama whose API this is. Clients require a minimum; Codex
// requires 0.13.4. docs/server.md lists the parts of that release that are missing here.
inline constexpr std::string_view kServedOllamaVersion = "0.13.4";

struct OllamaListing {
  std::string digest;     // weights_digest() of the weights
  int64_t loaded_at = 0;  // when the model was loaded, seconds since 1970
  bool running = false;   // true for /api/ps, which lists running models
};

// The answer of GET /api/tags, or, with `running`, of GET /api/ps. `names` are those that the
// client may use.
[[nodiscard]] nlohmann::ordered_json ollama_models(const Engine& engine,
                                                   const std::vector<std::string>& names,
                                                   const OllamaListing& listing);

// POST /api/show, whose body names a model.
AnswerResult answer_ollama_show(const CallContext& context, std::string_view body);

}  // namespace heddle::server
