// SPDX-License-Identifier: Apache-2.0
#include "answer.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include <heddle/constraint.h>

#include "core/check.h"

namespace heddle::oracle {

namespace {

// The first in the list that `text` ends with.
const std::string* matching_stop_text(const StopConditions& stop, std::string_view text) {
  const auto found = std::find_if(stop.texts.begin(), stop.texts.end(),
                                  [&](const auto& one) { return text.ends_with(one); });
  return found == stop.texts.end() ? nullptr : &*found;
}

}  // namespace

Answer answer_alone(const Request& request, const AnswerRules& rules) {
  HEDDLE_CHECK(request.sampling.seed.has_value());
  const StopConditions& stop = request.stop;
  std::vector<TokenId> ending = stop.token_ids;
  if (!stop.ignore_eos) {
    ending.insert(ending.end(), rules.eos_token_ids.begin(), rules.eos_token_ids.end());
  }
  testing::ToyState state;
  testing::ToyAttention attention;
  std::vector<testing::ToyRow> rows;
  const auto feed = [&](TokenId token) {
    state.advance(token);
    attention.read({token, state.hash});
    rows.push_back({token, state.hash});
  };
  const auto hidden = [&] { return testing::toy_hidden(state, attention, rules.windows, rows); };
  for (const TokenId token : request.prompt) feed(token);

  std::unique_ptr<ConstraintState> form;
  std::vector<uint32_t> mask;
  if (request.constraint != nullptr) {
    form = request.constraint->start();
    mask.resize(static_cast<size_t>((request.constraint->vocab_size() + 31) / 32));
  }

  Answer answer;
  bool stopped = false;  // by a text
  while (std::ssize(answer.path) < stop.max_new_tokens) {
    const bool may_end = std::ssize(answer.path) >= stop.min_new_tokens;
    bool form_may_end = false;
    const std::span<const TokenId> forbidden =
        may_end || form != nullptr ? std::span<const TokenId>() : std::span<const TokenId>(ending);
    const uint64_t coin = testing::toy_coin(*request.sampling.seed, std::ssize(rows));
    TokenId token = testing::toy_draw(rules.vocabulary, hidden(), coin, forbidden).value();
    if (form != nullptr) {
      HEDDLE_CHECK(form->fill_mask(mask).ok());
      form_may_end = may_end && form->is_complete();
      for (const TokenId end : ending) {
        uint32_t& word = mask[static_cast<size_t>(end) / 32];
        const uint32_t bit = 1u << (static_cast<uint32_t>(end) % 32);
        if (form->is_complete()) word = form_may_end ? word | bit : word & ~bit;
      }
      token = testing::toy_allowed(mask, token).value();
      HEDDLE_CHECK(form->accept(token) || form_may_end);
    }
    answer.path.push_back(token);
    feed(token);
    const int64_t drawn = std::ssize(answer.path);
    const bool last =
        drawn >= stop.max_new_tokens || std::ssize(request.prompt) + drawn >= rules.context_length;
    const bool may_stop = drawn >= stop.min_new_tokens;
    if (stopped) {
      if (last || std::ranges::find(ending, token) != ending.end()) break;
      continue;
    }
    answer.tokens.push_back(token);
    const bool ends = form != nullptr ? form_may_end : may_stop && !last;
    if (ends && std::find(ending.begin(), ending.end(), token) != ending.end()) {
      if (stop.keep_stop_text) answer.text += static_cast<char>(token);
      answer.reason = FinishReason::kStop;
      answer.matched_token = token;
      break;
    }
    answer.text += static_cast<char>(token);
    if (const std::string* match = may_stop ? matching_stop_text(stop, answer.text) : nullptr) {
      if (!stop.keep_stop_text) answer.text.resize(answer.text.size() - match->size());
      answer.reason = FinishReason::kStop;
      answer.matched_text = *match;
      stopped = true;
    }
    if (last) break;
  }
  return answer;
}

}  // namespace heddle::oracle
