// SPDX-License-Identifier: Apache-2.0
// PythonArguments: the text between the parentheses of a call as Python writes it, as a JSON
// object.
//
//   f(city="Paris", days=3)   f("Paris", 3)   f({"city": "Paris", "days": 3})
//
// Each argument is emitted once it is complete. Those without a keyword have the names of the
// tool's parameters in their order; a dict alone, whose keys are the tool's parameters, is all
// arguments. Of two with one name the first counts.
//
// Threading: thread-compatible.
// Memory:    an argument is held, at most kMaxValueBytes; a longer one fails the call.
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

  // `names` outlive it.
  PythonArguments(const ToolNames& names, std::string tool)
      : names_(&names), tool_(std::move(tool)) {}

  // Reads on, up to and with the closing parenthesis, and appends the JSON that is certain.
  Progress read(std::string_view text, size_t& used, std::string& json);

  // The text has ended before the parenthesis. True: all that was begun is complete.
  bool finish(std::string& json);

 private:
  bool take_argument(bool is_last, std::string& json);
  bool take_dict(std::string_view literal, std::string& json);
  void close(std::string& json) const;

  const ToolNames* names_;
  std::string tool_;
  std::set<std::string, std::less<>> taken_;  // names
  size_t num_taken_ = 0;
  bool is_whole_ = false;  // a dict said all
  std::string value_;      // "name = value", held
  PythonLiteralEnd end_;
};

// "f(" and what shows that it is a call: ")", "name =", a string or a dict.
[[nodiscard]] CallHeader read_python_call(std::string_view text);

// Letters, digits and '_' at the front; with `dotted` also '.' and '-', which names of tools have.
[[nodiscard]] size_t identifier_size(std::string_view text, bool dotted);

}  // namespace heddle::parsers
