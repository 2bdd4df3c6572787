// SPDX-License-Identifier: Apache-2.0
#include "speculative/text_index.h"

#include <algorithm>
#include <bit>

namespace heddle::speculative {

namespace {

constexpr size_t kFirstSize = 16;

}  // namespace

TextIndex::TextIndex(int64_t num_tokens)
    : capacity_(std::max(std::bit_ceil(static_cast<size_t>(std::max<int64_t>(num_tokens, 1))),
                         kFirstSize)),
      tokens_(kFirstSize),
      previous_(kFirstSize, -1),
      latest_(kFirstSize, -1) {}

size_t TextIndex::bucket(TokenId first, TokenId second, TokenId third) const {
  uint64_t hash = static_cast<uint32_t>(first);
  for (const TokenId token : {second, third}) {
    hash = (hash ^ (hash >> 29)) * 0x9e3779b97f4a7c15u + static_cast<uint32_t>(token);
  }
  hash *= 0xff51afd7ed558ccdu;
  return static_cast<size_t>(hash >> 32) & (latest_.size() - 1);
}

void TextIndex::append(TokenId token) {
  if (size_ == std::ssize(tokens_) && tokens_.size() < capacity_) grow();
  const int64_t position = size_++;
  tokens_[slot(position)] = token;
  link(position);
}

// Doubles the ring, which is full for the first time: nothing has been overwritten yet.
void TextIndex::grow() {
  const size_t size = 2 * tokens_.size();
  tokens_.resize(size);
  previous_.assign(size, -1);
  latest_.assign(size, -1);
  for (int64_t position = 0; position < size_; ++position) link(position);
}

// Adds a position to the chain of positions with the same last tokens, unless a text begins among
// these.
void TextIndex::link(int64_t position) {
  previous_[slot(position)] = -1;
  if (position < kMinMatch - 1) return;
  const TokenId first = token(position - 2), second = token(position - 1), third = token(position);
  if (first == kEnd || second == kEnd || third == kEnd) return;
  int64_t& latest = latest_[bucket(first, second, third)];
  previous_[slot(position)] = latest;
  latest = position;
}

void TextIndex::end_text() {
  if (size_ > 0 && token(size_ - 1) != kEnd) append(kEnd);
}

int64_t TextIndex::first_candidate(std::span<const TokenId> tokens) const {
  if (std::ssize(tokens) < kMinMatch) return -1;
  const TokenId* const end = tokens.data() + tokens.size();
  return latest_[bucket(end[-3], end[-2], end[-1])];
}

int64_t TextIndex::length_at(int64_t position, std::span<const TokenId> tokens) const {
  const TokenId* const end = tokens.data() + tokens.size();
  const int64_t most = std::min(std::ssize(tokens), kMaxMatch);
  int64_t length = 0;
  while (length < most && is_remembered(position - length) &&
         token(position - length) == end[-1 - length]) {
    ++length;
  }
  return length;
}

void TextIndex::find(std::span<const TokenId> tokens, size_t most, std::vector<Match>& out) const {
  out.clear();
  int64_t position = first_candidate(tokens);
  for (int i = 0; i < kMaxCandidates && is_remembered(position); ++i) {
    if (out.size() == most && out.back().length == kMaxMatch) return;
    const Match match{.length = length_at(position, tokens), .next = position + 1};
    position = previous_[slot(position)];
    if (match.length < kMinMatch || match.next == size_ || token(match.next) == kEnd) continue;
    const auto same = std::ranges::find(out, token(match.next),
                                        [this](const Match& other) { return token(other.next); });
    if (same != out.end()) {
      if (same->length >= match.length) continue;
      out.erase(same);
    }
    out.insert(
        std::ranges::find_if(out, [&](const Match& other) { return other.length < match.length; }),
        match);
    if (out.size() > most) out.pop_back();
  }
}

void TextIndex::following(const Match& match, int64_t most, bool goes_on,
                          std::vector<TokenId>& out) const {
  const auto begin = static_cast<int64_t>(out.size());
  for (int64_t i = 0; i < most; ++i) {
    const int64_t position = match.next + i;
    if (position >= size_ && !goes_on) return;
    const TokenId next =
        position < size_ ? token(position) : out[static_cast<size_t>(begin + position - size_)];
    if (next == kEnd) return;
    out.push_back(next);
  }
}

}  // namespace heddle::speculative
