// SPDX-License-Identifier: Apache-2.0
#include "chat/json.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "chat/callables.h"
#include "chat/numbers.h"
#include "chat/operators.h"
#include "chat/python_text.h"
#include "chat/text_operations.h"
#include "chat/value.h"
#include "core/exact_json.h"
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

// Reads a number beyond 64 bits as Python does: a float beyond a double's range is infinite.
Value wide_value(std::string_view spelling) {
  if (is_integer_spelling(spelling)) return Value::integer_of(std::string(spelling));
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return Value::floating(spelling.starts_with('-') ? -kInfinity : kInfinity);
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
      return Value::integer_of(fmt::format_int(number).str());
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
      if (const auto spelling = wide_number_spelling(json)) return wide_value(*spelling);
      break;
    case Json::value_t::discarded:
      break;
  }
  return invalid_argument("the template's variables contain a value that is not JSON");
}

class JsonWriter {
 public:
  JsonWriter(TextWriter& out, const JsonStyle& style) : out_(out), style_(style) {}

  Status write(const Value& value) {
    switch (value.kind()) {
      case Kind::kNone:
        return out_.append("null");
      case Kind::kBool:
        return out_.append(value.as_bool() ? "true" : "false");
      case Kind::kInt:
        return out_.append(fmt::format_int(value.as_integer()).c_str());
      case Kind::kBigInt:
        return out_.append(value.as_digits());
      case Kind::kFloat:
        return out_.append(number(value.as_double()));
      case Kind::kString:
        return string(value.as_string());
      case Kind::kSequence:
        if (value.as_sequence()->flavor <= Flavor::kTuple) return array(*value.as_sequence());
        break;
      case Kind::kDict:
        return object(value.as_dict());
      default:
        break;
    }
    if (value.is_undefined()) {
      return invalid_argument(fmt::format("tojson: an undefined value has no JSON form ({})",
                                          value.undefined_reason()));
    }
    return invalid_argument(fmt::format("tojson: a '{}' has no JSON form", value.type_name()));
  }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_text(value);
  }

  Status string(std::string_view text) {
    HEDDLE_RETURN_IF_ERROR(out_.append("\""));
    size_t plain = 0;  // beginning of the current run of characters that need no escape
    for (size_t i = 0; i < text.size();) {
      const size_t begin = i;
      const auto byte = static_cast<unsigned char>(text[i]);
      const bool needs_escape =
          byte < 0x20 || byte == '"' || byte == '\\' || (byte >= 0x80 && style_.ensure_ascii);
      if (!needs_escape) {
        ++i;
        continue;
      }
      const char32_t c = next_code_point(text, i);
      HEDDLE_RETURN_IF_ERROR(out_.append(text.substr(plain, begin - plain)));
      HEDDLE_RETURN_IF_ERROR(out_.append(escaped(c)));
      plain = i;
    }
    HEDDLE_RETURN_IF_ERROR(out_.append(text.substr(plain)));
    return out_.append("\"");
  }

  static std::string escaped(char32_t c) {
    switch (c) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\b':
        return "\\b";
      case '\f':
        return "\\f";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      default:
        break;
    }
    const auto code = static_cast<uint32_t>(c);
    if (code < 0x10000) return fmt::format("\\u{:04x}", code);
    const uint32_t rest = code - 0x10000;
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
  }

  Status new_line() {
    if (!style_.indent) return {};
    HEDDLE_RETURN_IF_ERROR(out_.append("\n"));
    return out_.repeat(*style_.indent, level_);
  }

  // Whether the value's spelling `text` may be written in this style.
  [[nodiscard]] bool repeats(std::string_view text) const {
    return !text.empty() && !style_.indent && !style_.sort_keys && !style_.ensure_ascii;
  }

  Status array(const Sequence& sequence) {
    const std::vector<Value>& items = sequence.items;
    if (const auto text = sequence.spelling.view(); repeats(text)) return out_.append(text);
    if (items.empty()) return out_.append("[]");
    HEDDLE_RETURN_IF_ERROR(out_.append("["));
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) HEDDLE_RETURN_IF_ERROR(out_.append(style_.item_separator));
      HEDDLE_RETURN_IF_ERROR(new_line());
      HEDDLE_RETURN_IF_ERROR(write(items[i]));
    }
    --level_;
    HEDDLE_RETURN_IF_ERROR(new_line());
    return out_.append("]");
  }

  // The text of a dict's key: JSON requires strings.
  static std::string key_text(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        return key.as_string();
      case Kind::kBool:
        return key.as_bool() ? "true" : "false";
      case Kind::kInt:
        return fmt::format_int(key.as_integer()).str();
      case Kind::kBigInt:
        return key.as_digits();
      case Kind::kFloat:
        return number(key.as_double());
      default:
        return "null";
    }
  }

  Status object(const Dict& dict) {
    if (const auto text = dict.spelling().view(); repeats(text)) return out_.append(text);
    if (dict.size() == 0) return out_.append("{}");
    std::vector<size_t> order(dict.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (style_.sort_keys) {
      std::vector<Value> keys;
      for (const auto& [key, value] : dict.entries()) keys.push_back(key);
      HEDDLE_ASSIGN_OR_RETURN(order, sorted_order(out_.budget(), keys, false));
    }
    HEDDLE_RETURN_IF_ERROR(out_.append("{"));
    ++level_;
    for (size_t i = 0; i < order.size(); ++i) {
      const auto& [key, value] = dict.entries()[order[i]];
      if (i > 0) HEDDLE_RETURN_IF_ERROR(out_.append(style_.item_separator));
      HEDDLE_RETURN_IF_ERROR(new_line());
      HEDDLE_RETURN_IF_ERROR(string(key_text(key)));
      HEDDLE_RETURN_IF_ERROR(out_.append(style_.key_separator));
      HEDDLE_RETURN_IF_ERROR(write(value));
    }
    --level_;
    HEDDLE_RETURN_IF_ERROR(new_line());
    return out_.append("}");
  }

  TextWriter& out_;
  const JsonStyle& style_;
  int64_t level_ = 0;
};

