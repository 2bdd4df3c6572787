// SPDX-License-Identifier: Apache-2.0
// TaggedValueEnd finds the end of a parameter's value, which is text between tags and may itself
// contain any tags.
//
// A value ends at the first of its closing tags after which another parameter or the call's end
// follows; other closing tags are part of the value. If that tag is missing, the value ends at
// another parameter of the tool whose tag begins a line, or at the call's end, provided that no
// text follows the call. A closing tag that has the parameter's name, "</city>", ends the value
// where another parameter follows, or the call's end under the same condition.
//
// A text value may quote a whole call. Calls that begin inside a text are counted, so that a quoted
// call's closing tags do not end the text. The end is uncertain at two kinds of tags: one that
// begins a line and a call of a known tool, and a call's closing tag that ends a line and has text
// after it. If a certain end (by the rule above) comes later, these tags belong to the value. If
// the answer stops first, the value's own closing tag is missing: the value ends at the first
// uncertain tag, and the text after it is read as calls and content. From then on uncertain tags
// end values at once, so that no text is read more than twice.
//
// From the first uncertain tag on, the value is held back until its end is certain, or until
// kMaxDoubtBytes have arrived, which then belong to the value. A value that cannot be a string
// contains no quoted call: it ends where the next call begins. In an answer that was cut off,
// uncertain tags belong to the value.
//
// Threading: thread-compatible. The tags, the names and the set of parameters must outlive this
// object.
// Cost:      O(text), however it is split.
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

  // `is_exact`: the answer is constrained to the format's spelling.
  TaggedValueEnd(const CallTags& tags, const ToolNames& names, bool is_exact)
      : tags_(tags), names_(names), is_exact_(is_exact) {}

  struct Value {
    std::string tool;
    std::string name;  // of the parameter, as its opening tag spells it
    // names of the call's parameters so far
    const std::set<std::string, std::less<>>* parameters = nullptr;
    // the value may be a string, which can quote a call
    bool may_hold_call = false;
  };

  // Begins the search for the end of a value.
  void begin(Value value);

  struct Scan {
    size_t size = 0;         // number of bytes that belong to the value
    bool ends = false;       // true: the value ends after these bytes
    size_t behind = 0;       // position in the text after the value's end
    bool is_closed = false;  // true: the value's closing tag ended it
  };

  // Searches for the end in `text`, the part of the value that pass() has not consumed.
  [[nodiscard]] Scan find(std::string_view text, TextEnd end);

  // Consumes the first `used` bytes of find()'s text; `piece` is the part of them that belongs to
  // the value.
  void pass(size_t used, std::string_view piece);

 private:
  // Whether a value ends at a tag, and the position after everything that belongs to that end.
  struct TagEnd {
    Match match = Match::kNo;
    size_t size = 0;
    bool in_doubt = false;  // the end is uncertain: it holds only if no certain end comes later
  };

  // The first uncertain tag of a value.
  struct Doubt {
    size_t position = 0;
    size_t size = 0;  // bytes of the closing tag, which do not belong to the value
  };

  // The progress of find() in a value. Positions count from the first byte that was not consumed.
  struct TagScan {
    size_t position = 0;         // all tags before this position are decided
    bool one_line = true;        // no line break since the value's opening tag
    std::string open_tags = {};  // open tags of calls inside the value: kOpenSection, kOpenCall
    int64_t num_open_calls = 0;  // open calls among those tags
    std::optional<Doubt> doubt = {};
  };

  [[nodiscard]] TagEnd read_exact_end(std::string_view text) const;
  [[nodiscard]] TagEnd read_bare_end(std::string_view text, char before, TextEnd end) const;
  [[nodiscard]] TagEnd read_named_end(std::string_view text, TextEnd end) const;
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
  bool doubts_end_ = false;  // an earlier value had no closing tag: values now end at uncertain
                             // tags
  Value value_;
  char last_byte_ = ' ';  // last consumed byte of the value
  TagScan scan_;
};

}  // namespace heddle::parsers
