// SPDX-License-Identifier: Apache-2.0
#include "parsers/call_object.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "parsers/json_arguments.h"
#include "parsers/json_scanner.h"
#include "parsers/loose_tag.h"

namespace heddle::parsers {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxObjects = 3;  // most objects that may enclose the arguments

// The keys with which the schema of a tool's parameters may begin.
constexpr std::string_view kSchemaKeys[] = {
    "type",    "properties", "required", "additionalProperties", "title", "description",
    "$schema", "$defs",      "$id",      "definitions",          "strict"};

bool is_parameters_key(std::string_view key) {
  return key == "parameters" || key == "input_schema" || key == "inputSchema";
}

bool is_key_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool is_one_of(const std::string& word, std::span<const std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

bool is_name_key(std::string_view key, Trust trust) {
  if (trust != Trust::kMarked) return key == "name" || key == "function";
  constexpr std::string_view kWords[] = {"name",     "function",     "tool",
                                         "toolname", "functionname", "func"};
  return is_one_of(bare_word(key), kWords);
}

bool is_standard_arguments_key(std::string_view key) {
  return key == "arguments" || key == "parameters";
}

bool is_arguments_key(std::string_view key, Trust trust) {
  if (trust != Trust::kMarked) return is_standard_arguments_key(key);
  constexpr std::string_view kWords[] = {
      "arguments", "parameters",    "args",       "input",        "kwargs",
      "params",    "argument",      "parameter",  "inputs",       "toolinput",
      "toolargs",  "toolarguments", "toolparams", "functionargs", "functionarguments"};
  return is_one_of(bare_word(key), kWords);
}

class CallObjectReader {
 public:
  CallObjectReader(CallCursor cursor, const ToolNames& names, Trust trust)
      : cursor_(cursor), names_(names), trust_(trust) {}

  CallHeader read() {
    if (!cursor_.expect("{")) return cursor_.failure();
    size_t depth = 1;
    bool first = true;
    while (true) {
      if (!cursor_.skip_space()) return cursor_.failure();
      if (cursor_.rest().starts_with('}')) {
        cursor_.advance(1);
        if (--depth == 0) return whole();
        first = false;
        continue;
      }
      if (first && cursor_.rest().starts_with('{')) {  // a brace that the model doubled
        cursor_.advance(1);
        if (++depth > kMaxObjects) return {};
        continue;
      }
      std::string key;
      if (!first && (!cursor_.expect(",") || !cursor_.skip_space())) return cursor_.failure();
      first = false;
      if (cursor_.rest().starts_with('}')) continue;  // ignores a superfluous comma
      const CallCursor before = cursor_;
      if (!read_key(key) || !cursor_.skip_space() || !cursor_.expect(":") ||
          !cursor_.skip_space()) {
        return cursor_.failure();
      }
      const bool is_object = cursor_.rest().starts_with('{');
      if (!name_.empty() && is_parameters_key(key) && is_object) {
        if (const Match schema = at_schema(); schema != Match::kNo) {
          return {.match = schema == Match::kMore ? Match::kMore : Match::kNo};
        }
      }
      if (is_own_argument(key, is_object)) {
        if (key == "description") {
          const Match defines = describes_parameters();
          if (defines != Match::kNo) {
            return {.match = defines == Match::kMore ? Match::kMore : Match::kNo};
          }
        }
        CallHeader header = header_of(before, name_, std::move(id_));
        header.open_objects = depth - 1;
        header.lead = early_members();
        if (!members_.empty()) header.lead += ", ";
        return header;
      }
      if (is_name_key(key, trust_) && is_object) {
        cursor_.advance(1);
        if (++depth > kMaxObjects) return {};
        first = true;
        continue;
      }
      if (is_name_key(key, trust_)) {
        const CallCursor value = cursor_;
        if (!cursor_.read_string(name_)) return cursor_.failure();
        const Match ends = ends_before_key(value);
        if (ends == Match::kMore) return {.match = Match::kMore};
        first = ends == Match::kYes;
        name_ = names_.resolve(name_);
        if (!takes_name() || is_defined()) return {};
      } else if (is_arguments_key(key, trust_)) {
        if ((is_object || cursor_.at_string()) && !name_.empty() && !arguments_) {
          CallHeader header = header_of(cursor_, std::move(name_), std::move(id_));
          header.open_objects = depth;
          return header;
        }
        const bool is_list = cursor_.rest().starts_with('[');
        const bool was_read = is_list ? read_listed_arguments() : read_early_arguments(is_object);
        if (!was_read) return cursor_.failure();
      } else if (key == "id" && cursor_.rest().starts_with('"')) {
        if (!cursor_.read_string(id_)) return cursor_.failure();
      } else if ((trust_ != Trust::kMarked && key != "type") ||
                 (key == "description" && !name_.empty())) {
        return {};
      } else if (!read_member(std::move(key), is_object)) {
        return cursor_.failure();
      }
    }
  }

 private:
  // Reads a key; between marks it may lack quotes: {name: "f"}.
  bool read_key(std::string& key) {
    const std::string_view rest = cursor_.rest();
    const auto size = static_cast<size_t>(
        std::ranges::find_if_not(rest, [](char c) { return is_key_byte(c); }) - rest.begin());
    if (trust_ != Trust::kMarked || size == 0) return cursor_.read_string(key);
    if (size > kMaxNameBytes) return cursor_.fail();
    if (size == rest.size()) return cursor_.fail(Match::kMore);
    key = rest.substr(0, size);
    cursor_.advance(size);
    return true;
  }

  // Whether the name lacks its closing quote, as in {"name": "f, "arguments": {..}}, so that the
  // next key follows it.
  Match ends_before_key(const CallCursor& value) {
    constexpr size_t kMaxKey = 16;
    const size_t comma = name_.find_last_not_of(" \t\r\n");
    if (comma == std::string::npos || name_[comma] != ',') return Match::kNo;
    const std::string_view rest = cursor_.rest().substr(0, kMaxKey);
    const size_t quote = rest.find('"');
    if (quote == std::string_view::npos && rest.size() < kMaxKey) return Match::kMore;
    if (!is_arguments_key(rest.substr(0, quote), trust_)) return Match::kNo;
    const size_t size = cursor_.position() - value.position();
    cursor_ = value;
    cursor_.advance(size - 1);
    name_.resize(comma);
    return Match::kYes;
  }

  [[nodiscard]] bool takes_name() const {
    if (name_.empty() || name_.size() > kMaxNameBytes) return false;
    return trust_ != Trust::kKnown || names_.has(name_);
  }

  // Whether the tool is known and has this parameter: the call's object then contains the arguments
  // as members.
  [[nodiscard]] bool is_own_argument(const std::string& key, bool is_object) const {
    if (name_.empty() || arguments_ || trust_ == Trust::kKnown || key == "type") return false;
    const bool is_usual = key == "args" || key == "input" || key == "kwargs";
    if (is_standard_arguments_key(key) || (is_object && is_usual)) return false;
    return has_parameter(key);
  }

  [[nodiscard]] bool has_parameter(const std::string& key) const {
    return names_.has_parameter(name_, names_.resolve_parameter(name_, key));
  }

  // Whether the object at the cursor is the schema of a tool's parameters: a model that repeats the
  // definition of a tool does not call it.
  [[nodiscard]] Match at_schema() const {
    CallCursor inside = cursor_;
    inside.advance(1);
    if (!inside.skip_space()) return inside.failure().match;
    if (!inside.at_string()) return Match::kNo;
    const std::string_view begun = inside.rest().substr(1);
    std::string key;
    if (!inside.read_string(key)) {
      const bool may_be = std::ranges::any_of(
          kSchemaKeys, [begun](std::string_view known) { return known.starts_with(begun); });
      return may_be ? inside.failure().match : Match::kNo;
    }
    if (std::ranges::find(kSchemaKeys, key) == std::end(kSchemaKeys)) return Match::kNo;
    if (names_.has_parameter(name_, key)) {
      if (key != "type") return Match::kNo;
      if (!inside.skip_space() || !inside.expect(":") || !inside.skip_space() ||
          !inside.expect("\"object\"")) {
        return inside.failure().match;
      }
    }
    CallCursor whole = cursor_;
    std::string json;
    if (!whole.read_object(json)) return whole.failure().match;
    return is_schema(json) ? Match::kYes : Match::kNo;
  }

  [[nodiscard]] bool is_schema(const std::string& json) const {
    const Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object() || object.value("type", Json()) != "object") return false;
    const auto properties = object.find("properties");
    const bool is_typed = properties == object.end() ? object.size() == 1 : properties->is_object();
    return is_typed &&
           !(names_.has_parameter(name_, "type") && names_.has_parameter(name_, "properties"));
  }

  // Whether `description`, at the cursor, which is also an argument of the tool, belongs to a
  // definition of the tool instead: the definition's parameters then follow.
  [[nodiscard]] Match describes_parameters() const {
    constexpr size_t kMaxDescription = 2 << 10;  // bytes; a longer description is an argument
    const std::string_view seen = cursor_.rest().substr(0, kMaxDescription);
    CallCursor cursor(seen);
    std::string text;
    std::string key;
    if (cursor.read_string(text) && cursor.skip_space() && cursor.expect(",") &&
        cursor.skip_space() && cursor.read_string(key)) {
      return is_parameters_key(key) && !has_parameter(key) ? Match::kYes : Match::kNo;
    }
    return seen.size() < kMaxDescription ? cursor.failure().match : Match::kNo;
  }

  // Whether the members before the name define the tool.
  [[nodiscard]] bool is_defined() const {
    return (is_described_ && !has_parameter("description")) ||
           (arguments_ && is_schema(*arguments_));
  }

  bool read_listed_arguments() {
    std::vector<std::string> objects;
    if (!cursor_.read_listed_objects(objects)) return false;
    arguments_ = std::move(objects.front());
    more_arguments_.assign(objects.begin() + 1, objects.end());
    return true;
  }

  // Reads arguments that precede the tool's name, or null.
  bool read_early_arguments(bool is_object) {
    if (is_object) {
      arguments_.emplace();
      return cursor_.read_object(*arguments_);
    }
    if (!cursor_.at_string()) {
      return cursor_.expect("null") || cursor_.fail(cursor_.failure().match);
    }
    std::string text;
    if (!cursor_.read_string(text)) return false;
    arguments_ = object_in_text(text);
    return arguments_.has_value() || cursor_.fail();
  }

  // Reads a member that may turn out to be an argument.
  bool read_member(std::string key, bool is_object) {
    std::string json;
    if (is_object) {
      if (!cursor_.read_object(json)) return false;
    } else if (cursor_.rest().starts_with('"')) {
      std::string text;
      if (!cursor_.read_string(text)) return false;
      json = '"';
      append_escaped(text, json);
      json += '"';
    } else {
      std::string_view word;
      if (cursor_.rest().starts_with('[') || !cursor_.read_until(",}", word)) return false;
      if (!is_json(word)) return true;
      json = word;
    }
    is_described_ = is_described_ || key == "description";
    if (name_.empty()) members_.emplace_back(std::move(key), std::move(json));
    return true;
  }

  // The members before the name that are arguments, as a JSON object without its closing brace.
  std::string early_members() {
    std::string json;
    std::set<std::string> seen;
    std::erase_if(members_, [this](const auto& member) { return !has_parameter(member.first); });
    for (const auto& [key, value] : members_) {
      const std::string name = names_.resolve_parameter(name_, key);
      if (!seen.insert(name).second) continue;
      json += json.empty() ? "\"" : ", \"";
      append_escaped(name, json);
      json += "\": ";
      json += value;
    }
    return '{' + json;
  }

  // The only tool that has all these parameters, for a call without a name.
  [[nodiscard]] std::string tool_of_arguments() const {
    std::vector<std::string> keys;
    const Json object = Json::parse(arguments_.value_or("{}"), nullptr, /*allow_exceptions=*/false);
    if (!object.is_object()) return {};
    for (const auto& [key, ignored] : object.items()) keys.push_back(key);
    for (const auto& [key, ignored] : members_) keys.push_back(key);
    std::string tool;
    for (const std::string& key : keys) {
      std::string only = names_.only_tool_with(key);
      if (only.empty() || (!tool.empty() && tool != only)) return {};
      tool = std::move(only);
    }
    return tool;
  }

  CallHeader whole() {
    if (name_.empty() && trust_ == Trust::kMarked) name_ = tool_of_arguments();
    if (!arguments_ && !name_.empty() && !members_.empty()) arguments_ = early_members() + '}';
    if (trust_ != Trust::kMarked && !arguments_ && !names_.has(name_)) return {};
    CallHeader header = bare_header(cursor_, std::move(name_), std::move(id_));
    if (header.match == Match::kYes && arguments_) header.arguments = std::move(arguments_);
    header.more_arguments = std::move(more_arguments_);
    return header;
  }

  CallCursor cursor_;
  const ToolNames& names_;
  const Trust trust_;
  std::string name_;
  std::string id_;
  std::optional<std::string> arguments_;
  std::vector<std::string> more_arguments_;
  bool is_described_ = false;
  // (key, JSON value) of the members before the name
  std::vector<std::pair<std::string, std::string>> members_;
};

}  // namespace

CallHeader read_call_object(const CallCursor& cursor, const ToolNames& names, Trust trust) {
  return CallObjectReader(cursor, names, trust).read();
}

}  // namespace heddle::parsers
