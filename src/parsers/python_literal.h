// SPDX-License-Identifier: Apache-2.0
// Parses Python literals that models write as arguments: numbers, strings, True, False, None,
// lists, tuples, dicts with string keys. Strings may have three quotes on each side. JSON's true,
// false and null are accepted, too.
//
// Threading: free functions and a thread-compatible class.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace heddle::parsers {

// The JSON text of one literal with white space around it; none if `text` is not a literal. At most
// 64 nested levels.
// Cost: O(text).
[[nodiscard]] std::optional<std::string> python_literal_to_json(std::string_view text);

// Finds the end of a literal that arrives in pieces, by its brackets and quotes.
class PythonLiteralEnd {
 public:
  // Reads more text and returns the number of bytes that belong to the literal: all of them, or
  // those before a ',' or closing bracket outside of the literal; `found` is then set.
  [[nodiscard]] size_t scan(std::string_view text, bool& found);

 private:
  size_t depth_ = 0;
  char quote_ = '\0';    // quote character of the current string; '\0': outside of strings
  int num_opening_ = 0;  // number of opening quotes, while the current string contains nothing else
  int num_closing_ = 0;  // number of consecutive quotes at the end of a string that ends with three
  bool is_long_ = false;
  bool may_have_ended_ =
      false;  // after a quote; the next character decides whether it closed the string
  bool escaped_ = false;
};

}  // namespace heddle::parsers
