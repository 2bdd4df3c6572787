// SPDX-License-Identifier: Apache-2.0
// POST /v1/completions: text in, text out, for one prompt or a list of them.
//
// Threading: prepare_completions() is thread-safe: it runs on the workers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/api_adapter.h"
#include "server/call_fields.h"

namespace heddle::server {

struct CompletionAnswerOptions {
  std::string id;
  std::string model;
  int64_t created = 0;
  std::string weight_version = "default";
  size_t num_choices = 1;  // over all prompts, prompt-major
  size_t choices_per_prompt = 1;
  size_t shown_per_prompt = 0;  // of these the best by mean logprob; 0: all, as they were drawn
  StreamOptions streaming;
  bool logprobs = false;
  bool return_token_ids = false;
  bool cache_details = false;         // in the usage
  std::vector<std::string> echoes;    // text before each prompt's answers; empty: no echo
  std::vector<TokenId> first_tokens;  // of each prompt whose logprobs are echoed; empty: none are
  std::vector<std::vector<TokenId>> prompt_token_ids;  // to be shown; empty: not
  const TextCodec* codec = nullptr;                    // outlives the adapter
};

std::unique_ptr<ApiAdapter> make_completion_adapter(CompletionAnswerOptions options);

PrepareResult prepare_completions(const CallContext& context, std::string_view body);

}  // namespace heddle::server
