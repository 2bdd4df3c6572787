// SPDX-License-Identifier: Apache-2.0
// UTF-8: validation, code points, the replacement of ill-formed bytes, and properties of
// characters.
//
// Ill-formed input becomes U+FFFD, one for each maximal subpart (The Unicode Standard, section 3.9,
// table 3-8), which is also what browsers and Python's errors="replace" do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace heddle::tokenizer {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD in UTF-8

[[nodiscard]] bool is_valid_utf8(std::string_view text);

// The beginning of some bytes: a code point, bytes that cannot begin one, or a truncated code
// point.
struct Utf8Unit {
  enum class Kind { kCodePoint, kIllFormed, kTruncated };
  Kind kind = Kind::kTruncated;
  size_t length = 0;  // bytes of the code point, or of the maximal ill-formed subpart
  char32_t code_point = 0;
};

[[nodiscard]] Utf8Unit decode_utf8(std::string_view bytes);

// The length in bytes of a character that starts with `lead`, in valid text.
[[nodiscard]] inline size_t utf8_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

void append_utf8(char32_t code_point, std::string& out);

// Appends the longest part of `bytes` that can be decided, with ill-formed parts replaced, and
// returns its number of bytes. That is less than all bytes only if they end with the beginning of a
// character (at most 3 bytes).
size_t append_decided_utf8(std::string_view bytes, std::string& out);

// All of `bytes`, with ill-formed and truncated parts replaced.
[[nodiscard]] std::string replace_ill_formed_utf8(std::string_view bytes);

// Unicode properties of single characters, as tokenizer files define them.
// whether the character has the White_Space property
[[nodiscard]] bool is_white_space(char32_t code_point);
// whether it is a letter, mark, number or connector
[[nodiscard]] bool is_word_character(char32_t code_point);
// whether its general category is M (mark)
[[nodiscard]] bool is_mark(char32_t code_point);

// The last character of a valid, non-empty text.
[[nodiscard]] char32_t last_code_point(std::string_view text);

// The number of bytes of white space at the beginning or end of a valid text.
[[nodiscard]] size_t leading_white_space(std::string_view text);
[[nodiscard]] size_t trailing_white_space(std::string_view text);

}  // namespace heddle::tokenizer
