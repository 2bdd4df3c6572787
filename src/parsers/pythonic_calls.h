// SPDX-License-Identifier: Apache-2.0
// PythonicCallParser reads calls written as a Python list, from the start of the answer:
//
//   [get_weather(city="Paris", days=3), now()]
//
// also between <|python_start|> and <|python_end|>. Arguments are keyword arguments with literal
// values; each is emitted once it is complete. Of two with one name the first counts.
//
// Threading: thread-compatible.
// Memory:    an argument is held, at most kMaxValueBytes; a longer one fails the call.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "parsers/python_literal.h"
#include "parsers/tool_call_parser.h"

namespace heddle::parsers {

class PythonicCallParser final : public ToolCallParser {
 public:
  static constexpr size_t kMaxValueBytes = 4 << 20;

  explicit PythonicCallParser(ToolCallParserOptions options);

  // Whether it reads a call of a tool of that name: letters, digits, '_', '.' and '-'.
  [[nodiscard]] static bool takes_name(std::string_view tool);

 private:
  [[nodiscard]] CallHeader read_header(std::string_view text, Place place) const override;
  void begin_call(const CallHeader& header, std::string_view text) override;
  Progress read_arguments(std::string_view text, size_t& used, AnswerDeltas& out) override;
  [[nodiscard]] Closing read_closing(std::string_view text) override;

  bool take_argument(AnswerDeltas& out);

  std::vector<std::string> names_;
  std::string value_;  // "name = value", held
  PythonLiteralEnd end_;
};

}  // namespace heddle::parsers
