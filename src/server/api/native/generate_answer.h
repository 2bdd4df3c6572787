// SPDX-License-Identifier: Apache-2.0
// The answer of /generate: text, ids, log probabilities and counters of each choice, sent as the
// events of a stream or as one body.
//
// Threading: as for ApiAdapter.
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
  // See Request::logprob_tokens; none: not requested.
  std::optional<std::vector<TokenId>> logprob_tokens;

  // The prompt's first token if log probabilities are shown from there on. It follows no token and
  // is shown without a log probability.
  std::optional<TokenId> first_token;
};

struct GenerateAnswerOptions {
  std::vector<GenerateChoice> choices;
  bool stream = false;
  bool stream_increments = false;  // an event shows only what is new, not everything so far
  bool as_list = false;  // the body is a list: the call has a batch of prompts, or several answers
  bool text_in_logprobs = false;
  bool as_predictions = false;  // the body is wrapped in {"predictions": ..}, if it is not streamed
  std::string weight_version = "default";
  // For each prompt, its ids to be shown; empty: not shown.
  std::vector<std::vector<TokenId>> prompt_token_ids;
  const TextCodec* codec = nullptr;   // converts tokens to text; outlives the adapter
  std::unique_ptr<SessionTurn> turn;  // the turn of a session that this call answers; null: none
};

std::unique_ptr<ApiAdapter> make_generate_adapter(GenerateAnswerOptions options);

}  // namespace heddle::server
