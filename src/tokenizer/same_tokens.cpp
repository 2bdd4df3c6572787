// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/same_tokens.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

namespace heddle::tokenizer {

Status check_same_tokens(const Tokenizer& tokenizer, const Tokenizer& other) {
  const int64_t count = std::min(tokenizer.vocab_size(), other.vocab_size());
  for (int64_t i = 0; i < count; ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string token = tokenizer.id_to_token(id);
    const std::string others = other.id_to_token(id);
    if (token == others || token.empty() || others.empty()) continue;
    return invalid_argument(fmt::format("token {} is \"{}\", not \"{}\"", id, others, token));
  }
  return {};
}

}  // namespace heddle::tokenizer
