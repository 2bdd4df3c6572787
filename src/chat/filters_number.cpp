// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "chat/filters.h"
#include "chat/numbers.h"

namespace heddle::chat {

namespace {

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
  if (!input.is_integral()) return Value::floating(std::fabs(input.as_double()));
  const int64_t number = input.as_integer();
  if (number >= 0) return Value::integer(number);
  return negated_number(input);
}

// The decimal nearest to `value` with `precision` digits; ties of the binary value go to even, as
// printf.
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

constexpr std::array<std::pair<std::string_view, FilterFunction>, 4> kNumberFilters = {{
    {"int", to_int},
    {"float", to_float},
    {"abs", absolute},
    {"round", round},
}};

}  // namespace

FilterFunction find_number_filter(std::string_view name) {
  for (const auto& [known, function] : kNumberFilters) {
    if (known == name) return function;
  }
  return nullptr;
}

}  // namespace heddle::chat
