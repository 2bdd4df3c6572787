// SPDX-License-Identifier: Apache-2.0
#include "parsers/pythonic_calls.h"

#include <utility>

#include "parsers/python_arguments.h"

namespace heddle::parsers {
namespace {

constexpr size_t kMaxListSpace = 64;

// The marks around a format's lists of calls, and the words of similar tags.
struct ListMarks {
  std::string_view open;
  std::string_view close;
  std::string_view open_word;
  std::string_view close_word;
  bool start_may_be_call = false;  // as CallMarks::start_may_be_call
};

constexpr ListMarks kListMarks[] = {{.open = "<|python_start|>",
                                     .close = "<|python_end|>",
                                     .open_word = "pythonstart",
                                     .close_word = "pythonend",
                                     .start_may_be_call = true},
                                    {.open = "<|tool_call_start|>",
                                     .close = "<|tool_call_end|>",
                                     .open_word = "toolcallstart",
                                     .close_word = "toolcallend"}};

const ListMarks& list_marks_of(PythonicCallFormat format) {
  return kListMarks[static_cast<size_t>(format)];
}

CallMarks pythonic_marks(const ListMarks& marks) {
  return {.markers = {marks.open},
          .opening_words = {marks.open_word},
          .strays = {marks.close},
          .are_special = true,
          .may_be_missing = true,
          .start_may_be_call = marks.start_may_be_call};
}

}  // namespace

PythonicCallParser::PythonicCallParser(PythonicCallFormat format, ToolCallParserOptions options)
    : ToolCallParser(pythonic_marks(list_marks_of(format)), std::move(options)), format_(format) {}

bool PythonicCallParser::takes_name(std::string_view tool) {
  return !tool.empty() && tool.size() <= kMaxNameBytes &&
         identifier_size(tool, /*dotted=*/true) == tool.size();
}

Match PythonicCallParser::may_begin_line(std::string_view text) const {
  if (text.front() == '[') return Match::kYes;
  std::string_view name;
  const Match match = names().begins_with_name(text, name);
  if (match != Match::kYes) return match;
  return text.substr(name.size()).starts_with('(') ? Match::kYes : Match::kNo;
}

CallHeader PythonicCallParser::read_header(std::string_view text, Place place, bool, bool) const {
  std::string_view rest = text;
  const bool is_call_at_start = place == Place::kStart && list_marks_of(format_).start_may_be_call;
  bool is_marked = place == Place::kMarker || is_call_at_start;
  for (int mark = 0; place == Place::kMarker && mark < 3; ++mark) {
    const LooseTag tag = read_loose_tag(rest);
    if (tag.match == Match::kMore) return {.match = Match::kMore};
    if (tag.match != Match::kYes || !is_opening(tag)) break;
    rest.remove_prefix(tag.size);
    rest.remove_prefix(space_size(rest.substr(0, kMaxListSpace)));
  }
  rest.remove_prefix(space_size(rest));
  if (rest.empty()) return {.match = Match::kMore};
  const std::string_view begins = place == Place::kNext ? ",;" : "[";
  const auto at_begin = [&] { return !rest.empty() && begins.find(rest.front()) != begins.npos; };
  if (at_begin()) {
    for (int count = 0; count < 2 && at_begin(); ++count) {
      rest.remove_prefix(1);
      rest.remove_prefix(space_size(rest));
    }
    if (rest.empty()) return {.match = Match::kMore};
  } else {
    is_marked = false;  // without a mark, the tool's name must show that it is a call
  }
  CallHeader header = read_python_call(rest);
  header.size += text.size() - rest.size();
  if (header.match != Match::kYes) return header;
  header.name = names().resolve(header.name);
  if (!is_marked && !names().has(header.name) && place != Place::kNext) return {};
  return header;
}

Closing PythonicCallParser::read_closing(std::string_view text) {
  const ListMarks& marks = list_marks_of(format_);
  return read_loose_closing(text, {&marks.close, 1}, {&marks.close_word, 1},
                            /*needs_slash=*/false);
}

}  // namespace heddle::parsers
