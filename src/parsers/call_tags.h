// SPDX-License-Identifier: Apache-2.0
// CallTags reads the tags of formats whose calls have tagged arguments: one tag, the beginning of a
// call, the beginning of a parameter. Tags may be misspelt or doubled, and some may be missing.
//
// Threading: thread-compatible. `names` outlive it.
// Cost:      bounded: some hundreds of bytes of the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "parsers/call_header.h"
#include "parsers/loose_tag.h"
#include "parsers/marker_search.h"
#include "parsers/tool_names.h"

namespace heddle::parsers {

enum class TaggedCallFormat : uint8_t { kQwen3Coder, kGlm, kDeepseekV32, kMinimax, kSeed };

inline constexpr size_t kMaxSpaceBetweenTags = 64;
inline constexpr int kMaxTagRepeats = 3;  // repetitions of a doubled tag

// How a format spells its tags.
struct TagFormat {
  // See CallMarks.
  std::vector<std::string_view> markers;
  std::vector<std::string_view> opening_words;
  std::vector<std::string_view> strays;
  std::vector<std::string_view> other_ends;
  bool may_be_missing = false;

  // The words of its tags (loose_tag.h), each a section's, a call's, a parameter's or a value's: of
  // the first `num_sections` the words are a section's, and so on.
  std::vector<std::string_view> words;
  size_t num_sections = 0;
  size_t num_calls = 0;
  size_t num_parameters = 0;

  std::vector<std::string_view> value_ends;  // the tags that close a value
  std::vector<std::string_view> next_tags;   // the beginnings of those that may follow
  bool has_keys = false;         // a parameter is a key and a value, the tool's name stands alone
  bool call_is_mark = false;     // the call's own tag says that it is one, of whatever tool
  bool has_value_lines = false;  // a value has a line break on each side
};

[[nodiscard]] const TagFormat& tag_format_of(TaggedCallFormat format);

// The part that a tag begins or ends. In GLM's format the tool's name follows kCall, and a
// parameter is a key and a value.
enum class TagKind : uint8_t { kNone, kSection, kCall, kParameter, kValue };

struct CallTag {
  Match match = Match::kNo;
  TagKind kind = TagKind::kNone;
  bool closing = false;
  bool is_exact = false;  // spelt as the format has it
  bool is_cut = false;    // a sign behind its word is missing: "<parametercity>"
  bool is_whole = false;  // self-closing: <invoke name="f"/>
  size_t size = 0;
  std::string name = {};               // name given by the tag
  std::optional<bool> is_string = {};  // type given by the tag
};

using ParameterNames = std::set<std::string, std::less<>>;

// A parameter's opening tags.
struct ParameterOpening {
  Match match = Match::kNo;
  size_t size = 0;
  std::string name;
  std::optional<bool> is_string;
};

class CallTags {
 public:
  CallTags(TaggedCallFormat format, const ToolNames& names)
      : format_(tag_format_of(format)), names_(names) {}

  [[nodiscard]] const TagFormat& format() const { return format_; }

  // The tag that ends a value.
  [[nodiscard]] TagKind value_kind() const {
    return format_.has_keys ? TagKind::kValue : TagKind::kParameter;
  }

  // The tag at the front of `text`; with `may_be_cut` also one of which the bracket is missing
  // before a letter: "<arg_keycity".
  [[nodiscard]] CallTag read(std::string_view text, bool may_be_cut = false) const;

  // The same for an exactly spelt tag without its first bracket, "parameter=city>".
  [[nodiscard]] CallTag read_bare(std::string_view text) const;

  // Whether `text` is a value whose opening tag, or key, is missing: its closing tag and then one
  // of the call's follow, and `tool` has one parameter that is not `given` nor named before the
  // call's end, which is the value's.
  [[nodiscard]] ParameterOpening read_unopened(std::string_view text, std::string_view tool,
                                               const ParameterNames& given) const;

  // See ToolCallParser::read_header().
  [[nodiscard]] CallHeader read_header(std::string_view text, bool has_marker, bool is_exact,
                                       bool at_end) const;

  // The opening tags of a parameter of `tool`.
  [[nodiscard]] ParameterOpening read_opening(std::string_view text, std::string_view tool) const;

  // Whether `text` begins with a tag that may follow a closed value, exactly as the format has it.
  [[nodiscard]] Match begins_next_tag(std::string_view text) const;

 private:
  [[nodiscard]] Match only_parameter_left(std::string_view text, std::string_view tool,
                                          const ParameterNames& given, std::string& name) const;
  [[nodiscard]] TagKind kind_of(size_t word) const;
  [[nodiscard]] CallTag read_cut(std::string_view text, const LooseTag& loose) const;
  [[nodiscard]] Match read_tag_name(std::string_view text, CallTag& tag) const;
  [[nodiscard]] CallHeader read_call_header(std::string_view text, bool has_marker, bool is_exact,
                                            bool at_end) const;
  [[nodiscard]] CallHeader read_glm_header(std::string_view text, bool has_marker, bool is_exact,
                                           bool at_end) const;
  [[nodiscard]] Match begins_parameters(std::string_view text, bool at_end) const;
  [[nodiscard]] ParameterOpening read_glm_opening(std::string_view text,
                                                  std::string_view tool) const;

  const TagFormat& format_;
  const ToolNames& names_;
};

// Whether a tool or a parameter may have this name in a tag.
[[nodiscard]] bool is_tag_name(std::string_view name);

}  // namespace heddle::parsers
