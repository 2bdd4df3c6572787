// SPDX-License-Identifier: Apache-2.0
// TokenDecoder turns a vocabulary token back into the bytes it stands for: the "decoder" of a
// tokenizer file.
//
// Threading: immutable once built; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <heddle/request.h>

#include "tokenizer/bpe_model.h"

namespace heddle::tokenizer {

struct TokenDecoder {
  bool byte_fallback = false;                                     // <0x0A> is a newline
  bool strip_leading_space = false;                               // of the whole text
  std::vector<std::pair<std::string, std::string>> replacements;  // "▁" -> " ", in order

  void append_bytes(const BpeModel& model, TokenId id, std::string& out) const;
};

}  // namespace heddle::tokenizer
