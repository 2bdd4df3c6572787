// SPDX-License-Identifier: Apache-2.0
#include "server/call/field_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

// The value as an integer: accepts 5 and 5.0; none for 5.5, true or a number that does not fit.
std::optional<int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto bits = value.get<uint64_t>();
    if (bits > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(bits);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::abs(number) < 9e15 && number == std::floor(number))
      return static_cast<int64_t>(number);
  }
  return std::nullopt;
}

// Whether the value is an integer of any size, such as 1e23.
bool is_whole(const Json& value) {
  return value.is_number_integer() ||
         (value.is_number_float() && value.get<double>() == std::floor(value.get<double>()));
}

}  // namespace

FieldReader::FieldReader(const Json& object, std::string prefix)
    : object_(object), prefix_(std::move(prefix)) {}

const Json* FieldReader::find(std::string_view name) const {
  const auto* const members = object_.get_ptr<const Json::object_t*>();
  if (members == nullptr) return nullptr;
  const auto place =
      std::ranges::find_if(*members, [&](const auto& entry) { return entry.first == name; });
  if (place == members->end()) return nullptr;
  asked_.resize(members->size());
  asked_[static_cast<size_t>(place - members->begin())] = true;
  return place->second.is_null() ? nullptr : &place->second;
}

std::vector<std::string> FieldReader::unasked() const {
  std::vector<std::string> names;
  size_t index = 0;
  for (const auto& [name, value] : object_.items()) {
    if (index >= asked_.size() || !asked_[index]) names.push_back(name);
    ++index;
  }
  return names;
}

std::string FieldReader::name_of(std::string_view name) const {
  return prefix_ + std::string(name);
}

void FieldReader::fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

std::optional<bool> FieldReader::boolean(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  fail(invalid_type(name_of(name), "true or false"));
  return std::nullopt;
}

std::optional<int64_t> FieldReader::integer(std::string_view name, int64_t min, int64_t max) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const auto number = as_integer(*value);
  if (!number && is_whole(*value)) {
    fail(invalid_value(name_of(name),
                       fmt::format("`{}` is {}; that is too {}.", name_of(name), value->dump(),
                                   value->get<double>() < 0 ? "small" : "large")));
    return std::nullopt;
  }
  if (!number) {
    fail(invalid_type(name_of(name), "an integer"));
    return std::nullopt;
  }
  if (*number < min || *number > max) {
    fail(invalid_value(name_of(name), max == std::numeric_limits<int64_t>::max()
                                          ? fmt::format("`{}` is {}; it must be at least {}.",
                                                        name_of(name), *number, min)
                                          : fmt::format("`{}` is {}; it must be from {} to {}.",
                                                        name_of(name), *number, min, max)));
    return std::nullopt;
  }
  return number;
}

std::optional<uint64_t> FieldReader::bits(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned()) return value->get<uint64_t>();
  if (const auto number = as_integer(*value)) return static_cast<uint64_t>(*number);
  fail(invalid_type(name_of(name), "an integer of 64 bits"));
  return std::nullopt;
}

std::optional<double> FieldReader::number(std::string_view name, const NumberRange& range) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    fail(invalid_type(name_of(name), "a number"));
    return std::nullopt;
  }
  const double number = value->get<double>();
  const bool inside = (range.min_excluded ? number > range.min : number >= range.min) &&
                      number <= range.max;  // the comparison is false for NaN
  if (!inside) {
    const std::string lower =
        fmt::format("{} {}", range.min_excluded ? "greater than" : "at least", range.min);
    fail(invalid_value(
        name_of(name),
        range.max >= static_cast<double>(std::numeric_limits<float>::max())
            ? fmt::format("`{}` is {}; it must be {} and finite.", name_of(name), number, lower)
            : fmt::format("`{}` is {}; it must be {} and at most {}.", name_of(name), number, lower,
                          range.max)));
    return std::nullopt;
  }
  return number;
}

bool FieldReader::flag(const Field& field) {
  return boolean(field.name).value_or(field.preset == "true");
}

