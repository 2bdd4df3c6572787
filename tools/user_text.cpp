// SPDX-License-Identifier: Apache-2.0
#include "user_text.h"

#include <cstddef>

#include <fmt/format.h>

#include "tokenizer/utf8.h"

namespace heddle::tools {

Status check_utf8(std::string_view what, std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const tokenizer::Utf8Unit unit = tokenizer::decode_utf8(text.substr(at));
    if (unit.kind != tokenizer::Utf8Unit::Kind::kCodePoint) {
      return invalid_argument(fmt::format(
          "{} is not UTF-8: its byte {} is 0x{:02x}; convert it, for example with iconv", what,
          at + 1, static_cast<unsigned char>(text[at])));
    }
    at += unit.length;
  }
  return ok_status();
}

}  // namespace heddle::tools
