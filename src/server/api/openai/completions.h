// SPDX-License-Identifier: Apache-2.0
// POST /v1/completions: text in, text out, for one prompt or a list of them.
//
// Threading: prepare_completions() is thread-safe: it runs on the workers.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "server/call/api_adapter.h"
#include "server/call/call_fields.h"

namespace heddle::server {

struct CompletionAnswerOptions : OpenAiAnswerOptions {
  size_t choices_per_prompt = 1;
  size_t shown_per_prompt = 0;      // of these the best by mean logprob; 0: all, as they were drawn
  std::vector<std::string> echoes;  // text before each prompt's answers; empty: no echo
  std::vector<TokenId> first_tokens;  // of each prompt whose logprobs are echoed; empty: none are
  std::vector<std::vector<TokenId>> prompt_token_ids;  // to be shown; empty: not
};

std::unique_ptr<ApiAdapter> make_completion_adapter(CompletionAnswerOptions options);

PrepareResult prepare_completions(const CallContext& context, std::string_view body);

}  // namespace heddle::server
