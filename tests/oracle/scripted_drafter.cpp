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
                              speculative::Drafts& drafts) {
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
  std::vector<size_t> depths;  // of each draft
  const int64_t count = dice_.between(0, most);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t parent = scenario_.branches_drafts ? dice_.between(-1, i - 1) : i - 1;
    const size_t depth = parent < 0 ? 0 : depths[static_cast<size_t>(parent)] + 1;
    depths.push_back(depth);
    const TokenId right = depth < truth.size() ? truth[depth] : 0;
    drafts.tokens.push_back(draft_of(scenario_.drafts, right, num_tokens, dice_));
    drafts.parents.push_back(static_cast<int32_t>(parent));
  }
}

}  // namespace heddle::oracle
