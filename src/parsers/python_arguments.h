// SPDX-License-Identifier: Apache-2.0
// PythonArguments: parses the text between the parentheses of a call in Python's notation and emits
// it as a JSON object.
//
//   f(city="Paris", days=3)   f("Paris", 3)   f({"city": "Paris", "days": 3})
//
// Each argument is emitted when it is complete. Arguments without a keyword get the names of the
// tool's parameters in order. A single dict whose keys are the tool's parameters is the complete
// arguments. Of two arguments with one name the first one is used.
//
// Threading: thread-compatible.
// Memory:    one argument is held back, at most kMaxValueBytes; a longer one fails the call.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>

#include "parsers/call_header.h"
#include "parsers/python_literal.h"
#include "parsers/tool_names.h"

namespace heddle::parsers {

class PythonArguments {
 public:
  static constexpr size_t kMaxValueBytes = 4 << 20;

  // `names` must outlive this object.
  PythonArguments(const ToolNames& names, std::string tool)
      : names_(&names), tool_(std::move(tool)) {}

  // Parses more text, up to and including the closing parenthesis, and appends the JSON that is
  // certain.
  Progress read(std::string_view text, size_t& used, std::string& json);

  // The answer ended before the parenthesis. Returns true if everything that was begun is complete.
  bool finish(std::string& json);

 private:
  bool take_argument(bool is_last, std::string& json);
  bool take_dict(std::string_view literal, std::string& json);
  void close(std::string& json) const;

  const ToolNames* names_;
  std::string tool_;
  std::set<std::string, std::less<>> taken_;  // parameter names that have an argument
  size_t num_taken_ = 0;
  bool is_whole_ = false;  // a dict gave all arguments
  std::string value_;      // current argument, "name = value", held back
  PythonLiteralEnd end_;
};

// Reads "f(" if the text after it shows that it is a call: ")", "name =", a string or a dict.
[[nodiscard]] CallHeader read_python_call(std::string_view text);

// Number of letters, digits and '_' at the beginning of `text`; with `dotted` also '.' and '-',
// which tool names may contain.
[[nodiscard]] size_t identifier_size(std::string_view text, bool dotted);

}  // namespace heddle::parsers
