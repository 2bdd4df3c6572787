// SPDX-License-Identifier: Apache-2.0
// Token counts of a call: the prompt once for its n answers, the outputs summed.
//
// Threading: thread-confined.
#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <heddle/request.h>

namespace heddle::server {

class Usage {
 public:
  // Choices are prompt-major; prompts have `choices_per_prompt` answers each. `cache_details`:
  // prompt_tokens_details also say how far the prompts were known, whether not even their last
  // token was computed, and why known tokens were.
  Usage(size_t num_choices, size_t choices_per_prompt, bool cache_details);

  void update(size_t choice, const RequestEvent& event);

  // {"prompt_tokens": .., "completion_tokens": .., ...}
  [[nodiscard]] nlohmann::ordered_json to_json() const;

 private:
  struct Counts {
    int64_t prompt_tokens = 0;
    int64_t completion_tokens = 0;
    int64_t cached_tokens = 0;
    int64_t matched_tokens = 0;
    bool exact_repeat = false;
    CacheLoss lost;
  };

  size_t choices_per_prompt_;
  bool cache_details_;
  std::vector<Counts> choices_;
};

}  // namespace heddle::server
