// SPDX-License-Identifier: Apache-2.0
#include "parsers/pythonic_calls.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "parsers/json_scanner.h"

namespace heddle::parsers {
namespace {

constexpr std::string_view kPythonStart = "<|python_start|>";
constexpr std::string_view kPythonClosers[] = {"]", "<|python_end|>"};

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
  return size;
}

// "f(" and what shows that it is a call: ")" or "name =".
CallHeader read_python_call(std::string_view text) {
  const size_t name = identifier_size(text, /*dotted=*/true);
  if (name > ToolCallParser::kMaxNameBytes) return {};
  if (name == text.size()) return {.match = Match::kMore};
  if (name == 0 || text[name] != '(') return {};
  const size_t begin = name + 1;
  CallHeader header{.match = Match::kYes, .size = begin, .name = std::string(text.substr(0, name))};
  std::string_view inside = text.substr(begin);
  inside.remove_prefix(space_size(inside));
  if (inside.starts_with(')')) return header;
  const size_t parameter = identifier_size(inside, /*dotted=*/false);
  inside.remove_prefix(parameter);
  inside.remove_prefix(space_size(inside));
  if (inside.empty()) return {.match = Match::kMore};
  if (parameter == 0 || inside.front() != '=') return {};
  return header;
}

}  // namespace

PythonicCallParser::PythonicCallParser(ToolCallParserOptions options)
    : ToolCallParser({kPythonStart}, /*may_start_unmarked=*/true, std::move(options)) {}

bool PythonicCallParser::takes_name(std::string_view tool) {
  return !tool.empty() && tool.size() <= kMaxNameBytes &&
         identifier_size(tool, /*dotted=*/true) == tool.size();
}

CallHeader PythonicCallParser::read_header(std::string_view text, Place place) const {
  std::string_view rest = text;
  const auto skip_space = [&rest] { rest.remove_prefix(space_size(rest)); };
  if (place == Place::kMarker) rest.remove_prefix(kPythonStart.size());
  skip_space();
  if (rest.empty()) return {.match = Match::kMore};
  if (rest.front() != (place == Place::kNext ? ',' : '[')) return {};
  rest.remove_prefix(1);
  skip_space();
  if (rest.empty()) return {.match = Match::kMore};
  CallHeader header = read_python_call(rest);
  header.size += text.size() - rest.size();
  return header;
}

void PythonicCallParser::begin_call(const CallHeader&, std::string_view) {
  names_.clear();
  value_.clear();
  end_ = {};
}

ToolCallParser::Progress PythonicCallParser::read_arguments(std::string_view text, size_t& used,
                                                            AnswerDeltas& out) {
  bool found = false;
  used = end_.scan(text, found);
  value_ += text.substr(0, used);
  if (value_.size() > kMaxValueBytes) return Progress::kFailed;
  if (!found) return Progress::kMore;
  const char stop = text[used];
  if ((stop != ',' && stop != ')') || !take_argument(out)) return Progress::kFailed;
  ++used;
  value_.clear();
  end_ = {};
  if (stop == ',') return Progress::kMore;
  emit_last_arguments(names_.empty() ? "{}" : "}", out);
  return Progress::kDone;
}

// False for what is not "name = literal". Blank text is none: "f()" and "f(a=1,)" have it.
bool PythonicCallParser::take_argument(AnswerDeltas& out) {
  std::string_view text = value_;
  text.remove_prefix(space_size(text));
  if (text.empty()) return true;
  const std::string name(text.substr(0, identifier_size(text, /*dotted=*/false)));
  text.remove_prefix(name.size());
  text.remove_prefix(space_size(text));
  if (name.empty() || !text.starts_with('=')) return false;
  const std::optional<std::string> json = python_literal_to_json(text.substr(1));
  if (!json) return false;
  if (std::find(names_.begin(), names_.end(), name) != names_.end()) return true;
  std::string emitted = names_.empty() ? "{\"" : ", \"";
  emitted += name;
  emitted += "\": ";
  emitted += *json;
  emit_arguments(emitted, out);
  names_.push_back(name);
  return true;
}

ToolCallParser::Closing PythonicCallParser::read_closing(std::string_view text) {
  const std::string_view seen = text.substr(0, kMaxSpaceBytes);
  const size_t space = space_size(seen);
  std::string_view found;
  Match match = begins_with(seen.substr(space), kPythonClosers, &found);
  if (match == Match::kMore && text.size() >= kMaxSpaceBytes) match = Match::kNo;
  return {.match = match, .size = match == Match::kYes ? space + found.size() : 0};
}

}  // namespace heddle::parsers