Result<Value> tojson(Budget* budget, const Value& input, const Arguments& arguments) {
  HEDDLE_ASSIGN_OR_RETURN(
      const auto args, BoundArguments::bind(arguments, "tojson",
                                            {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = args.flag(0, false);
  style.sort_keys = args.flag(3, false);
  if (args.has(1)) {
    TextWriter margin(budget);
    if (args.get(1)->is_string()) {
      HEDDLE_RETURN_IF_ERROR(margin.append(args.get(1)->as_string()));
    } else {
      HEDDLE_ASSIGN_OR_RETURN(const int64_t width, args.integer(1, 0));
      HEDDLE_RETURN_IF_ERROR(margin.repeat(" ", width));
    }
    style.indent = margin.take();
    style.item_separator = ",";
  }
  if (args.has(2)) {
    const Value& pair = *args.get(2);
    const bool valid = pair.is(Kind::kSequence) && pair.as_sequence()->items.size() == 2 &&
                       pair.as_sequence()->items[0].is_string() &&
                       pair.as_sequence()->items[1].is_string();
    if (!valid) return invalid_argument("tojson: separators must be a pair of strings");
    style.item_separator = pair.as_sequence()->items[0].as_string();
    style.key_separator = pair.as_sequence()->items[1].as_string();
  }
  TextWriter out(budget);
  HEDDLE_RETURN_IF_ERROR(write_json(out, input, style));
  return out.finish();
}

// transformers has no from_json; some templates written for other programs use it.
Result<Value> from_json(Budget* budget, const Value& input, const Arguments& arguments) {
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(arguments, "from_json", {}).status());
  if (!input.is_string()) {
    return invalid_argument(
        fmt::format("from_json: a string is required, not '{}'", input.type_name()));
  }
  // A value may need a hundred times the memory of its text: "[0,0,0" has two bytes per element.
  const size_t size = input.as_string().size();
  HEDDLE_RETURN_IF_ERROR(
      budget->fits(size > (size_t{1} << 40) ? static_cast<size_t>(-1) : size * 100));
  HEDDLE_RETURN_IF_ERROR(budget->step(static_cast<int64_t>(size)));
  return value_from_json_text(input.as_string());
}

}  // namespace

Result<Value> value_from_json(const Json& json) { return convert(json, 0); }

Result<Value> value_from_json_text(std::string_view text) {
  // The JSON library's recursion follows the nesting, so the nesting is checked first.
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
  const auto json = parse_exact_json(text);
  if (!json.ok()) return invalid_argument("from_json: the text is not valid JSON");
  return convert(json.value(), 0);
}

Status write_json(TextWriter& out, const Value& value, const JsonStyle& style) {
  return JsonWriter(out, style).write(value);
}

FilterFunction find_json_filter(std::string_view name) {
  if (name == "tojson") return tojson;
  if (name == "from_json") return from_json;
  return nullptr;
}

}  // namespace heddle::chat
