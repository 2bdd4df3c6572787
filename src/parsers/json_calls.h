// SPDX-License-Identifier: Apache-2.0
// JsonCallParser parses calls whose arguments are a JSON object:
//
//   qwen      <tool_call>\n{"name": "f", "arguments": {..}}\n</tool_call>
//   llama3    {"name": "f", "parameters": {..}}, from the start of the answer or <|python_tag|> on;
//             <|python_tag|>f.call(x=1); <function=f>{..}</function>
//   mistral   [TOOL_CALLS][{"name": "f", "arguments": {..}, "id": ".."}], or
//             [TOOL_CALLS]f[CALL_ID]..[ARGS]{..}
//   deepseek  <｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{..}\n```<｜tool▁call▁end｜>,
//   or
//             <｜tool▁call▁begin｜>f<｜tool▁sep｜>{..}<｜tool▁call▁end｜>, between
//             <｜tool▁calls▁begin｜> and <｜tool▁calls▁end｜>
//   kimi_k2   <|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{..}<|tool_call_end|>,
//             between <|tool_calls_section_begin|> and <|tool_calls_section_end|>
//   granite   <|tool_call|>[{"name": "f", "arguments": {..}}]
//   nemotron  <TOOLCALL>[{"name": "f", "arguments": {..}}]</TOOLCALL>
//   cohere    <|START_ACTION|>[{"tool_call_id": "0", "tool_name": "f", "parameters": {..}}]
//             <|END_ACTION|>
//
// Arguments that are valid JSON are emitted as they are written (json_arguments.h). If they precede
// the name (call_object.h), they are emitted when the call is complete.
//
// Threading: thread-compatible.
#pragma once

#include <string_view>
#include <vector>

#include "parsers/tool_call_parser.h"

namespace heddle::parsers {

enum class JsonCallFormat {
  kQwen,
  kLlama3,
  kMistral,
  kDeepseek,
  kKimi,
  kGranite,
  kNemotron,
  kCohere,
};

class JsonCallParser final : public ToolCallParser {
 public:
  JsonCallParser(JsonCallFormat format, ToolCallParserOptions options);

 private:
  [[nodiscard]] CallHeader read_header(std::string_view text, Place place, bool is_exact,
                                       bool at_end) const override;
  [[nodiscard]] Match may_begin_line(std::string_view text) const override;
  [[nodiscard]] Closing read_closing(std::string_view text) override;

  const JsonCallFormat format_;
  const std::vector<std::string_view> closers_;
};

}  // namespace heddle::parsers
