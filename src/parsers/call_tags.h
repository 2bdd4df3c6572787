// SPDX-License-Identifier: Apache-2.0
// CallTags reads the tags of formats whose calls have tagged arguments: one tag, the beginning of a
// call, the beginning of a parameter. Tags may be misspelt or doubled, and some may be missing.
//
// Threading: thread-compatible. `names` outlive it.
// Cost:      bounded: some hundreds of bytes of the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "parsers/call_header.h"
#include "parsers/marker_search.h"
#include "parsers/tool_names.h"

namespace heddle::parsers {

enum class TaggedCallFormat : uint8_t { kQwen3Coder, kGlm, kDeepseekV32 };

inline constexpr size_t kMaxSpaceBetweenTags = 64;
inline constexpr int kMaxTagRepeats = 3;  // of a tag that is doubled

// The thing that a tag begins or ends. In GLM's format kCall has the tool's name behind it, and a
// parameter is a key and a value.
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
struct ParameterOpening {
  Match match = Match::kNo;
  size_t size = 0;
  std::string name;
  std::optional<bool> is_string;
};

class CallTags {
 public:
  CallTags(TaggedCallFormat format, const ToolNames& names) : format_(format), names_(names) {}

  [[nodiscard]] TaggedCallFormat format() const { return format_; }

  // The tag that ends a value.
  [[nodiscard]] TagKind value_kind() const {
    return format_ == TaggedCallFormat::kGlm ? TagKind::kValue : TagKind::kParameter;
  }

  // The words of the format's tags (loose_tag.h).
  [[nodiscard]] std::span<const std::string_view> words() const;

  // The tag at the front of `text`.
  [[nodiscard]] CallTag read(std::string_view text) const;

  // See ToolCallParser::read_header().
  [[nodiscard]] CallHeader read_header(std::string_view text, bool has_marker, bool is_exact,
                                       bool at_end) const;

  // The opening tags of a parameter of `tool`.
  [[nodiscard]] ParameterOpening read_opening(std::string_view text, std::string_view tool) const;

  // Whether `text` begins with a tag that may follow a closed value, exactly as the format has it.
  [[nodiscard]] Match begins_next_tag(std::string_view text) const;

 private:
  [[nodiscard]] Match read_tag_name(std::string_view text, CallTag& tag) const;
  [[nodiscard]] CallHeader read_call_header(std::string_view text, bool has_marker, bool is_exact,
                                            bool at_end) const;
  [[nodiscard]] CallHeader read_glm_header(std::string_view text, bool has_marker, bool is_exact,
                                           bool at_end) const;
  [[nodiscard]] Match begins_parameters(std::string_view text, bool at_end) const;
  [[nodiscard]] ParameterOpening read_glm_opening(std::string_view text,
                                                  std::string_view tool) const;

  const TaggedCallFormat format_;
  const ToolNames& names_;
};

// Whether a tool or a parameter may have this name in a tag.
[[nodiscard]] bool is_tag_name(std::string_view name);

}  // namespace heddle::parsers
