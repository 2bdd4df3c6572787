// SPDX-License-Identifier: Apache-2.0
// PythonicCallParser parses calls in a Python list at the beginning of the answer or of a line:
//
//   [get_weather(city="Paris", days=3), now()]
//
// Llama 4's format also has them between <|python_start|> and <|python_end|>, LFM2's between
// <|tool_call_start|> and <|tool_call_end|>. The list's brackets may be missing for a tool of the
// request. In LFM2's format calls without a mark must be of the request's tools. A comma or a
// semicolon may separate calls. For the arguments see python_arguments.h.
//
// Threading: thread-compatible.
#pragma once

#include <cstdint>
#include <string_view>

#include "parsers/tool_call_parser.h"

namespace heddle::parsers {

enum class PythonicCallFormat : uint8_t { kLlama4, kLfm2 };

class PythonicCallParser final : public ToolCallParser {
 public:
  PythonicCallParser(PythonicCallFormat format, ToolCallParserOptions options);

  // Whether calls can name this tool: letters, digits, '_', '.' and '-'.
  [[nodiscard]] static bool takes_name(std::string_view tool);

 private:
  [[nodiscard]] CallHeader read_header(std::string_view text, Place place, bool is_exact,
                                       bool at_end) const override;
  [[nodiscard]] Match may_begin_line(std::string_view text) const override;
  [[nodiscard]] Closing read_closing(std::string_view text) override;

  const PythonicCallFormat format_;
};

}  // namespace heddle::parsers
