// SPDX-License-Identifier: Apache-2.0
// PythonicCallParser reads calls written as a Python list, where the answer or a line begins:
//
//   [get_weather(city="Paris", days=3), now()]
//
// in Llama 4's format also between <|python_start|> and <|python_end|>, in LFM2's between
// <|tool_call_start|> and <|tool_call_end|>, and of one of the request's tools without the
// brackets. Without a mark, LFM2's are calls of one of the request's tools only. A call may follow
// another behind a comma or a semicolon. For arguments see python_arguments.h.
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

  // Whether it reads a call of a tool of that name: letters, digits, '_', '.' and '-'.
  [[nodiscard]] static bool takes_name(std::string_view tool);

 private:
  [[nodiscard]] CallHeader read_header(std::string_view text, Place place, bool is_exact,
                                       bool at_end) const override;
  [[nodiscard]] Match may_begin_line(std::string_view text) const override;
  [[nodiscard]] Closing read_closing(std::string_view text) override;

  const PythonicCallFormat format_;
};

}  // namespace heddle::parsers
