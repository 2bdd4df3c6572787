// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "chat/access.h"
#include "chat/callables.h"
#include "chat/numbers.h"
#include "chat/python_text.h"
#include "chat/string_format.h"
#include "chat/text_operations.h"
#include "chat/value.h"

namespace heddle::chat {

namespace {

// The input as text: every filter here works on str(input).
Result<Value> text_input(Budget* budget, const Value& input) {
  HEDDLE_ASSIGN_OR_RETURN(Value text, to_string_value(budget, input));
  HEDDLE_RETURN_IF_ERROR(budget->fits(3 * text.as_string().size()));
  HEDDLE_RETURN_IF_ERROR(budget->touch(text.as_string().size()));
  return text;
}

// Error unless the input is a string, for filters that do not convert other values.
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

// Each word with a capital letter first. Words end at spaces, hyphens and opening brackets.
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
  // Calls the string method, with its limits.
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
  if (size <= length || size - length <= leeway) return input;  // also for a list with few items
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

// ---- Numbers ----

Status require_number(const Value& input, std::string_view filter) {
  if (input.is_number()) return {};
  if (input.is_undefined()) return invalid_argument(input.undefined_reason());
  return invalid_argument(
      fmt::format("{}: a number is required, not '{}'", filter, input.type_name()));
}

Result<Value> to_int(Budget* budget, const Value& input, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args, BoundArguments::bind(call, "int", {"default", "base"}));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t base, args.integer(1, 10));
  const Value otherwise = args.get(0) != nullptr ? *args.get(0) : Value::integer(0);
  if (input.is_undefined()) return invalid_argument(input.undefined_reason());
  if (input.is_integral()) return Value::integer(input.as_integer());
  if (input.is(Kind::kBigInt)) return input;
  double number = 0;
  if (input.is_string()) {
    HEDDLE_RETURN_IF_ERROR(budget->touch(input.as_string().size()));
    const bool sane_base = base == 0 || (base >= 2 && base <= 36);
    if (const auto whole =
            parse_integer(input.as_string(), sane_base ? static_cast<int>(base) : 1)) {
      return Value::integer(*whole);
    }
    const std::optional<double> parsed = parse_float(input.as_string());
    if (!parsed) return otherwise;
    number = *parsed;
  } else if (input.is(Kind::kFloat)) {
    number = input.as_double();
  } else {
    return otherwise;
  }
  if (!std::isfinite(number)) return otherwise;
  HEDDLE_ASSIGN_OR_RETURN(const int64_t whole, truncate_to_integer(number));
  return Value::integer(whole);
}

Result<Value> to_float(Budget* budget, const Value& input, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args, BoundArguments::bind(call, "float", {"default"}));
  if (input.is_undefined()) return invalid_argument(input.undefined_reason());
  if (input.is_number()) return Value::floating(input.as_double());
  if (input.is_string()) {
    HEDDLE_RETURN_IF_ERROR(budget->touch(input.as_string().size()));
    if (const auto parsed = parse_float(input.as_string())) return Value::floating(*parsed);
  }
  return args.get(0) != nullptr ? *args.get(0) : Value::floating(0.0);
}

Result<Value> absolute(Budget* /*budget*/, const Value& input, const Arguments& call) {
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(call, "abs", {}).status());
  HEDDLE_RETURN_IF_ERROR(require_number(input, "abs"));
  if (input.is(Kind::kBigInt)) return input.as_double() < 0 ? negated_number(input) : input;
  if (!input.is_integral()) return Value::floating(std::fabs(input.as_double()));
  const int64_t number = input.as_integer();
  if (number >= 0) return Value::integer(number);
  return negated_number(input);
}

// The decimal nearest to `value` with `precision` digits; ties of the binary value go to even, as
// in printf.
double rounded(double value, int precision) {
  if (!std::isfinite(value)) return value;
  if (precision >= 0) return parse_float(fmt::format("{:.{}f}", value, precision)).value_or(value);
  const double unit = std::pow(10.0, -precision);
  return std::nearbyint(value / unit) * unit;
}

Result<Value> round(Budget* /*budget*/, const Value& input, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args,
                          BoundArguments::bind(call, "round", {"precision", "method"}));
  HEDDLE_RETURN_IF_ERROR(require_number(input, "round"));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t precision, args.integer(0, 0));
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view method, args.text(1, "common"));
  if (precision < -18 || precision > 300) {
    return invalid_argument(
        fmt::format("round: precision {} is not between -18 and 300", precision));
  }
  const auto digits = static_cast<int>(precision);
  if (input.is(Kind::kBigInt) && digits >= 0) return input;
  if (method == "common") {
    if (input.is_integral()) {
      if (digits >= 0) return Value::integer(input.as_integer());
      HEDDLE_ASSIGN_OR_RETURN(const int64_t whole,
                              truncate_to_integer(rounded(input.as_double(), digits)));
      return Value::integer(whole);
    }
    return Value::floating(rounded(input.as_double(), digits));
  }
  if (method != "ceil" && method != "floor") {
    return invalid_argument("round: method must be common, ceil or floor");
  }
  const double scale = std::pow(10.0, digits);
  const double scaled = input.as_double() * scale;
  return Value::floating((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

constexpr std::array<std::pair<std::string_view, FilterFunction>, 20> kTextFilters = {{
    {"trim", trim},
    {"string", string},
    {"safe", string},  // Heddle escapes nothing, so every text is safe
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
    {"int", to_int},
    {"float", to_float},
    {"abs", absolute},
    {"round", round},
}};

}  // namespace

FilterFunction find_text_filter(std::string_view name) {
  for (const auto& [known, function] : kTextFilters) {
    if (known == name) return function;
  }
  return nullptr;
}

}  // namespace heddle::chat
