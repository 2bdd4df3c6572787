// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/config_reader.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/readable.h"
#include "core/json_syntax.h"
#include "core/remedy.h"

namespace heddle::checkpoint {

namespace {

using nlohmann::json;

std::string missing(std::string_view key) {
  return fmt::format("{} is missing; download the file again, or write the model's value", key);
}

std::string shown(const json& value) {
  if (value.is_string()) return readable(value.get_ref<const std::string&>());
  if (value.is_object()) {
    const auto special = value.find(kSpecialFloatKey);
    const bool alone = special != value.end() && value.size() == 1 && special->is_string();
    return alone ? special->get<std::string>() : "an object";
  }
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  constexpr size_t kMaxBytes = 60;
  if (text.size() > kMaxBytes) text = text.substr(0, kMaxBytes) + "...";
  return text;
}

// A number as Python accepts it in JSON, including NaN and the infinities as transformers writes
// them in standard JSON.
std::optional<double> number_of(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_object() || value.size() != 1) return std::nullopt;
  const auto special = value.find(kSpecialFloatKey);
  if (special == value.end()) return std::nullopt;
  if (*special == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (*special == "Infinity") return std::numeric_limits<double>::infinity();
  if (*special == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

}  // namespace

Result<json> parse_json_object(std::string_view text) {
  if (text.size() > static_cast<size_t>(kMaxConfigBytes)) {
    return data_loss(fmt::format("{} bytes of JSON, more than the {} that are read", text.size(),
                                 kMaxConfigBytes));
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::string strict, strict_json(text));
  json root = json::parse(strict, nullptr, /*allow_exceptions=*/false);
  if (root.is_object()) return root;
  return data_loss(
      fmt::format("not a JSON object but {}; expected {{\"key\": value, ...}}", shown(root)));
}

ConfigReader ConfigReader::narrowed(std::vector<const json*> inner, bool keep_own) const {
  if (keep_own) inner.insert(inner.end(), scopes_.begin(), scopes_.end());
  ConfigReader reader(std::move(inner), first_error_);
  reader.notes_ = notes_;
  return reader;
}

const json* ConfigReader::find(std::string_view key) const {
  const bool is_first_time = asked_for_.emplace(key).second;
  const json* chosen = nullptr;
  for (const json* scope : scopes_) {
    if (scope == nullptr || !scope->is_object()) continue;
    const auto found = scope->find(key);
    if (found == scope->end() || found->is_null()) continue;
    if (chosen == nullptr) {
      chosen = &*found;
      if (!is_first_time) break;
    } else if (*chosen != *found) {
      note(fmt::format("config.json has {} twice: {} is used, {} is not", key, shown(*chosen),
                       shown(*found)));
      break;
    }
  }
  return chosen;
}

bool ConfigReader::is_off(std::string_view key) const {
  const json* const value = find(key);
  if (value == nullptr) return true;
  if (value->is_boolean()) return !value->get<bool>();
  if (value->is_number()) return value->get<double>() == 0;
  if (value->is_string()) return value->get_ref<const std::string&>().empty();
  return value->empty();
}

std::string_view ConfigReader::spelling(std::string_view first, std::string_view second) const {
  const bool has_second = has(second);
  return !has(first) && has_second ? second : first;
}

bool ConfigReader::integer_of(std::string_view key, const json& value, IntegerRange range,
                              int64_t& result) {
  constexpr double kExactLimit = 9007199254740992.0;  // 2^53: every integer up to this value is
                                                      // exact as a double
  bool integral = false;
  int64_t number = 0;
  if (value.is_number_unsigned()) {
    const auto wide = value.get<uint64_t>();
    integral = wide <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    if (integral) number = static_cast<int64_t>(wide);
  } else if (value.is_number_integer()) {
    integral = true;
    number = value.get<int64_t>();
  } else if (value.is_number_float()) {  // some writers write 4096 as 4096.0
    const double real = value.get<double>();
    integral = std::abs(real) <= kExactLimit && std::trunc(real) == real;
    if (integral) number = static_cast<int64_t>(real);
  }
  const bool has_least = range.low != std::numeric_limits<int64_t>::min();
  if (!integral) {
    fail(invalid_argument(fmt::format("{} is {}, not an integer; write a whole number{}", key,
                                      shown(value),
                                      has_least ? fmt::format(" of {} or more", range.low) : "")));
    return false;
  }
  if (number < range.low || number > range.high) {
    fail(invalid_argument(fmt::format("{} is {}, {} {}", key, number,
                                      has_least ? fmt::format("outside {} to", range.low) : "above",
                                      range.high)));
    return false;
  }
  result = number;
  return true;
}

int64_t ConfigReader::integer(std::string_view key, std::optional<int64_t> fallback,
                              IntegerRange range) {
  int64_t result = fallback.value_or(range.low);
  if (const json* value = find(key)) {
    integer_of(key, *value, range, result);
  } else if (!fallback) {
    fail(invalid_argument(missing(key)));
  }
  return result;
}

int64_t ConfigReader::interval(std::string_view key, int64_t fallback) {
  const int64_t value = integer(key, fallback, {.low = -kPositions.high, .high = kPositions.high});
  if (value > 0) return value;
  if (value < 0) {
    note(fmt::format("config.json: {} is {}; {} is used, which divides the same layers", key, value,
                     -value));
    return -value;
  }
  fail(key, "which divides no layer's number; write 1 for every layer, or leave the key out");
  return 1;
}

double ConfigReader::number(std::string_view key, std::optional<double> fallback,
                            NumberRange range) {
  const double safe = fallback.value_or(range.low);
  const json* const value = find(key);
  if (value == nullptr) {
    if (!fallback) fail(invalid_argument(missing(key)));
    return safe;
  }
  const std::optional<double> given = number_of(*value);
  if (!given) {
    fail(invalid_argument(fmt::format("{} is {}, not a number; write one of {:g} to {:g}", key,
                                      shown(*value), range.low, range.high)));
    return safe;
  }
  const double result = *given;
  if (!(result >= range.low && result <= range.high)) {  // the negated condition also catches NaN
    fail(invalid_argument(
        fmt::format("{} is {}, outside {:g} to {:g}", key, shown(*value), range.low, range.high)));
    return safe;
  }
  return result;
}

bool ConfigReader::boolean(std::string_view key, bool fallback) {
  const json* const value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  if (*value == 0 || *value == 1) return *value == 1;  // as Python reads them
  fail(invalid_argument(
      fmt::format("{} is {}, not true or false; write one of them", key, shown(*value))));
  return fallback;
}

std::string ConfigReader::text(std::string_view key, const std::optional<std::string>& fallback) {
  const json* const value = find(key);
  if (value == nullptr) {
    if (!fallback) fail(invalid_argument(missing(key)));
    return fallback.value_or("");
  }
  if (value->is_string()) return value->get_ref<const std::string&>();
  fail(invalid_argument(fmt::format("{} is {}, not a string", key, shown(*value))));
  return fallback.value_or("");
}

std::vector<int64_t> ConfigReader::integers(std::string_view key, IntegerRange range) {
  std::vector<int64_t> results;
  const json* const value = find(key);
  if (value == nullptr) return results;
  int64_t number = 0;
  if (!value->is_array()) {
    if (integer_of(key, *value, range, number)) results.push_back(number);
    return results;
  }
  for (const json& element : *value) {
    if (!integer_of(key, element, range, number)) return {};
    results.push_back(number);
  }
  return results;
}

std::vector<std::string> ConfigReader::texts(std::string_view key) {
  std::vector<std::string> results;
  const json* const value = find(key);
  if (value == nullptr) return results;
  if (value->is_string()) {
    results.push_back(value->get_ref<const std::string&>());
    return results;
  }
  if (!value->is_array()) {
    fail(invalid_argument(fmt::format("{} is {}, not a list of strings", key, shown(*value))));
    return results;
  }
  for (const json& element : *value) {
    if (!element.is_string()) {
      fail(invalid_argument(fmt::format("{} has {}, not a string", key, shown(element))));
      return {};
    }
    results.push_back(element.get_ref<const std::string&>());
  }
  return results;
}

std::vector<double> ConfigReader::numbers(std::string_view key, const std::vector<double>& fallback,
                                          NumberRange range) {
  const json* const value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_array() || value->size() != fallback.size()) {
    fail(key, fmt::format("not a list of {} numbers", fallback.size()));
    return fallback;
  }
  std::vector<double> results;
  for (const json& element : *value) {
    const bool is_infinite = element.is_null() || element == "inf" || element == "Infinity";
    const std::optional<double> given =
        std::isinf(range.high) && is_infinite ? std::optional(range.high) : number_of(element);
    // the negated condition also catches NaN
    if (!given || !(*given >= range.low && *given <= range.high)) {
      fail(invalid_argument(fmt::format("{} has {}, not a number of {:g} to {:g}", key,
                                        shown(element), range.low, range.high)));
      return fallback;
    }
    results.push_back(*given);
  }
  return results;
}

const json* ConfigReader::object(std::string_view key) {
  const json* const value = find(key);
  if (value == nullptr || value->is_object()) return value;
  fail(invalid_argument(fmt::format("{} is {}, not an object", key, shown(*value))));
  return nullptr;
}

void ConfigReader::fail(std::string_view key, std::string_view complaint) {
  const json* const value = find(key);
  fail(invalid_argument(
      fmt::format("{} is {}, {}", key, value == nullptr ? "absent" : shown(*value), complaint)));
}

void ConfigReader::refuse(std::string_view key, std::string_view remedy) {
  const json* const value = find(key);
  fail(unimplemented(
      fmt::format("{} is {}; {}", key, value == nullptr ? "absent" : shown(*value), remedy)));
}

// All errors of a document pass here: those without a remedy get one.
void ConfigReader::fail(Status status) {
  if (!first_error_.ok()) return;
  first_error_ = with_remedy(status, "write the model's value, or download the file again");
}

}  // namespace heddle::checkpoint
