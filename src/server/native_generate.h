// SPDX-License-Identifier: Apache-2.0
// POST /generate: the native API, one prompt or a batch, with SGLang's fields and answers. Streamed
// text and ids are cumulative, as its clients expect, unless the server's options say otherwise. A
// prompt may go on from one before it (session_store.h).
//
// Threading: prepare_generate() is thread-safe: it runs on the workers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/api_adapter.h"
#include "server/session_store.h"

namespace heddle::server {

struct GenerateChoice {
  std::string id;
  size_t prompt_index = 0;
  bool logprobs = false;

  // The prompt's first token where its logprobs are shown from there on: it follows nothing and is
  // shown without one.
  std::optional<TokenId> first_token;
};

struct GenerateAnswerOptions {
  std::vector<GenerateChoice> choices;
  bool stream = false;
  bool stream_increments = false;  // an event shows what is new, not everything so far
  bool as_list = false;            // a batch, or several answers
  bool text_in_logprobs = false;
  bool as_predictions = false;  // inside {"predictions": ..}, where it is not streamed
  std::string weight_version = "default";
  std::vector<std::vector<TokenId>> prompt_token_ids;  // per prompt, to be shown; empty: not
  const TextCodec* codec = nullptr;                    // outlives the adapter
  std::unique_ptr<SessionTurn> turn;                   // that this answers; null: none
};

std::unique_ptr<ApiAdapter> make_generate_adapter(GenerateAnswerOptions options);

PrepareResult prepare_generate(const CallContext& context, std::string_view body);

// POST /vertex_generate, Vertex AI's wrapper: {"instances": [{"text": ..}, ..], "parameters": ..}.
// The instances' texts or ids are a batch; the parameters are the other fields of /generate.
PrepareResult prepare_vertex(const CallContext& context, std::string_view body);

}  // namespace heddle::server
