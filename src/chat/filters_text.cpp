// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "chat/access.h"
#include "chat/filters.h"
#include "chat/methods.h"
#include "chat/python_text.h"
#include "chat/string_format.h"
#include "chat/text_operations.h"
#include "chat/text_writer.h"
#include "chat/unicode.h"

namespace heddle::chat {

namespace {

// Every filter here works on str(input).
Result<Value> text_input(Budget* budget, const Value& input) {
  HEDDLE_ASSIGN_OR_RETURN(Value text, to_string_value(budget, input));
  HEDDLE_RETURN_IF_ERROR(budget->fits(3 * text.as_string().size()));
  HEDDLE_RETURN_IF_ERROR(budget->touch(text.as_string().size()));
  return text;
}

// For the filters that do not turn other values into strings.
Status require_string(const Value& input, std::string_view filter) {
  if (input.is_string()) return {};
  if (input.is_undefined()) return invalid_argument(input.undefined_reason());
  return invalid_argument(
      fmt::format("{}: a string is required, not '{}'", filter, input.type_name()));
}

Result<Value> string(Budget* budget, const Value& input, const Arguments& call) {
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(call, "string", {}).status());
  return to_string_value(budget, input);
}

template <std::string (*kMapping)(std::string_view)>
Result<Value> mapped(Budget* budget, const Value& input, const Arguments& call) {
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(call, "the filter", {}).status());
  HEDDLE_ASSIGN_OR_RETURN(const Value text, text_input(budget, input));
  HEDDLE_RETURN_IF_ERROR(budget->step(static_cast<int64_t>(text.as_string().size() / 8)));
  return make_text(budget, kMapping(text.as_string()));
}

// Words, which end at spaces, hyphens and opening brackets, with a capital first.
std::string title_words(std::string_view text) {
  std::string result;
  bool at_start = true;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    if (c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(c)) {
      append_lower(c, result);
      at_start = true;
    } else {
      if (at_start) {
        append_upper(c, result);
      } else {
        append_lower(c, result);
      }
      at_start = false;
    }
  }
  return result;
}

Result<Value> trim(Budget* budget, const Value& input, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args, BoundArguments::bind(call, "trim", {"chars"}));
  HEDDLE_ASSIGN_OR_RETURN(const Value text, text_input(budget, input));
  // The string's own method does it, with its limits.
  const BoundMethod strip{.self = text, .name = "strip"};
  Arguments arguments;
  if (args.get(0) != nullptr) arguments.positional.push_back(*args.get(0));
  return call_method(budget, strip, arguments);
}

Result<Value> replace(Budget* budget, const Value& input, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args,
                          BoundArguments::bind(call, "replace", {"old", "new", "count"}, 2));
  HEDDLE_ASSIGN_OR_RETURN(const Value text, text_input(budget, input));
  HEDDLE_ASSIGN_OR_RETURN(const Value from, to_string_value(budget, *args.get(0)));
  HEDDLE_ASSIGN_OR_RETURN(const Value to, to_string_value(budget, *args.get(1)));
  int64_t count = -1;
  if (args.has(2)) {
    HEDDLE_ASSIGN_OR_RETURN(count, args.integer(2, -1));
  }
  return replaced(budget, text.as_string(), from.as_string(), to.as_string(), count);
}

Result<Value> indent(Budget* budget, const Value& input, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args,
                          BoundArguments::bind(call, "indent", {"width", "first", "blank"}));
  HEDDLE_RETURN_IF_ERROR(require_string(input, "indent"));
  HEDDLE_ASSIGN_OR_RETURN(const Value text, text_input(budget, input));
  TextWriter margin(budget);
  if (args.get(0) != nullptr && args.get(0)->is_string()) {
    HEDDLE_RETURN_IF_ERROR(margin.append(args.get(0)->as_string()));
  } else {
    HEDDLE_ASSIGN_OR_RETURN(const int64_t width, args.integer(0, 4));
    HEDDLE_RETURN_IF_ERROR(margin.repeat(" ", width));
  }
  const bool first = args.flag(1, false);
  const bool blank = args.flag(2, false);
  HEDDLE_RETURN_IF_ERROR(budget->fits(text.as_string().size() * sizeof(std::string_view)));
  // A text that ends in a line end counts as having one more, empty line.
  std::vector<std::string_view> lines = split_lines(text.as_string(), false);
  const std::string_view all = text.as_string();
  bool ends_open = !all.empty();
  if (ends_open) {
    size_t before = all.size();
    ends_open = !is_line_end(previous_code_point(all, before));
  }
  if (!ends_open) lines.emplace_back();
  TextWriter out(budget);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) HEDDLE_RETURN_IF_ERROR(out.append("\n"));
    if (i == 0 ? first : blank || !lines[i].empty())
      HEDDLE_RETURN_IF_ERROR(out.append(margin.text()));
    HEDDLE_RETURN_IF_ERROR(out.append(lines[i]));
  }
  return out.finish();
}

