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

// Nothing has been forgotten so far: the ring is full for the first time.
void TextIndex::grow() {
  const size_t size = 2 * tokens_.size();
  tokens_.resize(size);
  previous_.assign(size, -1);
  latest_.assign(size, -1);
  for (int64_t position = 0; position < size_; ++position) link(position);
}

// Enters a position in the chain of its last tokens, unless a text begins among them.
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

TextIndex::Match TextIndex::find(std::span<const TokenId> tokens) const {
  const int64_t count = std::ssize(tokens);
  Match best;
  if (count < kMinMatch) return best;
  const TokenId* const end = tokens.data() + count;
  int64_t position = latest_[bucket(end[-3], end[-2], end[-1])];
  for (int i = 0; i < kMaxCandidates && is_remembered(position); ++i) {
    int64_t length = 0;
    const int64_t most = std::min(count, kMaxMatch);
    while (length < most && is_remembered(position - length) &&
           token(position - length) == end[-1 - length]) {
      ++length;
    }
    if (position + 1 < size_ && length >= kMinMatch && length > best.length) {
      best = {.length = length, .next = position + 1};
    }
    if (best.length == kMaxMatch) break;
    position = previous_[slot(position)];
  }
  return best;
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
