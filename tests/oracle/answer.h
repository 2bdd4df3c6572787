// SPDX-License-Identifier: Apache-2.0
// The toy model's answer to one request that has the machine for itself: every answer in a scenario
// must equal it. Computed token by token without engine, scheduler or cache.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <heddle/request.h>

#include "support/toy_model.h"

namespace heddle::oracle {

struct AnswerRules {
  testing::ToyVocabulary vocabulary;
  std::vector<TokenId> eos_token_ids;
  int64_t context_length = 0;
  std::vector<int64_t> windows;  // of the layers that slide
};

struct Answer {
  std::vector<TokenId> tokens;

  // Likewise, and where a stop text ended them, how the model goes on until something else ends it:
  // accepted drafts may go beyond a stop text, which the device does not know.
  std::vector<TokenId> path;
  std::string text;
  FinishReason reason = FinishReason::kLength;
  std::optional<TokenId> matched_token;
  std::optional<std::string> matched_text;
};

// The request has a seed (checked) and token i stands for the byte i.
Answer answer_alone(const Request& request, const AnswerRules& rules);

}  // namespace heddle::oracle
