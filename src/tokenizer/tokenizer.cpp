// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.h"

#include <limits>

#include <fmt/format.h>

#include "tokenizer/utf8.h"

namespace heddle::tokenizer {

Tokenizer::~Tokenizer() = default;

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  constexpr size_t kAnyNumber = std::numeric_limits<size_t>::max();
  std::vector<TokenId> ids;
  HEDDLE_RETURN_IF_ERROR(encode_at_most(text, kAnyNumber, options, ids).status());
  return ids;
}

Result<bool> Tokenizer::encode_at_most(std::string_view text, size_t max_tokens,
                                       EncodeOptions options, std::vector<TokenId>& ids) const {
  ids.clear();
  if (text.size() > kMaxTextBytes) {
    return invalid_argument(fmt::format(
        "a text of {} bytes is too long to tokenize; the limit is {}", text.size(), kMaxTextBytes));
  }
  CancellationPoll poll(options.is_cancelled);
  Result<bool> fits = is_valid_utf8(text) ? encode_valid(text, max_tokens, options, poll, ids)
                                          : encode_valid(replace_ill_formed_utf8(text), max_tokens,
                                                         options, poll, ids);
  if (poll.cancelled()) {
    return cancelled(fmt::format("encoding a text of {} bytes was cancelled", text.size()));
  }
  return fits;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  std::string bytes;
  for (const TokenId id : ids) append_token_bytes(id, skip_special_tokens, bytes);
  std::string_view rest = bytes;
  if (strips_leading_space() && rest.starts_with(' ')) rest.remove_prefix(1);
  return replace_ill_formed_utf8(rest);
}

}  // namespace heddle::tokenizer
