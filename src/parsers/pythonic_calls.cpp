// SPDX-License-Identifier: Apache-2.0
#include "parsers/pythonic_calls.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "parsers/json_scanner.h"

namespace heddle::parsers {
namespace {

constexpr std::string_view kPythonStart = "<|python_start|>";
constexpr std::string_view kPythonEnd = "<|python_end|>";
constexpr std::string_view kPythonStartWords[] = {"pythonstart"};
constexpr std::string_view kPythonEndWords[] = {"pythonend"};
constexpr size_t kMaxListSpace = 64;

bool is_identifier_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Letters, digits and '_' at the front; with `dotted` also '.' and '-', which names of tools have.
size_t identifier_size(std::string_view text, bool dotted) {
  size_t size = 0;
  while (size < text.size() && (is_identifier_character(text[size]) ||
                                (dotted && (text[size] == '.' || text[size] == '-')))) {
    ++size;
  }
  count_searched(size);
  return size;
}

CallMarks pythonic_marks() {
  return {.markers = {kPythonStart},
          .opening_words = {kPythonStartWords[0]},
          .strays = {kPythonEnd},
          .are_special = true,
          .may_be_missing = true,
          .start_may_be_call = true};
}

}  // namespace

CallHeader read_python_call(std::string_view text) {
  const size_t name = identifier_size(text, /*dotted=*/true);
  if (name > ToolCallParser::kMaxNameBytes) return {};
  if (name == text.size()) return {.match = Match::kMore};
  if (name == 0 || text[name] != '(') return {};
  const size_t begin = name + 1;
  CallHeader header{.match = Match::kYes, .size = begin, .name = std::string(text.substr(0, name))};
  std::string_view inside = text.substr(begin);
  inside.remove_prefix(space_size(inside));
  if (inside.empty()) return {.match = Match::kMore};
  if (std::string_view(")\"'").find(inside.front()) != std::string_view::npos) return header;
  const size_t parameter = identifier_size(inside, /*dotted=*/false);
  inside.remove_prefix(parameter);
  inside.remove_prefix(space_size(inside));
  if (inside.empty()) return {.match = Match::kMore};
  if (parameter == 0 || inside.front() != '=') return {};
  return header;
}

PythonArguments::State PythonArguments::read(std::string_view text, size_t& used,
                                             std::string& json) {
  used = 0;
  while (used < text.size()) {
    bool found = false;
    const size_t size = end_.scan(text.substr(used), found);
    value_ += text.substr(used, size);
    used += size;
    if (value_.size() > kMaxValueBytes) return State::kFailed;
    if (!found) return State::kMore;
    const char stop = text[used];
    if (stop == '}' || !take_argument(json)) return State::kFailed;
    value_.clear();
    end_ = {};
    if (stop != ']') ++used;  // a list's end stands for the missing parenthesis
    if (stop == ',') continue;
    json += names_.empty() ? "{}" : "}";
    return State::kDone;
  }
  return State::kMore;
}

bool PythonArguments::finish(std::string& json) {
  if (!take_argument(json)) return false;
  json += names_.empty() ? "{}" : "}";
  return true;
}

// False for what is neither "name = literal" nor a literal. Blank text is nothing: "f()" and
// "f(a=1,)" have it.
bool PythonArguments::take_argument(std::string& json) {
  std::string_view text = value_;
  text.remove_prefix(space_size(text));
  if (text.empty()) return true;
  std::string name(text.substr(0, identifier_size(text, /*dotted=*/false)));
  std::string_view behind = text.substr(name.size());
  behind.remove_prefix(space_size(behind));
  if (!name.empty() && behind.starts_with('=')) {
    text = behind.substr(1);
  } else if (num_taken_ < parameters_->size()) {
    name = (*parameters_)[num_taken_];
  } else {
    return false;
  }
  ++num_taken_;
  const std::optional<std::string> value = python_literal_to_json(text);
  if (!value) return false;
  const bool is_first = names_.empty();
  if (!names_.insert(name).second) return true;
  json += is_first ? "{\"" : ", \"";
  append_escaped(name, json);
  json += "\": ";
  json += *value;
  return true;
}

const std::vector<std::string> PythonicCallParser::kNoParameters;

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
  const char begin = place == Place::kNext ? ',' : '[';
  if (rest.front() == begin) {
    for (int count = 0; count < 2 && rest.starts_with(begin); ++count) {
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

void PythonicCallParser::begin_call(const CallHeader& header, std::string_view) {
  arguments_ = PythonArguments(names().parameters(header.name));
}

ToolCallParser::Progress PythonicCallParser::read_arguments(std::string_view text, TextEnd,
                                                            size_t& used, AnswerDeltas& out) {
  std::string json;
  const PythonArguments::State state = arguments_.read(text, used, json);
  if (state == PythonArguments::State::kDone) {
    emit_last_arguments(json, out);
    return Progress::kDone;
  }
  emit_arguments(json, out);
  return state == PythonArguments::State::kMore ? Progress::kMore : Progress::kFailed;
}

bool PythonicCallParser::finish_arguments(std::string_view, AnswerDeltas& out) {
  std::string json;
  if (!arguments_.finish(json)) return false;
  emit_last_arguments(json, out);
  return true;
}

ToolCallParser::Closing PythonicCallParser::read_closing(std::string_view text) {
  constexpr std::string_view kClosers[] = {kPythonEnd};
  return read_loose_closing(text, kClosers, kPythonEndWords, /*needs_slash=*/false);
}

}  // namespace heddle::parsers
