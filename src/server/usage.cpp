// SPDX-License-Identifier: Apache-2.0
#include "server/usage.h"

#include <nlohmann/json.hpp>

#include "server/answer_fields.h"

namespace heddle::server {

Usage::Usage(size_t num_choices, size_t choices_per_prompt, bool cache_details)
    : choices_per_prompt_(choices_per_prompt),
      cache_details_(cache_details),
      choices_(num_choices) {}

void Usage::update(size_t choice, const RequestEvent& event) {
  choices_[choice] = {.prompt_tokens = event.prompt_tokens,
                      .completion_tokens = event.completion_tokens,
                      .cached_tokens = event.cached_tokens,
                      .matched_tokens = event.cache.matched_tokens,
                      .exact_repeat = event.cache.exact_repeat,
                      .lost = event.cache.lost};
}

nlohmann::ordered_json Usage::to_json() const {
  Counts total;
  total.exact_repeat = true;
  for (size_t i = 0; i < choices_.size(); ++i) {
    total.completion_tokens += choices_[i].completion_tokens;
    if (i % choices_per_prompt_ != 0) continue;
    total.prompt_tokens += choices_[i].prompt_tokens;
    total.cached_tokens += choices_[i].cached_tokens;
    total.matched_tokens += choices_[i].matched_tokens;
    total.exact_repeat = total.exact_repeat && choices_[i].exact_repeat;
    total.lost += choices_[i].lost;
  }
  nlohmann::ordered_json details = {{"cached_tokens", total.cached_tokens}};
  if (cache_details_) {
    details["matched_tokens"] = total.matched_tokens;
    details["exact_repeat"] = total.exact_repeat;
    details["lost_tokens"] = loss_details(total.lost);
  }
  return {{"prompt_tokens", total.prompt_tokens},
          {"completion_tokens", total.completion_tokens},
          {"total_tokens", total.prompt_tokens + total.completion_tokens},
          {"prompt_tokens_details", std::move(details)},
          {"completion_tokens_details", {{"reasoning_tokens", 0}}},
          {"reasoning_tokens", 0}};
}

}  // namespace heddle::server
