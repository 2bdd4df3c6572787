// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tokenizer/utf8.h"
#include "tokenizer/vocabulary.h"

namespace heddle::tokenizer {

Status AddedTokens::add(AddedToken token) {
  if (token.content.empty()) {
    return data_loss(fmt::format("the added token {} has an empty content", token.id));
  }
  if (token.id < 0 || token.id > kMaxTokenId) {
    return data_loss(fmt::format("the added token '{}' has the id {}, outside 0 to {}",
                                 shown_token(token.content), token.id, kMaxTokenId));
  }
  if (const AddedToken* other = find(token.id)) {
    if (other->content == token.content) return ok_status();
    return data_loss(fmt::format("two added tokens have the id {}: '{}' and '{}'", token.id,
                                 shown_token(other->content), shown_token(token.content)));
  }
  if (const AddedToken* other = find(token.content)) {
    return data_loss(fmt::format("the added token '{}' has two ids, {} and {}",
                                 shown_token(token.content), other->id, token.id));
  }
  by_id_.emplace(token.id, tokens_.size());
  by_content_.emplace(token.content, tokens_.size());
  end_id_ = std::max(end_id_, int64_t{token.id} + 1);
  tokens_.push_back(std::move(token));
  return ok_status();
}

const AddedToken* AddedTokens::find(TokenId id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

void AddedTokenMatcher::add(const AddedToken& token, std::string spelling) {
  if (!spelling.empty()) patterns_.push_back({.spelling = std::move(spelling), .token = token});
}

void AddedTokenMatcher::finish() {
  std::ranges::stable_sort(patterns_, {}, &Pattern::spelling);
  for (uint32_t i = 0; i < patterns_.size(); ++i) {
    Bucket& bucket = buckets_[static_cast<unsigned char>(patterns_[i].spelling[0])];
    if (bucket.end == 0) bucket.begin = i;
    bucket.end = i + 1;
  }
}

// Narrows the range of sorted patterns one byte at a time. A pattern that equals the prefix sorts
// first.
const AddedTokenMatcher::Pattern* AddedTokenMatcher::longest_at(std::string_view text) const {
  const Bucket bucket = buckets_[static_cast<unsigned char>(text[0])];
  const Pattern* first = patterns_.data() + bucket.begin;
  const Pattern* last = patterns_.data() + bucket.end;
  const Pattern* longest = nullptr;
  for (size_t depth = 1; first != last; ++depth) {
    if (first->spelling.size() == depth) {
      longest = first;
      while (first != last && first->spelling.size() == depth) ++first;
    }
    if (depth == text.size()) break;
    const auto byte_at_depth = [depth](const Pattern& pattern) {
      return static_cast<unsigned char>(pattern.spelling[depth]);
    };
    const auto narrowed = std::ranges::equal_range(
        first, last, static_cast<unsigned char>(text[depth]), {}, byte_at_depth);
    first = narrowed.begin();
    last = narrowed.end();
  }
  return longest;
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::find(std::string_view text, size_t start,
                                                                CancellationPoll& poll) const {
  if (patterns_.empty()) return std::nullopt;
  for (size_t i = start; i < text.size(); ++i) {
    if (buckets_[static_cast<unsigned char>(text[i])].end == 0) continue;
    if (poll.cancelled_after(1)) return std::nullopt;
    if (const Pattern* pattern = longest_at(text.substr(i))) {
      return Match{.begin = i, .end = i + pattern->spelling.size(), .pattern = pattern};
    }
  }
  return std::nullopt;
}

bool AddedTokenMatcher::split(std::string_view text, bool parse_special, CancellationPoll& poll,
                              const TextFunction& on_text, const TokenFunction& on_token) const {
  const auto is_apart = [text](const Match& match) {
    const bool word_before =
        match.begin > 0 && is_word_character(last_code_point(text.substr(0, match.begin)));
    const bool word_after = match.end < text.size() &&
                            is_word_character(decode_utf8(text.substr(match.end)).code_point);
    return !word_before && !word_after;
  };
  size_t done = 0;
  size_t search_from = 0;
  while (const std::optional<Match> match = find(text, search_from, poll)) {
    const AddedToken& token = match->pattern->token;
    search_from = match->end;  // the search continues after the match, whether it was accepted or
                               // not
    if (token.special && !parse_special) continue;
    if (token.single_word && !is_apart(*match)) continue;
    size_t begin = match->begin;
    size_t end = match->end;
    if (token.lstrip) begin -= trailing_white_space(text.substr(done, begin - done));
    if (token.rstrip) end += leading_white_space(text.substr(end));
    if (begin > done && !on_text(text.substr(done, begin - done))) return false;
    if (!on_token(token.id)) return false;
    done = search_from = end;
  }
  if (poll.cancelled()) return false;
  return done == text.size() || on_text(text.substr(done));
}

}  // namespace heddle::tokenizer
