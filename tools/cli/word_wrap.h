// SPDX-License-Identifier: Apache-2.0
// WordWrap breaks a text that comes in parts at spaces, so that no word is cut at the terminal's
// edge, and shows control characters as U+FFFD, so that no text steers the terminal.
//
// Threading: thread-confined. Cost: O(bytes); holds one word.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace heddle::tools {

class WordWrap {
 public:
  // `width`: columns of the terminal; 0: there is none, and every part comes back as it is.
  explicit WordWrap(int64_t width) : width_(width) {}

  // Returns the text that can be shown so far. The last word is held back until it ends or fills a
  // line; double-width characters (Chinese, Japanese, emoji) are separate words.
  [[nodiscard]] std::string feed(std::string_view part);

  // The last word.
  [[nodiscard]] std::string end();

 private:
  void place_word(std::string& shown);
  void add_character(std::string_view bytes, int64_t columns, std::string& shown);

  int64_t width_;
  int64_t column_ = 0;
  std::string incomplete_;  // the first bytes of a character
  std::string spaces_;      // before the word
  std::string word_;
  int64_t word_columns_ = 0;
  bool in_word_ = false;  // the beginning of the word is shown already
};

// Columns of the terminal at standard output: 80 where it does not say; 0 where there is none.
[[nodiscard]] int64_t terminal_columns();

}  // namespace heddle::tools
