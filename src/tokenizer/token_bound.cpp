// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/token_bound.h"

#include <algorithm>

namespace heddle::tokenizer {
namespace {

// The number of shares in one token; a sum of 2^32 tokens wraps around to a smaller one.
constexpr uint64_t kWholeToken = uint64_t{1} << 32;

size_t index_of(char byte) { return static_cast<unsigned char>(byte); }

}  // namespace

void TokenBound::add(std::string_view token) {
  for (const char byte : token) {
    size_t& longest = longest_[index_of(byte)];
    longest = std::max(longest, token.size());
  }
}

void TokenBound::finish() {
  for (size_t byte = 0; byte < shares_.size(); ++byte) {
    shares_[byte] = kWholeToken / std::max<size_t>(longest_[byte], 1);
  }
}

void TokenBound::finish_for_any_bytes() {
  longest_.fill(std::ranges::max(longest_));
  finish();
}

void TokenBound::set_alias(char byte, std::string_view text) {
  uint64_t share = 0;
  for (const char part : text) share += shares_[index_of(part)];
  shares_[index_of(byte)] = share;
}

uint64_t TokenBound::shares(std::string_view text) const {
  uint64_t sum = 0;
  for (const char byte : text) sum += shares_[index_of(byte)];
  return sum;
}

size_t TokenBound::whole_tokens(uint64_t shares) {
  return static_cast<size_t>((shares + kWholeToken - 1) / kWholeToken);
}

}  // namespace heddle::tokenizer
