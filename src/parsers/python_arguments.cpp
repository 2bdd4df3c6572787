// SPDX-License-Identifier: Apache-2.0
#include "parsers/python_arguments.h"

#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "parsers/json_scanner.h"
#include "parsers/marker_search.h"

namespace heddle::parsers {
namespace {

bool is_identifier_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

}  // namespace

size_t identifier_size(std::string_view text, bool dotted) {
  size_t size = 0;
  while (size < text.size() && (is_identifier_character(text[size]) ||
                                (dotted && (text[size] == '.' || text[size] == '-')))) {
    ++size;
  }
  count_searched(size);
  return size;
}

CallHeader read_python_call(std::string_view text) {
  const size_t name = identifier_size(text, /*dotted=*/true);
  if (name > kMaxNameBytes) return {};
  if (name == text.size()) return {.match = Match::kMore};
  if (name == 0 || text[name] != '(') return {};
  const size_t begin = name + 1;
  CallHeader header{.match = Match::kYes,
                    .size = begin,
                    .name = std::string(text.substr(0, name)),
                    .kind = ArgumentsKind::kPython};
  std::string_view inside = text.substr(begin);
  inside.remove_prefix(space_size(inside));
  if (inside.empty()) return {.match = Match::kMore};
  if (std::string_view(")\"'{").find(inside.front()) != std::string_view::npos) return header;
  const size_t parameter = identifier_size(inside, /*dotted=*/false);
  inside.remove_prefix(parameter);
  inside.remove_prefix(space_size(inside));
  if (inside.empty()) return {.match = Match::kMore};
  if (parameter == 0 || inside.front() != '=') return {};
  return header;
}

Progress PythonArguments::read(std::string_view text, size_t& used, std::string& json) {
  used = 0;
  while (used < text.size()) {
    bool found = false;
    const size_t size = end_.scan(text.substr(used), found);
    value_ += text.substr(used, size);
    used += size;
    if (value_.size() > kMaxValueBytes) return Progress::kFailed;
    if (!found) return Progress::kMore;
    const char stop = text[used];
    if (stop == '}' || !take_argument(/*is_last=*/stop != ',', json)) return Progress::kFailed;
    value_.clear();
    end_ = {};
    if (stop != ']') ++used;  // the end of a list replaces the missing parenthesis
    if (stop == ',') continue;
    close(json);
    return Progress::kDone;
  }
  return Progress::kMore;
}

bool PythonArguments::finish(std::string& json) {
  if (!take_argument(/*is_last=*/true, json)) return false;
  close(json);
  return true;
}

void PythonArguments::close(std::string& json) const {
  if (!is_whole_) json += taken_.empty() ? "{}" : "}";
}

// Reads an argument. Returns false unless it is "name = literal" or a literal. Blank text is
// allowed, as in "f()" and "f(a=1,)".
bool PythonArguments::take_argument(bool is_last, std::string& json) {
  std::string_view text = value_;
  text.remove_prefix(space_size(text));
  if (text.empty()) return true;
  std::string name(text.substr(0, identifier_size(text, /*dotted=*/false)));
  std::string_view behind = text.substr(name.size());
  behind.remove_prefix(space_size(behind));
  const auto& parameters = names_->parameters(tool_);
  if (!name.empty() && behind.starts_with('=')) {
    text = behind.substr(1);
    std::string meant = names_->resolve_parameter(tool_, name);
    const bool is_meant = names_->has_parameter(tool_, meant) && !taken_.contains(meant);
    if (is_meant) name = std::move(meant);
  } else if (is_last && num_taken_ == 0 && take_dict(text, json)) {
    return true;
  } else if (num_taken_ < parameters.size()) {
    name = parameters[num_taken_];
  } else {
    return false;
  }
  ++num_taken_;
  const std::string_view word = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  std::optional<std::string> value;
  if (!is_json(word)) value = names_->meant_number(tool_, name, word.substr(space_size(word)));
  if (!value) value = python_literal_to_json(text);
  if (!value) return false;
  const bool is_first = taken_.empty();
  if (!taken_.insert(name).second) return true;
  json += is_first ? "{\"" : ", \"";
  append_escaped(name, json);
  json += "\": ";
  json += *value;
  return true;
}

// Returns true for a dict whose keys are parameters of the tool, or for any dict if the tool lists
// no parameters.
bool PythonArguments::take_dict(std::string_view literal, std::string& json) {
  if (!literal.starts_with('{')) return false;
  const std::optional<std::string> dict = python_literal_to_json(literal);
  if (!dict) return false;
  bool is_known = true;
  std::string copy;
  size_t used = 0;
  JsonScanner scanner([&](std::string_view written) {
    std::string meant = names_->resolve_parameter(tool_, written);
    is_known = is_known && names_->has_parameter(tool_, meant);
    return is_known ? meant : std::string(written);
  });
  const JsonScanner::State state = scanner.scan(*dict, used, &copy, TextEnd::kStopped);
  if (state != JsonScanner::State::kDone) return false;
  if (!is_known && !names_->parameters(tool_).empty()) return false;
  json += copy;
  is_whole_ = true;
  return true;
}

}  // namespace heddle::parsers
