// SPDX-License-Identifier: Apache-2.0
#include "parsers/pythonic_calls.h"

#include <utility>

#include "parsers/python_arguments.h"

namespace heddle::parsers {
namespace {

constexpr std::string_view kPythonStart = "<|python_start|>";
constexpr std::string_view kPythonEnd = "<|python_end|>";
constexpr std::string_view kPythonStartWords[] = {"pythonstart"};
constexpr std::string_view kPythonEndWords[] = {"pythonend"};
constexpr size_t kMaxListSpace = 64;

CallMarks pythonic_marks() {
  return {.markers = {kPythonStart},
          .opening_words = {kPythonStartWords[0]},
          .strays = {kPythonEnd},
          .are_special = true,
          .may_be_missing = true,
          .start_may_be_call = true};
}

}  // namespace

PythonicCallParser::PythonicCallParser(ToolCallParserOptions options)
    : ToolCallParser(pythonic_marks(), std::move(options)) {}

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
  bool is_marked = place == Place::kMarker || place == Place::kStart;
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
    is_marked = false;  // the name has to say that it is a call
  }
  CallHeader header = read_python_call(rest);
  header.size += text.size() - rest.size();
  if (header.match != Match::kYes) return header;
  header.name = names().resolve(header.name);
  if (!is_marked && !names().has(header.name) && place != Place::kNext) return {};
  return header;
}

Closing PythonicCallParser::read_closing(std::string_view text) {
  constexpr std::string_view kClosers[] = {kPythonEnd};
  return read_loose_closing(text, kClosers, kPythonEndWords, /*needs_slash=*/false);
}

}  // namespace heddle::parsers
