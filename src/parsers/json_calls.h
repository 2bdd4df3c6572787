// SPDX-License-Identifier: Apache-2.0
// JsonCallParser reads calls whose arguments are a JSON object:
//
//   qwen      <tool_call>\n{"name": "f", "arguments": {..}}\n</tool_call>
//   llama3    {"name": "f", "parameters": {..}}, from the start of the answer or <|python_tag|> on;
//             <|python_tag|>f.call(x=1)
//   mistral   [TOOL_CALLS][{"name": "f", "arguments": {..}, "id": ".."}], or
//             [TOOL_CALLS]f[CALL_ID]..[ARGS]{..}
//   deepseek  <｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{..}\n```<｜tool▁call▁end｜>,
//   or
//             <｜tool▁call▁begin｜>f<｜tool▁sep｜>{..}<｜tool▁call▁end｜>, between
//             <｜tool▁calls▁begin｜> and <｜tool▁calls▁end｜>
//   kimi_k2   <|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{..}<|tool_call_end|>,
//             between <|tool_calls_section_begin|> and <|tool_calls_section_end|>
//
// Arguments are passed on as they are written, where that is JSON (json_scanner.h). They may stand
// before the name, or be a text that says an object: then they are emitted once that is whole, at
// most kMaxTextBytes.
//
// Threading: thread-compatible.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parsers/json_scanner.h"
#include "parsers/pythonic_calls.h"
#include "parsers/tool_call_parser.h"

namespace heddle::parsers {

enum class JsonCallFormat { kQwen, kLlama3, kMistral, kDeepseek, kKimi };

class JsonCallParser final : public ToolCallParser {
 public:
  JsonCallParser(JsonCallFormat format, ToolCallParserOptions options);

 private:
  static constexpr size_t kMaxTextBytes = 4 << 20;

  [[nodiscard]] CallHeader read_header(std::string_view text, Place place, bool is_exact,
                                       bool at_end) const override;
  [[nodiscard]] Match may_begin_line(std::string_view text) const override;
  void begin_call(const CallHeader& header, std::string_view text) override;
  Progress read_arguments(std::string_view text, TextEnd end, size_t& used,
                          AnswerDeltas& out) override;
  bool finish_arguments(std::string_view text, AnswerDeltas& out) override;
  [[nodiscard]] Closing read_closing(std::string_view text) override;
  Progress read_text_arguments(std::string_view text, size_t& used, AnswerDeltas& out);
  [[nodiscard]] static Match begins_end(std::string_view text);

  const JsonCallFormat format_;
  const std::vector<std::string_view> closers_;

  // Of the call: its arguments are an object, a text that says one, or Python's.
  JsonScanner arguments_;
  std::optional<std::string> text_;
  bool text_is_escaped_ = false;  // a backslash came before
  std::optional<PythonArguments> python_;
  std::optional<JsonScanner> tail_;  // of the objects around the arguments
};

}  // namespace heddle::parsers
