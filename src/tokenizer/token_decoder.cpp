// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/token_decoder.h"

namespace heddle::tokenizer {
namespace {

void replace_all(std::string& text, std::string_view pattern, std::string_view content) {
  if (pattern.empty()) return;
  for (size_t at = text.find(pattern); at != std::string::npos;
       at = text.find(pattern, at + content.size())) {
    text.replace(at, pattern.size(), content);
  }
}

}  // namespace

void TokenDecoder::append_bytes(const BpeModel& model, TokenId id, std::string& out) const {
  if (byte_fallback) {
    if (const std::optional<char> byte = model.byte_of_token(id)) {
      out.push_back(*byte);
      return;
    }
  }
  const std::string_view token = model.vocabulary().text(id);
  if (replacements.empty()) {
    out.append(token);
    return;
  }
  std::string text(token);
  for (const auto& [pattern, content] : replacements) replace_all(text, pattern, content);
  out.append(text);
}

}  // namespace heddle::tokenizer
