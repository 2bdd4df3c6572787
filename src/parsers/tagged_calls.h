// SPDX-License-Identifier: Apache-2.0
// TaggedCallParser reads calls whose arguments are tagged text, and makes JSON of them:
//
//   qwen3_coder  <tool_call>\n<function=f>\n<parameter=p>\nvalue\n</parameter>\n</function>\n
//                </tool_call>; without <tool_call> for a tool of the request
//   glm          <tool_call>f\n<arg_key>p</arg_key>\n<arg_value>value</arg_value>\n</tool_call>
//   deepseekv32  <｜DSML｜invoke name="f">\n<｜DSML｜parameter name="p" string="true">value
//                </｜DSML｜parameter>\n</｜DSML｜invoke>, between <｜DSML｜function_calls> and
//                </｜DSML｜function_calls>; also without the mark, or with a JSON object instead of
//                parameters
//
// A value ends at the first closing tag that another parameter's or the call's end follows; any
// other is part of the value. Its type comes from the tool's schema (parameter_type.h). Strings are
// emitted while they arrive, all else once it is complete. Of two parameters with one name the
// first counts. A parameter whose name has blanks or '<' is dropped.
//
// Threading: thread-compatible.
// Memory:    a value that is no string is held, at most kMaxValueBytes; a longer one fails the
// call.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "parsers/json_scanner.h"
#include "parsers/parameter_type.h"
#include "parsers/tool_call_parser.h"

namespace heddle::parsers {

enum class TaggedCallFormat { kQwen3Coder, kGlm, kDeepseekV32 };

// The tags of a format.
struct CallTags {
  std::vector<std::string_view> markers;
  std::vector<std::string_view> parameter_begin;
  std::vector<std::string_view> value_end;
  std::vector<std::string_view> call_end;
  std::vector<std::string_view> closing;      // after the call
  std::vector<std::string_view> after_value;  // parameter_begin and call_end
  bool strips_newlines = false;               // one before and one after a value
};

class TaggedCallParser final : public ToolCallParser {
 public:
  static constexpr size_t kMaxValueBytes = 4 << 20;

  // `tools` is the request's list.
  TaggedCallParser(TaggedCallFormat format, std::shared_ptr<const nlohmann::ordered_json> tools,
                   ToolCallParserOptions options);

 private:
  // A parameter's opening tags.
  struct Opening {
    Match match = Match::kNo;
    size_t size = 0;
    std::string name;
    ParameterType type;
  };

  [[nodiscard]] CallHeader read_header(std::string_view text, Place place) const override;
  void begin_call(const CallHeader& header, std::string_view text) override;
  Progress read_arguments(std::string_view text, size_t& used, AnswerDeltas& out) override;
  [[nodiscard]] Closing read_closing(std::string_view text) override;

  [[nodiscard]] CallHeader read_coder_header(std::string_view text) const;
  [[nodiscard]] CallHeader read_glm_header(std::string_view text) const;
  [[nodiscard]] CallHeader read_dsml_header(std::string_view text) const;
  [[nodiscard]] bool is_tool(std::string_view name) const;
  [[nodiscard]] Opening read_opening(std::string_view text, std::string_view tag) const;
  Progress read_between(std::string_view text, size_t& used, AnswerDeltas& out);
  Progress read_value(std::string_view text, size_t& used, AnswerDeltas& out);
  bool take_value(std::string_view piece, bool last, AnswerDeltas& out);
  void begin_string(AnswerDeltas& out);

  const TaggedCallFormat format_;
  const CallTags tags_;
  const std::shared_ptr<const nlohmann::ordered_json> tools_;

  // Of the call.
  std::string tool_;
  std::vector<std::string> names_;   // of its parameters
  std::optional<JsonScanner> json_;  // in place of parameters
  bool in_value_ = false;

  // Of the parameter.
  bool dropped_ = false;
  bool is_string_ = false;  // its value is emitted while it arrives
  bool quote_open_ = false;
  bool value_begun_ = false;  // its first line break, if there was one, was passed
  ParameterType type_;
  std::string lead_;   // ", \"name\": ", until it is emitted
  std::string value_;  // held
};

}  // namespace heddle::parsers
