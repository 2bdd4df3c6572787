// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "chat/value.h"
#include "tokenizer/utf8.h"

namespace heddle::chat {

namespace {

using Json = nlohmann::ordered_json;

Result<Value> convert_string(const std::string& text) {
  if (!tokenizer::is_valid_utf8(text)) {
    return invalid_argument(
        fmt::format("a string of {} bytes in the template's variables is not UTF-8", text.size()));
  }
  return Value::string(text);
}

Result<Value> convert(const Json& json, int depth) {
  if (depth > kMaxValueDepth) {
    return invalid_argument(fmt::format(
        "the template's variables are nested more than {} levels deep", kMaxValueDepth));
  }
  switch (json.type()) {
    case Json::value_t::null:
      return Value::none();
    case Json::value_t::boolean:
      return Value::boolean(json.get_ref<const Json::boolean_t&>());
    case Json::value_t::number_integer:
      return Value::integer(json.get_ref<const Json::number_integer_t&>());
    case Json::value_t::number_unsigned: {
      const uint64_t number = json.get_ref<const Json::number_unsigned_t&>();
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return Value::floating(static_cast<double>(number));
      }
      return Value::integer(static_cast<int64_t>(number));
    }
    case Json::value_t::number_float:
      return Value::floating(json.get_ref<const Json::number_float_t&>());
    case Json::value_t::string:
      return convert_string(json.get_ref<const Json::string_t&>());
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& element : json) {
        HEDDLE_ASSIGN_OR_RETURN(Value item, convert(element, depth + 1));
        items.push_back(std::move(item));
      }
      return make_list(nullptr, std::move(items));
    }
    case Json::value_t::object: {
      std::vector<Dict::Entry> entries;
      entries.reserve(json.size());
      for (const auto& [name, element] : json.get_ref<const Json::object_t&>()) {
        HEDDLE_ASSIGN_OR_RETURN(Value key, convert_string(name));
        HEDDLE_ASSIGN_OR_RETURN(Value value, convert(element, depth + 1));
        entries.emplace_back(std::move(key), std::move(value));
      }
      return make_dict(nullptr, std::move(entries));
    }
    case Json::value_t::binary:
    case Json::value_t::discarded:
      break;
  }
  return invalid_argument("the template's variables hold something that is not JSON");
}

}  // namespace

Result<Value> Value::from_json(const Json& json) { return convert(json, 0); }

Result<Value> value_from_json_text(std::string_view text) {
  // What the JSON library builds it also walks by recursion: bound the nesting before it sees the
  // text.
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') in_string = !in_string;
    if (in_string) {
      if (c == '\\') ++i;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxValueDepth) {
        return invalid_argument(
            fmt::format("from_json: the text is nested more than {} levels deep", kMaxValueDepth));
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return invalid_argument("from_json: the text is not valid JSON");
  return convert(json, 0);
}

}  // namespace heddle::chat
