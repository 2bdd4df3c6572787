// SPDX-License-Identifier: Apache-2.0
// CallTags parses the tags of formats whose calls have tagged arguments: a single tag, the
// beginning of a call, the beginning of a parameter. Tags may be misspelt or doubled, and some may
// be missing.
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
inline constexpr int kMaxTagRepeats = 3;  // most times that one tag may be repeated

// How a format spells its tags.
struct TagFormat {
  // Marks that may begin a call anywhere, as in CallMarks::markers.
  std::vector<std::string_view> markers;
  std::vector<std::string_view> opening_words;
  std::vector<std::string_view> strays;
  std::vector<std::string_view> other_ends;
  bool may_be_missing = false;

  // The words of its tags (loose_tag.h), sorted by kind: sections, calls, parameters, values. The
  // first `num_sections` words are those of sections, and so on.
  std::vector<std::string_view> words;
  size_t num_sections = 0;
  size_t num_calls = 0;
  size_t num_parameters = 0;

  std::vector<std::string_view> value_ends;  // tags that close a value
  std::vector<std::string_view> next_tags;   // beginnings of the tags that may follow a value
  bool has_keys = false;         // a parameter is a tagged key and a tagged value, and the tool's
                                 // name has no tag of its own
  bool call_is_mark = false;     // the tag of a call is sufficient evidence for a call, whatever
                                 // the tool's name
  bool has_value_lines = false;  // a value has a line break before it and after it
};

[[nodiscard]] const TagFormat& tag_format_of(TaggedCallFormat format);

// The part of a call that a tag begins or ends. In GLM's format the tool's name follows the kCall
// tag, and a parameter is a key and a value.
enum class TagKind : uint8_t { kNone, kSection, kCall, kParameter, kValue };

struct CallTag {
  Match match = Match::kNo;
  TagKind kind = TagKind::kNone;
  bool closing = false;
  bool is_exact = false;  // the tag is spelt exactly as in the format
  bool is_cut = false;    // the character after the tag's word is missing: "<parametercity>"
  bool is_whole = false;  // the tag closes itself: <invoke name="f"/>
  size_t size = 0;
  std::string name = {};               // tool or parameter name in the tag
  std::optional<bool> is_string = {};  // whether the tag says that the value is a string; none: it
                                       // says nothing
};

using ParameterNames = std::set<std::string, std::less<>>;

// The tags that open a parameter.
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

  // The kind of the tag that ends a value.
  [[nodiscard]] TagKind value_kind() const {
    return format_.has_keys ? TagKind::kValue : TagKind::kParameter;
  }

  // The tag at the beginning of `text`. With `may_be_cut` its closing bracket may be missing before
  // a letter: "<arg_keycity".
  [[nodiscard]] CallTag read(std::string_view text, bool may_be_cut = false) const;

  // As read(), for an exactly spelt tag without its first bracket: "parameter=city>".
  [[nodiscard]] CallTag read_bare(std::string_view text) const;

  // Whether `text` begins with a value whose opening tag, or key, is missing. This is so if the
  // value's closing tag follows and then one of the call's tags, and if exactly one parameter of
  // `tool` is neither in `given` nor named before the call's end. The value belongs to that
  // parameter.
  [[nodiscard]] ParameterOpening read_unopened(std::string_view text, std::string_view tool,
                                               const ParameterNames& given) const;

  // Reads the header of a call; see ToolCallParser::read_header().
  [[nodiscard]] CallHeader read_header(std::string_view text, bool has_marker, bool is_exact,
                                       bool at_end) const;

  // Reads the opening tags of a parameter of `tool`.
  [[nodiscard]] ParameterOpening read_opening(std::string_view text, std::string_view tool) const;

  // Whether `text` begins with a tag that may follow a closed value, spelt exactly as in the
  // format.
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

// Whether a tag can contain this name of a tool or parameter.
[[nodiscard]] bool is_tag_name(std::string_view name);

}  // namespace heddle::parsers
