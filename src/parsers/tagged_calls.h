// SPDX-License-Identifier: Apache-2.0
// TaggedCallParser reads calls whose arguments are tagged text, and makes JSON of them:
//
//   qwen3_coder  <tool_call>\n<function=f>\n<parameter=p>\nvalue\n</parameter>\n</function>\n
//                </tool_call>; without <tool_call> for a tool of the request
//   glm          <tool_call>f\n<arg_key>p</arg_key>\n<arg_value>value</arg_value>\n</tool_call>
//   deepseekv32  <｜DSML｜invoke name="f">\n<｜DSML｜parameter name="p" string="true">value
//                </｜DSML｜parameter>\n</｜DSML｜invoke>, between <｜DSML｜function_calls> and
//                </｜DSML｜function_calls>; also without the mark
//
// In place of parameters a JSON object may stand. Any tag may be missing or misspelt as long as the
// others say what is meant.
//
// A value ends at the first closing tag that another parameter's or the call's end follows; any
// other is part of the value. Where that tag is missing it ends at another parameter of the tool
// whose tag begins a line, or at the call's end, if what follows that is no text.
//
// A text value may quote a whole call. The parser counts the calls that begin inside a text, so
// that a quoted call's closing tags do not end the text. The end is uncertain at two kinds of tag:
// a known tool's call that begins a line, and a call's closing tag that ends a line and has text
// after it. If a certain end (the rule above) comes later, both belong to the value. If the answer
// stops first, the value's own closing tag is missing: the value ends at the first uncertain tag,
// and the text after it is read as calls and content. From then on uncertain tags end values at
// once, so that no text is read more than twice.
//
// From the first uncertain tag on, the value is held back until its end is certain, or until
// kMaxDoubtBytes have come, which then are the value's. A value that cannot be a string holds no
// quoted call: it ends where the next call begins. In an answer that was cut off, uncertain tags
// belong to the value.
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
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "parsers/parameter_type.h"
#include "parsers/tool_call_parser.h"

namespace heddle::parsers {

enum class TaggedCallFormat : uint8_t { kQwen3Coder, kGlm, kDeepseekV32 };

class TaggedCallParser final : public ToolCallParser {
 public:
  static constexpr size_t kMaxValueBytes = 4 << 20;
  static constexpr size_t kMaxDoubtBytes = 1 << 20;

  // `tools` is the request's list.
  TaggedCallParser(TaggedCallFormat format, std::shared_ptr<const nlohmann::ordered_json> tools,
                   ToolCallParserOptions options);

 private:
  // TagKind: the thing that a tag begins or ends. In GLM's format kCall has the tool's name behind
  // it, and a parameter is a key and a value.
  enum class TagKind : uint8_t { kNone, kSection, kCall, kParameter, kValue };

  struct CallTag {
    Match match = Match::kNo;
    TagKind kind = TagKind::kNone;
    bool closing = false;
    bool is_exact = false;  // spelt as the format has it
    size_t size = 0;
    std::string name = {};               // that it says
    std::optional<bool> is_string = {};  // likewise
  };

  // A parameter's opening tags.
  struct Opening {
    Match match = Match::kNo;
    size_t size = 0;
    std::string name;
    std::optional<bool> is_string;
  };

  // Whether a value ends at a tag, and where what belongs to that ends.
  struct ValueEnd {
    Match match = Match::kNo;
    size_t size = 0;
    bool in_doubt = false;  // the value ends here only if no certain end comes later
  };

  // The first uncertain tag of a value.
  struct Doubt {
    size_t position = 0;
    size_t size = 0;  // bytes of the closing tag, which are not the value's
  };

  // How far a value was read. Positions count from the first byte that was not used.
  struct TagScan {
    size_t position = 0;         // tags before it are decided
    bool one_line = true;        // no line break since the value's tag
    std::string open_tags = {};  // of calls inside of the value: kOpenSection, kOpenCall
    int64_t num_open_calls = 0;  // among them
    std::optional<Doubt> doubt = {};
  };

  [[nodiscard]] CallHeader read_header(std::string_view text, Place place, bool is_exact,
                                       bool at_end) const override;
  [[nodiscard]] Match may_begin_line(std::string_view text) const override;
  void begin_call(const CallHeader& header) override;
  Progress read_arguments(std::string_view text, TextEnd end, size_t& used,
                          AnswerDeltas& out) override;
  bool finish_arguments(AnswerDeltas& out) override;
  [[nodiscard]] Closing read_closing(std::string_view text) override;

  [[nodiscard]] CallTag read_tag(std::string_view text) const;
  [[nodiscard]] Match read_tag_name(std::string_view text, CallTag& tag) const;
  [[nodiscard]] CallHeader read_call_header(std::string_view text, Place place, bool is_exact,
                                            bool at_end) const;
  [[nodiscard]] CallHeader read_glm_header(std::string_view text, Place place, bool is_exact,
                                           bool at_end) const;
  [[nodiscard]] Match begins_parameters(std::string_view text, bool at_end) const;
  [[nodiscard]] Opening read_opening(std::string_view text) const;
  [[nodiscard]] Opening read_glm_opening(std::string_view text, std::string_view tool) const;
  [[nodiscard]] ValueEnd value_ends_at(const CallTag& tag, std::string_view text, bool line_begins,
                                       bool one_line, TextEnd end) const;
  [[nodiscard]] CallHeader read_inner_header(const CallTag& tag, std::string_view text,
                                             TextEnd end) const;
  [[nodiscard]] ValueEnd decide_tag(std::string_view text, bool line_begins, TextEnd end);
  void close_inner_call(TagKind kind);
  void doubt(const ValueEnd& end);
  [[nodiscard]] static ValueEnd exact_value_end(TaggedCallFormat format, std::string_view text);
  // Whether `text` begins with a tag that may follow a closed value, exactly as the format has it.
  [[nodiscard]] static Match begins_next_tag(TaggedCallFormat format, std::string_view text);
  [[nodiscard]] Match ends_call(std::string_view text, bool closed, TextEnd end) const;
  Progress read_between(std::string_view text, TextEnd end, size_t& used, AnswerDeltas& out);
  Progress read_value(std::string_view text, TextEnd end, size_t& used, AnswerDeltas& out);
  void begin_value(const Opening& opening);
  bool take_value(std::string_view piece, bool last, AnswerDeltas& out);
  void begin_string(AnswerDeltas& out);
  void end_arguments(AnswerDeltas& out);
  [[nodiscard]] const ParameterType& type_of(const std::string& parameter);

  const TaggedCallFormat format_;
  const std::shared_ptr<const nlohmann::ordered_json> tools_;
  std::map<std::pair<std::string, std::string>, ParameterType> types_;  // by tool and parameter
  size_t num_unknown_types_ = 0;

  // Of the call.
  std::string tool_;
  std::set<std::string, std::less<>> names_;  // of its parameters
  bool in_value_ = false;

  // Of the parameter.
  std::string parameter_;
  bool dropped_ = false;
  bool is_string_ = false;  // its value is emitted while it arrives
  bool quote_open_ = false;
  bool value_begun_ = false;  // its first line break, if there was one, was passed
  bool line_begins_ = false;  // behind what was read of it
  bool doubts_end_ = false;   // a value's closing tag was missing: later values end at doubts
  TagScan scan_;
  ParameterType type_;
  std::string lead_;   // ", \"name\": ", until it is emitted
  std::string value_;  // held
};

}  // namespace heddle::parsers
