// SPDX-License-Identifier: Apache-2.0
// GemmaCallParser parses calls in Gemma 4's format:
//
//   <|tool_call>call:f{city:<|"|>Paris<|"|>,days:3}<tool_call|>
//
// A line that begins with "call:f{" without the mark is a call if the request has the tool. For the
// arguments see gemma_arguments.h.
//
// Threading: thread-compatible.
#pragma once

#include <optional>
#include <string_view>

#include "parsers/gemma_arguments.h"
#include "parsers/tool_call_parser.h"

namespace heddle::parsers {

class GemmaCallParser final : public ToolCallParser {
 public:
  explicit GemmaCallParser(ToolCallParserOptions options);

  // Whether calls can name this tool: '{' and some other characters end a name.
  [[nodiscard]] static bool takes_name(std::string_view tool);

 private:
  [[nodiscard]] CallHeader read_header(std::string_view text, Place place, bool is_exact,
                                       bool at_end) const override;
  [[nodiscard]] Match may_begin_line(std::string_view text) const override;
  void begin_format_call(const CallHeader& header) override;
  Progress read_arguments(std::string_view text, TextEnd end, size_t& used,
                          AnswerDeltas& out) override;
  bool finish_arguments(AnswerDeltas& out) override;
  [[nodiscard]] Closing read_closing(std::string_view text) override;

  std::optional<GemmaArguments> arguments_;
};

}  // namespace heddle::parsers