Result<Value> center(Budget* budget, const Value& input, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args, BoundArguments::bind(call, "center", {"width"}));
  HEDDLE_ASSIGN_OR_RETURN(const Value text, text_input(budget, input));
  const BoundMethod method{.self = text, .name = "center"};
  return call_method(
      budget, method,
      Arguments{.positional = {args.get(0) != nullptr ? *args.get(0) : Value::integer(80)},
                .named = {}});
}

Result<Value> truncate(Budget* budget, const Value& input, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(
      const auto args,
      BoundArguments::bind(call, "truncate", {"length", "killwords", "end", "leeway"}));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t length, args.integer(0, 255));
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view end, args.text(2, "..."));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t leeway, args.integer(3, 5));
  const auto end_length = static_cast<int64_t>(count_code_points(end));
  if (length < end_length || leeway < 0) {
    return invalid_argument(
        fmt::format("truncate(): length {} must be at least {} and leeway {} at least 0", length,
                    end_length, leeway));
  }
  HEDDLE_ASSIGN_OR_RETURN(const int64_t size, length_of(input));
  if (size <= length || size - length <= leeway) return input;  // also a short list
  HEDDLE_RETURN_IF_ERROR(require_string(input, "truncate"));
  const std::string_view text = input.as_string();
  std::string_view kept =
      text.substr(0, offset_of_code_point(text, static_cast<size_t>(length - end_length)));
  if (!args.flag(1, false)) kept = kept.substr(0, std::min(kept.rfind(' '), kept.size()));
  TextWriter out(budget);
  HEDDLE_RETURN_IF_ERROR(out.append(kept));
  HEDDLE_RETURN_IF_ERROR(out.append(end));
  return out.finish();
}

Result<Value> wordcount(Budget* budget, const Value& input, const Arguments& call) {
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(call, "wordcount", {}).status());
  HEDDLE_ASSIGN_OR_RETURN(const Value value, text_input(budget, input));
  const std::string_view text = value.as_string();
  int64_t words = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size();) {
    const bool is_part = is_word(next_code_point(text, i));
    words += is_part && !inside ? 1 : 0;
    inside = is_part;
  }
  return Value::integer(words);
}

Result<Value> format(Budget* budget, const Value& input, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const Value text, text_input(budget, input));
  if (!call.named.empty()) return invalid_argument("format: keyword arguments are not supported");
  HEDDLE_ASSIGN_OR_RETURN(const Value values,
                          make_sequence(budget, Flavor::kTuple, call.positional));
  return format_percent(budget, text.as_string(), values);
}

Result<Value> escape(Budget* budget, const Value& input, const Arguments& call) {
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(call, "escape", {}).status());
  HEDDLE_ASSIGN_OR_RETURN(const Value text, text_input(budget, input));
  TextWriter out(budget);
  for (const char& c : text.as_string()) {
    const std::string_view entity = c == '&'    ? "&amp;"
                                    : c == '<'  ? "&lt;"
                                    : c == '>'  ? "&gt;"
                                    : c == '\'' ? "&#39;"
                                    : c == '"'  ? "&#34;"
                                                : std::string_view(&c, 1);
    HEDDLE_RETURN_IF_ERROR(out.append(entity));
  }
  return out.finish();
}

constexpr std::array<std::pair<std::string_view, FilterFunction>, 16> kTextFilters = {{
    {"trim", trim},
    {"string", string},
    {"safe", string},  // nothing is escaped, so everything is safe
    {"lower", mapped<to_lower>},
    {"upper", mapped<to_upper>},
    {"capitalize", mapped<capitalized>},
    {"title", mapped<title_words>},
    {"replace", replace},
    {"indent", indent},
    {"center", center},
    {"truncate", truncate},
    {"wordcount", wordcount},
    {"format", format},
    {"escape", escape},
    {"e", escape},
    {"forceescape", escape},
}};

}  // namespace

FilterFunction find_text_filter(std::string_view name) {
  for (const auto& [known, function] : kTextFilters) {
    if (known == name) return function;
  }
  return nullptr;
}

}  // namespace heddle::chat
