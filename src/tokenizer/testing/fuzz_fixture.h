// SPDX-License-Identifier: Apache-2.0
// For fuzz targets: a property of every text in every tokenizer that loads.
#pragma once

#include <string>
#include <string_view>

#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace heddle::tokenizer::testing {

// The ids of a text decode to valid UTF-8, the same piecewise and whole.
inline void encode_and_decode(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.encode(text);
  if (!ids.ok()) return;
  const std::string decoded = tokenizer.decode(*ids, false);
  IncrementalDetokenizer detokenizer(tokenizer, {.skip_special_tokens = false});
  std::string streamed;
  for (const TokenId id : *ids) streamed += detokenizer.push(id);
  streamed += detokenizer.finish();
  if (streamed != decoded || !is_valid_utf8(decoded)) __builtin_trap();
}

}  // namespace heddle::tokenizer::testing
