// SPDX-License-Identifier: Apache-2.0
// TaggedValueEnd finds the end of a parameter's value, which is text between tags and may hold any
// tags itself.
//
// A value ends at the first closing tag that another parameter's or the call's end follows; any
// other is part of the value. Where that tag is missing it ends at another parameter of the tool
// whose tag begins a line, or at the call's end, if what follows that is no text.
//
// A text value may quote a whole call. The calls that begin inside a text are counted, so that a
// quoted call's closing tags do not end the text. The end is uncertain at two kinds of tag: a known
// tool's call that begins a line, and a call's closing tag that ends a line and has text after it.
// If a certain end (the rule above) comes later, both belong to the value. If the answer stops
// first, the value's own closing tag is missing: the value ends at the first uncertain tag, and the
// text after it is read as calls and content. From then on uncertain tags end values at once, so
// that no text is read more than twice.
//
// From the first uncertain tag on, the value is held back until its end is certain, or until
// kMaxDoubtBytes have come, which then are the value's. A value that cannot be a string holds no
// quoted call: it ends where the next call begins. In an answer that was cut off, uncertain tags
// belong to the value.
//
// Threading: thread-compatible. The tags, the names and the set of parameters outlive it.
// Cost:      O(text), however it arrives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "parsers/answer_delta.h"
#include "parsers/call_tags.h"
#include "parsers/tool_names.h"

namespace heddle::parsers {

class TaggedValueEnd {
 public:
  static constexpr size_t kMaxDoubtBytes = 1 << 20;

  // `is_exact`: the answer is held to the format's spelling.
  TaggedValueEnd(const CallTags& tags, const ToolNames& names, bool is_exact)
      : tags_(tags), names_(names), is_exact_(is_exact) {}

  struct Value {
    std::string tool;
    const std::set<std::string, std::less<>>* parameters = nullptr;  // parameters of the call so
                                                                     // far
    bool may_hold_call = false;                                      // the value may be a string
  };

  // A value begins.
  void begin(Value value);

  struct Scan {
    size_t size = 0;         // bytes that belong to the value
    bool ends = false;       // the value ends after them
    size_t behind = 0;       // where the text after the end begins
    bool is_closed = false;  // by the value's closing tag
  };

  // Looks for the end in `text`, the part of the value that was not passed yet.
  [[nodiscard]] Scan find(std::string_view text, TextEnd end);

  // The first `used` bytes of find()'s text are read; of these `piece` is the value's.
  void pass(size_t used, std::string_view piece);

 private:
  // Whether a value ends at a tag, and where what belongs to that ends.
  struct TagEnd {
    Match match = Match::kNo;
    size_t size = 0;
    bool in_doubt = false;  // the value ends here only if no certain end comes later
  };

  // The first uncertain tag of a value.
  struct Doubt {
    size_t position = 0;
    size_t size = 0;  // bytes of the closing tag, which are not the value's
  };

  // How far the value was read. Positions count from the first byte that was not passed.
  struct TagScan {
    size_t position = 0;         // tags before this are decided
    bool one_line = true;        // no line break since the value's tag
    std::string open_tags = {};  // open tags of calls inside the value: kOpenSection, kOpenCall
    int64_t num_open_calls = 0;  // open calls among those tags
    std::optional<Doubt> doubt = {};
  };

  [[nodiscard]] TagEnd read_exact_end(std::string_view text) const;
  [[nodiscard]] TagEnd read_bare_end(std::string_view text, char before, TextEnd end) const;
  [[nodiscard]] TagEnd decide_tag(std::string_view text, bool line_begins, TextEnd end);
  [[nodiscard]] TagEnd value_ends_at(const CallTag& tag, std::string_view text, bool line_begins,
                                     bool one_line, TextEnd end) const;
  [[nodiscard]] Match ends_call(std::string_view text, bool closed, TextEnd end) const;
  [[nodiscard]] CallHeader read_inner_header(const CallTag& tag, std::string_view text,
                                             TextEnd end) const;
  void close_inner_call(TagKind kind);
  void doubt(const TagEnd& end);

  const CallTags& tags_;
  const ToolNames& names_;
  const bool is_exact_;
  bool doubts_end_ = false;  // a value's closing tag was missing: later values end at doubts
  Value value_;
  char last_byte_ = ' ';  // that was passed of the value
  TagScan scan_;
};

}  // namespace heddle::parsers
