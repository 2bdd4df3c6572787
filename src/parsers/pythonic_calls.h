// SPDX-License-Identifier: Apache-2.0
// PythonicCallParser reads calls written as a Python list, where the answer or a line begins:
//
//   [get_weather(city="Paris", days=3), now()]
//
// also between <|python_start|> and <|python_end|>, and of one of the request's tools without the
// brackets. Arguments are keyword arguments with literal values; each is emitted once it is
// complete. Those without a keyword have the names of the tool's parameters in their order. Of two
// with one name the first counts.
//
// Threading: thread-compatible.
// Memory:    an argument is held, at most kMaxValueBytes; a longer one fails the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "parsers/python_literal.h"
#include "parsers/tool_call_parser.h"

namespace heddle::parsers {

// PythonArguments: the text between a call's parentheses, as a JSON object.
class PythonArguments {
 public:
  static constexpr size_t kMaxValueBytes = 4 << 20;

  enum class State : uint8_t { kMore, kDone, kFailed };

  // `parameters` are the tool's, and outlive it.
  explicit PythonArguments(const std::vector<std::string>& parameters) : parameters_(&parameters) {}

  // Reads on, up to and with the closing parenthesis, and appends the JSON that is certain.
  State read(std::string_view text, size_t& used, std::string& json);

  // The text has ended before the parenthesis. True: all that was begun is complete.
  bool finish(std::string& json);

 private:
  bool take_argument(std::string& json);

  const std::vector<std::string>* parameters_;
  std::set<std::string, std::less<>> names_;
  size_t num_taken_ = 0;
  std::string value_;  // "name = value", held
  PythonLiteralEnd end_;
};

// "f(" and what shows that it is a call: ")", "name =" or a literal.
[[nodiscard]] CallHeader read_python_call(std::string_view text);

class PythonicCallParser final : public ToolCallParser {
 public:
  explicit PythonicCallParser(ToolCallParserOptions options);

  // Whether it reads a call of a tool of that name: letters, digits, '_', '.' and '-'.
  [[nodiscard]] static bool takes_name(std::string_view tool);

 private:
  [[nodiscard]] CallHeader read_header(std::string_view text, Place place, bool is_exact,
                                       bool at_end) const override;
  [[nodiscard]] Match may_begin_line(std::string_view text) const override;
  void begin_call(const CallHeader& header, std::string_view text) override;
  Progress read_arguments(std::string_view text, TextEnd end, size_t& used,
                          AnswerDeltas& out) override;
  bool finish_arguments(std::string_view text, AnswerDeltas& out) override;
  [[nodiscard]] Closing read_closing(std::string_view text) override;

  static const std::vector<std::string> kNoParameters;
  PythonArguments arguments_{kNoParameters};
};

}  // namespace heddle::parsers
