// SPDX-License-Identifier: Apache-2.0
// WordWrap: breaks a text that arrives in parts at spaces, so that no word is split at the edge of
// the terminal. It replaces control characters by U+FFFD, so that no text can control the terminal.
//
// Threading: thread-confined. Cost: O(bytes); buffers one word.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace heddle::tools {

class WordWrap {
 public:
  // `width`: columns of the terminal; 0: no terminal, and every part is returned unchanged.
  explicit WordWrap(int64_t width) : width_(width) {}

  // Adds a part and returns the text that can be shown now. The last word is held back until it
  // ends or fills a line. Double-width characters (Chinese, Japanese, emoji) are separate words.
  [[nodiscard]] std::string feed(std::string_view part);

  // The last word, which was held back.
  [[nodiscard]] std::string end();

 private:
  void place_word(std::string& shown);
  void add_character(std::string_view bytes, int64_t columns, std::string& shown);

  int64_t width_;
  int64_t column_ = 0;
  std::string incomplete_;  // first bytes of a character that is not complete
  std::string spaces_;      // spaces before the word that is held back
  std::string word_;
  int64_t word_columns_ = 0;
  bool in_word_ = false;  // the beginning of the current word was already returned
};

// Columns of the terminal at standard output: 80 if it does not report them; 0 if there is none.
[[nodiscard]] int64_t terminal_columns();

}  // namespace heddle::tools
