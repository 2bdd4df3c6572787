// SPDX-License-Identifier: Apache-2.0
// POST /v1/completions: continues one prompt or a list of prompts.
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
  size_t shown_per_prompt = 0;  // only the best of each prompt's answers by mean log probability;
                                // 0: all, in the order of their choices
  std::vector<std::string> echoes;    // text before the answers to each prompt; empty: no echo
  std::vector<TokenId> first_tokens;  // first token of each prompt whose log probabilities are
                                      // echoed; empty: none are
  // For each prompt, its ids to be shown; empty: not shown.
  std::vector<std::vector<TokenId>> prompt_token_ids;
};

std::unique_ptr<ApiAdapter> make_completion_adapter(CompletionAnswerOptions options);

PrepareResult prepare_completions(const CallContext& context, std::string_view body);

}  // namespace heddle::server
