// SPDX-License-Identifier: Apache-2.0
#include "scripted_drafter.h"

#include <algorithm>

#include "core/check.h"

namespace heddle::oracle {

void ScriptedDrafter::observe(const request::Sequence& sequence) {
  lengths_[sequence.id] = sequence.num_tokens();
}

void ScriptedDrafter::forget(const request::Sequence& sequence) { lengths_.erase(sequence.id); }

void ScriptedDrafter::propose(const request::Sequence& sequence, int64_t most,
                              std::vector<TokenId>& drafts) {
  const auto observed = lengths_.find(sequence.id);
  HEDDLE_CHECK(observed != lengths_.end());
  HEDDLE_CHECK_EQ(observed->second, sequence.num_tokens());
  const auto asked = std::ranges::find_if(scenario_.arrivals, [&](const Arrival& arrival) {
    return arrival.request.id == sequence.request.id;
  });
  HEDDLE_CHECK(asked != scenario_.arrivals.end());
  const auto truth =
      std::span(asked->answer.path).subspan(static_cast<size_t>(sequence.num_output_tokens()));
  const TokenId num_tokens = scenario_.rules.vocabulary.num_tokens;
  drafts.clear();
  for (int64_t i = dice_.between(0, most); i > 0; --i) {
    const TokenId right = drafts.size() < truth.size() ? truth[drafts.size()] : 0;
    drafts.push_back(draft_of(scenario_.drafts, right, num_tokens, dice_));
  }
}

}  // namespace heddle::oracle
