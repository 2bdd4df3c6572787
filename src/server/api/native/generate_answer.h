// SPDX-License-Identifier: Apache-2.0
// The answer of /generate: the text, the ids and the logprobs of each choice with their counters,
// in the events of a stream or as one body.
//
// Threading: as ApiAdapter.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/api/native/session_store.h"
#include "server/call/api_adapter.h"

namespace heddle::server {

struct GenerateChoice {
  std::string id;
  size_t prompt_index = 0;
  bool logprobs = false;
  std::optional<std::vector<TokenId>> logprob_tokens;  // Request::logprob_tokens, where asked for

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

}  // namespace heddle::server
