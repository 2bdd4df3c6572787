// SPDX-License-Identifier: Apache-2.0
#include "speculative/ngram_drafter.h"

#include <algorithm>
#include <span>

namespace heddle::speculative {

namespace {

bool shares(const request::Sequence& sequence) { return sequence.request.cache_namespace.empty(); }

}  // namespace

void NgramDrafter::observe(const request::Sequence& sequence) {
  const int64_t longest = std::max(sequence.num_tokens(), sequence.max_stored_tokens() + 1);
  Text& text = texts_.try_emplace(sequence.id, longest).first->second;
  judge(sequence, text);
  for (; text.num_indexed < sequence.num_tokens(); ++text.num_indexed) {
    text.index.append(sequence.tokens[static_cast<size_t>(text.num_indexed)]);
  }
}

// Compares the drafts proposed last with the tokens that came.
void NgramDrafter::judge(const request::Sequence& sequence, Text& text) {
  if (text.proposed.empty() || sequence.num_tokens() <= text.proposed_at) return;
  const auto came = std::span(sequence.tokens).subspan(static_cast<size_t>(text.proposed_at));
  const auto [draft, token] = std::ranges::mismatch(text.proposed, came);
  if (draft == text.proposed.end()) {
    text.budget = std::max(text.budget, 2 * std::ssize(text.proposed));
    text.silence = 0;
  } else if (draft == text.proposed.begin()) {
    if (text.proposed.size() == 1) {
      text.silence = std::clamp<int64_t>(2 * text.silence, 1, kMaxSilence);
      text.silent_until = sequence.num_tokens() + text.silence;
    }
    text.budget = std::max<int64_t>(std::ssize(text.proposed) / 2, 1);
  }
  text.proposed.clear();
}

void NgramDrafter::propose(const request::Sequence& sequence, int64_t most, Drafts& drafts) {
  Text& text = texts_.at(sequence.id);
  if (sequence.num_tokens() < text.silent_until) return;
  most = std::min(most, text.budget);
  const TextIndex::Match own = text.index.find(sequence.tokens);
  const TextIndex::Match others =
      shares(sequence) ? shared_.find(sequence.tokens) : TextIndex::Match();
  if (own.length >= std::max(others.length, TextIndex::kMinMatch)) {
    text.index.following(own, most, /*goes_on=*/true, drafts.tokens);
  } else if (others.length > 0) {
    shared_.following(others, most, /*goes_on=*/false, drafts.tokens);
  }
  text.proposed = drafts.tokens;
  text.proposed_at = sequence.num_tokens();
}

void NgramDrafter::forget(const request::Sequence& sequence) {
  texts_.erase(sequence.id);
  if (!shares(sequence)) return;
  shared_.end_text();
  for (const TokenId token : sequence.tokens) shared_.append(token);
}

}  // namespace heddle::speculative
