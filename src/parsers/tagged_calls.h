// SPDX-License-Identifier: Apache-2.0
// TaggedCallParser reads calls whose arguments are tagged text, and makes JSON of them:
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
// In place of parameters a JSON object may stand. Any tag may be missing or misspelt as long as the
// others say what is meant.
//
// For the end of a value see tagged_value.h.
//
// A value's type comes from the tool's schema (parameter_type.h). Strings are emitted while they
// arrive, all else once it is complete. Of two parameters with one name the first counts. A
// parameter whose name has blanks or '<' is dropped.
//
// Threading: thread-compatible.
// Memory:    a value that is no string is held, at most kMaxValueBytes; a longer one fails the
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

  // `tools` is the request's list.
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
  std::map<std::pair<std::string, std::string>, ParameterType> types_;  // by tool and parameter
  size_t num_unknown_types_ = 0;
  const CallTags tags_;
  TaggedValueEnd value_end_;

  // Tool that is called.
  std::string tool_;
  std::set<std::string, std::less<>> names_;  // parameter names so far
  bool in_value_ = false;

  // Current parameter.
  std::string parameter_;
  bool dropped_ = false;
  bool is_string_ = false;  // the value is emitted as it arrives
  bool quote_open_ = false;
  bool value_begun_ = false;     // the value's leading line break, if any, was skipped
  std::string_view line_break_;  // around the value: "\n" or "\r\n"
  ParameterType type_;
  std::string lead_;   // text before the value, ", \"name\": ", until emitted
  std::string value_;  // held back
};

}  // namespace heddle::parsers
