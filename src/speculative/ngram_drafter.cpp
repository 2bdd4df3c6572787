// SPDX-License-Identifier: Apache-2.0
#include "speculative/ngram_drafter.h"

#include <algorithm>
#include <functional>
#include <span>

namespace heddle::speculative {

namespace {

bool shares(const request::Sequence& sequence) {
  return sequence.request.cache_namespace.empty() && sequence.request.adapter == nullptr;
}

int32_t parent_of(const Drafts& drafts, int32_t draft) {
  return drafts.parents.empty() ? draft - 1 : drafts.parents[static_cast<size_t>(draft)];
}

}  // namespace

void NgramDrafter::observe(const request::Sequence& sequence) {
  const int64_t longest = std::max(sequence.num_tokens(), sequence.max_stored_tokens() + 1);
  Text& text = texts_.try_emplace(sequence.id, longest).first->second;
  judge(sequence, text);
  for (; text.num_indexed < sequence.num_tokens(); ++text.num_indexed) {
    text.index.append(sequence.tokens[static_cast<size_t>(text.num_indexed)]);
  }
}

// Compares the last proposed drafts with the tokens that followed.
void NgramDrafter::judge(const request::Sequence& sequence, Text& text) {
  const Drafts& proposed = text.proposed;
  if (proposed.tokens.empty() || sequence.num_tokens() <= text.proposed_at) return;
  const auto came = std::span(sequence.tokens).subspan(static_cast<size_t>(text.proposed_at));
  // Parents come before their children, so one pass follows the branch that came true.
  int32_t last = -1;
  int64_t depth = 0;
  bool ends = true;  // whether no draft follows draft `last`
  for (int32_t i = 0; i < std::ssize(proposed.tokens); ++i) {
    if (parent_of(proposed, i) != last) continue;
    ends = false;
    if (depth == std::ssize(came)) break;
    if (proposed.tokens[static_cast<size_t>(i)] != came[static_cast<size_t>(depth)]) continue;
    last = i;
    ++depth;
    ends = true;
  }
  const auto size = std::ssize(proposed.tokens);
  if (ends) {
    text.budget = std::max(text.budget, 2 * size);
    text.silence = 0;
  } else if (depth == 0) {
    if (size == 1) {
      text.silence = std::clamp<int64_t>(2 * text.silence, 1, kMaxSilence);
      text.silent_until = sequence.num_tokens() + text.silence;
    }
    text.budget = std::max<int64_t>(size / 2, 1);
  }
  text.proposed.clear();
}

void NgramDrafter::find_ways(const request::Sequence& sequence, const Text& text) {
  ways_.clear();
  const auto most = static_cast<size_t>(num_branches_);
  text.index.find(sequence.tokens, most, matches_);
  for (const TextIndex::Match& match : matches_) ways_.push_back({&text.index, match});
  if (shares(sequence)) {
    shared_.find(sequence.tokens, most, matches_);
    for (const TextIndex::Match& match : matches_) ways_.push_back({&shared_, match});
  }
  std::ranges::stable_sort(ways_, std::ranges::greater(),
                           [](const Way& way) { return way.match.length; });
  if (ways_.size() > most) ways_.resize(most);
}

// Adds the continuation of a match as a branch, unless a branch begins with the same token.
void NgramDrafter::draft_way(const Way& way, int64_t most, const Text& text, Drafts& drafts) {
  next_.clear();
  way.index->following(way.match, most, /*goes_on=*/way.index == &text.index, next_);
  for (size_t i = 0; i < drafts.tokens.size(); ++i) {
    if (drafts.parents[i] == -1 && drafts.tokens[i] == next_.front()) return;
  }
  int32_t parent = -1;
  for (const TokenId token : next_) {
    drafts.parents.push_back(parent);
    parent = static_cast<int32_t>(drafts.tokens.size());
    drafts.tokens.push_back(token);
  }
}

void NgramDrafter::propose(const request::Sequence& sequence, int64_t most, Drafts& drafts) {
  Text& text = texts_.at(sequence.id);
  if (sequence.num_tokens() < text.silent_until) return;
  most = std::min(most, text.budget);
  find_ways(sequence, text);
  for (size_t i = 0; i < ways_.size(); ++i) {
    const int64_t room = most - std::ssize(drafts.tokens);
    if (room == 0) break;
    const auto rest = static_cast<int64_t>(ways_.size() - i);
    const int64_t share = i == 0 && rest > 1 ? room - room / 2 : room / rest;
    draft_way(ways_[i], std::max<int64_t>(share, 1), text, drafts);
  }
  if (is_chain(drafts.parents)) drafts.parents.clear();
  text.proposed = drafts;
  text.proposed_at = sequence.num_tokens();
}

void NgramDrafter::forget(const request::Sequence& sequence) {
  texts_.erase(sequence.id);
  if (!shares(sequence)) return;
  shared_.end_text();
  for (const TokenId token : sequence.tokens) shared_.append(token);
}

}  // namespace heddle::speculative
