// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/word_wrap.h"

#include <utility>

#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

#include "tokenizer/utf8.h"

namespace heddle::tools {

namespace {

constexpr int64_t kTabColumns = 8;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // the character U+FFFD

bool is_control(char32_t character) {
  return character < 0x20 || (character >= 0x7F && character < 0xA0);
}

}  // namespace

std::string WordWrap::feed(std::string_view part) {
  if (width_ <= 0) return std::string(part);
  std::string shown;
  const std::string text = std::exchange(incomplete_, {}) + std::string(part);
  for (size_t at = 0; at < text.size();) {
    const tokenizer::Utf8Unit unit = tokenizer::decode_utf8(std::string_view(text).substr(at));
    if (unit.kind == tokenizer::Utf8Unit::Kind::kTruncated) {
      incomplete_ = text.substr(at);
      break;
    }
    const std::string_view bytes = std::string_view(text).substr(at, unit.length);
    at += unit.length;
    if (bytes == "\r") continue;
    const bool may_be_shown = unit.kind == tokenizer::Utf8Unit::Kind::kCodePoint &&
                              (bytes == "\n" || bytes == "\t" || !is_control(unit.code_point));
    const int64_t columns =
        may_be_shown ? utf8proc_charwidth(static_cast<utf8proc_int32_t>(unit.code_point)) : 1;
    add_character(may_be_shown ? bytes : kReplacement, columns, shown);
  }
  return shown;
}

void WordWrap::add_character(std::string_view bytes, int64_t columns, std::string& shown) {
  if (bytes == "\n") {
    place_word(shown);
    shown += '\n';
    spaces_.clear();
    column_ = 0;
    in_word_ = false;
  } else if (bytes == " " || bytes == "\t") {
    place_word(shown);
    spaces_ += bytes;
    in_word_ = false;
  } else {
    if (columns > 1) {
      place_word(shown);
      in_word_ = false;
    }
    word_ += bytes;
    word_columns_ += columns;
    const bool fills_line = word_columns_ >= width_;
    if (columns > 1 || fills_line) place_word(shown);
    if (fills_line && columns <= 1) in_word_ = true;
  }
}

void WordWrap::place_word(std::string& shown) {
  if (word_.empty()) return;
  int64_t column = column_;
  for (const char space : spaces_) {
    column += space == '\t' ? kTabColumns - column % kTabColumns : 1;
  }
  if (column_ > 0 && !in_word_ && column + word_columns_ > width_) {
    shown += '\n';
    column = 0;
  } else {
    shown += spaces_;
  }
  shown += word_;
  column_ = column + word_columns_;
  // The terminal itself breaks text that is longer than a line.
  while (column_ > width_) column_ -= width_;
  spaces_.clear();
  word_.clear();
  word_columns_ = 0;
}

std::string WordWrap::end() {
  std::string shown;
  place_word(shown);
  if (!std::exchange(incomplete_, {}).empty()) shown += kReplacement;
  spaces_.clear();
  column_ = 0;
  in_word_ = false;
  return shown;
}

int64_t terminal_columns() {
  constexpr int64_t kUsual = 80;
  winsize size = {};
  if (::isatty(STDOUT_FILENO) == 0) return 0;
  const bool is_known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : kUsual;
}

}  // namespace heddle::tools
