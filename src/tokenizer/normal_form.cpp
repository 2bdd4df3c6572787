// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/normal_form.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include <utf8proc.h>

#include "core/check.h"
#include "tokenizer/hash.h"
#include "tokenizer/utf8.h"

namespace heddle::tokenizer {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};

// Combining class 0 and NFC_Quick_Check=Yes throughout.
constexpr std::array kInertRanges = {
    Range{0x0000, 0x02FF},    // Latin, IPA
    Range{0x0388, 0x0482},    // Greek, Cyrillic
    Range{0x048A, 0x058F},    // Cyrillic, Armenian
    Range{0x05D0, 0x05EA},    // Hebrew letters
    Range{0x0620, 0x064A},    // Arabic letters
    Range{0x0E01, 0x0E37},    // Thai letters
    Range{0x0E3F, 0x0E47},    // Thai vowels and digits
    Range{0x1E00, 0x1EFF},    // Latin with diacritics
    Range{0x2002, 0x20CF},    // punctuation, currency
    Range{0x212C, 0x2328},    // arrows, mathematics
    Range{0x232B, 0x2ADB},    // box drawing, symbols
    Range{0x3000, 0x3029},    // CJK punctuation
    Range{0x3030, 0x3098},    // hiragana
    Range{0x309B, 0xA48F},    // katakana, Han, Yi
    Range{0xAC00, 0xD7A3},    // Hangul syllables
    Range{0xE000, 0xF8FF},    // private use
    Range{0xFE00, 0xFE0F},    // variation selectors
    Range{0xFE30, 0xFE6F},    // CJK forms
    Range{0xFF01, 0xFFFD},    // fullwidth forms
    Range{0x1D400, 0x1D7FF},  // mathematical letters
    Range{0x1F000, 0x1FAFF},  // emoji
    Range{0x20000, 0x2EBE0},  // Han extensions
};

utf8proc_option_t options_of(NormalForm form) {
  int options = UTF8PROC_STABLE;
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  options |= composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  return static_cast<utf8proc_option_t>(options);
}

size_t ascii_prefix(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080u;
  size_t i = 0;
  while (i + 8 <= text.size() && (load_u64(text.data() + i) & kHighBits) == 0) i += 8;
  while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80) ++i;
  return i;
}

struct FreeMemory {
  void operator()(utf8proc_uint8_t* memory) const { std::free(memory); }
};

}  // namespace

bool is_inert_under_nfc(char32_t code_point) {
  const auto* range = std::ranges::lower_bound(kInertRanges, code_point, {}, &Range::last);
  return range != kInertRanges.end() && range->first <= code_point;
}

bool is_surely_normal(std::string_view text, NormalForm form) {
  for (size_t i = ascii_prefix(text); i < text.size(); i += ascii_prefix(text.substr(i))) {
    if (form != NormalForm::kNfc) return false;
    const Utf8Unit unit = decode_utf8(text.substr(i));
    if (!is_inert_under_nfc(unit.code_point)) return false;
    i += unit.length;
  }
  return true;
}

std::string to_normal_form(std::string_view text, NormalForm form) {
  if (is_surely_normal(text, form)) return std::string(text);
  utf8proc_uint8_t* raw = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &raw, options_of(form));
  const std::unique_ptr<utf8proc_uint8_t, FreeMemory> memory(raw);
  HEDDLE_CHECK_GE(length, 0);  // the text is valid and far below 2^63 bytes: only memory can fail
  return {reinterpret_cast<const char*>(memory.get()), static_cast<size_t>(length)};
}

}  // namespace heddle::tokenizer
