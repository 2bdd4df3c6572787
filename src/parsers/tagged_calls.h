// SPDX-License-Identifier: Apache-2.0
// TaggedCallParser parses calls whose arguments are tagged text, and converts them to JSON:
//
//   qwen3_coder  <tool_call>\n<function=f>\n<parameter=p>\nvalue\n</parameter>\n</function>\n
//                </tool_call>; without <tool_call> for a tool of the request
//   glm          <tool_call>f\n<arg_key>p</arg_key>\n<arg_value>value</arg_value>\n</tool_call>
//   deepseekv32  <｜DSML｜invoke name="f">\n<｜DSML｜parameter name="p" string="true">value
//                </｜DSML｜parameter>\n</｜DSML｜invoke>, between <｜DSML｜function_calls> and
//                </｜DSML｜function_calls>; also without the mark
//   minimax_m2   <invoke name="f">\n<parameter name="p">value</parameter>\n</invoke>, between
//                <minimax:tool_call> and </minimax:tool_call>; also without the mark
//   seed_oss     as qwen3_coder, between <seed:tool_call> and </seed:tool_call>, and no line breaks
//                around values
//
// A JSON object may replace the parameters. Any tag may be missing or misspelt if the others
// identify its meaning.
//
// tagged_value.h finds the end of a value.
//
// A value's type comes from the tool's schema (parameter_type.h). Strings are emitted while they
// arrive, other values when they are complete. Of two parameters with one name the first one is
// used. A parameter whose name contains blanks or '<' is dropped.
//
// Threading: thread-compatible.
// Memory: a value that is not a string is held back, at most kMaxValueBytes; a longer one fails the
// call.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "parsers/call_tags.h"
#include "parsers/parameter_type.h"
#include "parsers/tagged_value.h"
#include "parsers/tool_call_parser.h"

namespace heddle::parsers {

class TaggedCallParser final : public ToolCallParser {
 public:
  static constexpr size_t kMaxValueBytes = 4 << 20;

  // `tools` is the request's list of tools.
  TaggedCallParser(TaggedCallFormat format, std::shared_ptr<const nlohmann::ordered_json> tools,
                   ToolCallParserOptions options);

 private:
  [[nodiscard]] CallHeader read_header(std::string_view text, Place place, bool is_exact,
                                       bool at_end) const override;
  [[nodiscard]] Match may_begin_line(std::string_view text) const override;
  void begin_format_call(const CallHeader& header) override;
  Progress read_arguments(std::string_view text, TextEnd end, size_t& used,
                          AnswerDeltas& out) override;
  bool finish_arguments(AnswerDeltas& out) override;
  [[nodiscard]] Closing read_closing(std::string_view text) override;

  Progress read_between(std::string_view text, TextEnd end, size_t& used, AnswerDeltas& out);
  Progress read_value(std::string_view text, TextEnd end, size_t& used, AnswerDeltas& out);
  void begin_value(const ParameterOpening& opening);
  bool take_value(std::string_view piece, bool last, AnswerDeltas& out);
  void begin_string(AnswerDeltas& out);
  void end_arguments(AnswerDeltas& out);
  [[nodiscard]] const ParameterType& type_of(const std::string& parameter);

  const std::shared_ptr<const nlohmann::ordered_json> tools_;
  // types of parameters, by (tool, parameter)
  std::map<std::pair<std::string, std::string>, ParameterType> types_;
  size_t num_unknown_types_ = 0;
  const CallTags tags_;
  TaggedValueEnd value_end_;

  // Name of the tool in the current call.
  std::string tool_;
  std::set<std::string, std::less<>> names_;  // names of the call's parameters so far
  bool in_value_ = false;

  // Name of the current parameter.
  std::string parameter_;
  bool dropped_ = false;
  bool is_string_ = false;  // the current value is a string and is emitted as it arrives
  bool quote_open_ = false;
  bool value_begun_ = false;     // the value's leading line break, if any, has been skipped
  std::string_view line_break_;  // line break around the value: "\n" or "\r\n"
  ParameterType type_;
  std::string lead_;   // JSON text before the value, ", \"name\": ", that is not emitted yet
  std::string value_;  // text of the value that is held back
};

}  // namespace heddle::parsers