std::optional<int64_t> FieldReader::integer(const Field& field) {
  using Limits = std::numeric_limits<int64_t>;
  constexpr NumberRange kAny;
  return integer(
      field.name,
      field.range.min == kAny.min ? Limits::min() : static_cast<int64_t>(field.range.min),
      field.range.max == kAny.max ? Limits::max() : static_cast<int64_t>(field.range.max));
}

int64_t FieldReader::integer_or_preset(const Field& field) {
  int64_t preset = 0;
  std::from_chars(field.preset.data(), field.preset.data() + field.preset.size(), preset);
  return integer(field).value_or(preset);
}

std::optional<double> FieldReader::number(const Field& field) {
  return number(field.name, field.range);
}

std::string FieldReader::string_or_preset(const Field& field) {
  if (auto text = string(field.name)) return *std::move(text);
  // The default in the table is JSON: removes its quotes.
  return std::string(field.preset.substr(1, field.preset.size() - 2));
}

std::optional<std::string> FieldReader::string(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  fail(invalid_type(name_of(name), "a string"));
  return std::nullopt;
}

std::optional<std::vector<std::string>> FieldReader::strings(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return std::vector<std::string>{value->get<std::string>()};
  if (value->is_array()) {
    std::vector<std::string> list;
    for (const Json& item : *value) {
      if (!item.is_string()) {
        fail(invalid_type(name_of(name), "a string or a list of strings"));
        return std::nullopt;
      }
      list.push_back(item.get<std::string>());
    }
    return list;
  }
  fail(invalid_type(name_of(name), "a string or a list of strings"));
  return std::nullopt;
}

const Json* FieldReader::object(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr || value->is_object()) return value;
  fail(invalid_type(name_of(name), "an object"));
  return nullptr;
}

const Json* FieldReader::array(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr || value->is_array()) return value;
  fail(invalid_type(name_of(name), "a list"));
  return nullptr;
}

std::optional<std::vector<TokenId>> FieldReader::token_ids(std::string_view name,
                                                           int64_t vocab_size, bool skip_nulls) {
  const Json* list = array(name);
  if (list == nullptr) return std::nullopt;
  std::vector<TokenId> ids;
  if (read_token_ids(*list, vocab_size, skip_nulls, ids)) return ids;
  fail(invalid_value(name_of(name), fmt::format("`{}` must hold token ids from 0 to {} only.",
                                                name_of(name), vocab_size - 1)));
  return std::nullopt;
}

void FieldNames::add(std::string ours, std::string theirs) {
  names_.emplace_back(std::move(ours), std::move(theirs));
}

std::string FieldNames::theirs(std::string_view name) const {
  const std::pair<std::string, std::string>* best = nullptr;
  for (const auto& entry : names_) {
    const std::string& ours = entry.first;
    const bool fits =
        name.starts_with(ours) &&
        (name.size() == ours.size() || name[ours.size()] == '.' || name[ours.size()] == '[');
    if (fits && (best == nullptr || best->first.size() < ours.size())) best = &entry;
  }
  if (best == nullptr) return std::string(name);
  return best->second + std::string(name.substr(best->first.size()));
}

void FieldNames::restore(ApiError& error) const {
  error.param = theirs(error.param);
  std::string message;
  std::string_view rest = error.message;
  while (true) {
    const size_t begin = rest.find('`');
    const size_t end = begin == std::string_view::npos ? begin : rest.find('`', begin + 1);
    if (end == std::string_view::npos) break;
    message += rest.substr(0, begin + 1);
    message += theirs(rest.substr(begin + 1, end - begin - 1));
    message += '`';
    rest.remove_prefix(end + 1);
  }
  error.message = message + std::string(rest);
}

bool read_token_ids(const Json& list, int64_t vocab_size, bool skip_nulls,
                    std::vector<TokenId>& ids) {
  ids.clear();
  ids.reserve(list.size());
  for (const Json& item : list) {
    if (item.is_null() && skip_nulls) continue;
    const auto id = as_integer(item);
    if (!id || *id < 0 || *id >= vocab_size) return false;
    ids.push_back(static_cast<TokenId>(*id));
  }
  return true;
}

}  // namespace heddle::server
