// SPDX-License-Identifier: Apache-2.0
// Python literals as models write them for arguments: numbers, strings, True, False, None, lists,
// tuples, dicts with string keys. Strings may have three quotes on each side. JSON's true, false
// and null are taken, too.
//
// Threading: free functions and a thread-compatible class.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace heddle::parsers {

// The JSON text of one literal with white space around it, or nothing. Levels: at most 64.
// Cost: O(text).
[[nodiscard]] std::optional<std::string> python_literal_to_json(std::string_view text);

// Finds the end of a literal that arrives in pieces, by brackets and quotes alone.
class PythonLiteralEnd {
 public:
  // Reads on and returns how many bytes belong to the literal: all, or those before a ',' or a
  // closing bracket outside of it, and `found` is set.
  [[nodiscard]] size_t scan(std::string_view text, bool& found);

 private:
  size_t depth_ = 0;
  char quote_ = '\0';    // delimiter of the current string
  int num_opening_ = 0;  // quotes, of a string that has had nothing else
  int num_closing_ = 0;  // quotes that follow each other, of a string that ends with three
  bool is_long_ = false;
  bool may_have_ended_ =
      false;  // after a quote; the next character tells whether it closed the string
  bool escaped_ = false;
};

}  // namespace heddle::parsers
