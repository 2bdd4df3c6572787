// SPDX-License-Identifier: Apache-2.0
#include "chat/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <system_error>

#include <fmt/format.h>

#include "chat/numbers.h"
#include "chat/text_operations.h"

namespace heddle::chat {

namespace {

constexpr size_t kObjectBytes = 64;  // approximate bytes of a shared object in addition to its
                                     // contents

std::string_view flavor_name(Flavor flavor) {
  switch (flavor) {
    case Flavor::kList:
      return "list";
    case Flavor::kTuple:
      return "tuple";
    case Flavor::kRange:
      return "range";
    case Flavor::kKeys:
      return "dict_keys";
    case Flavor::kValues:
      return "dict_values";
    case Flavor::kItems:
      return "dict_items";
    case Flavor::kGenerator:
      return "generator";
  }
  return "sequence";
}

Status value_too_deep() {
  return invalid_argument(
      fmt::format("lists and dicts are nested more than {} levels deep", kMaxValueDepth));
}

// The rank of a key's kind in the order in which Dict sorts keys.
int key_rank(const Value& key) { return key.is_none() ? 0 : key.is_number() ? 1 : 2; }

}  // namespace

Value Value::undefined(std::string reason) {
  return Value(Storage(std::in_place_index<0>,
                       Undefined{std::make_shared<const std::string>(std::move(reason))}));
}

Value Value::string(std::string text) {
  return Value(Storage(std::make_shared<const Text>(nullptr, std::move(text))));
}

Value Value::integer_of(std::string digits) {
  int64_t value = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (read.ec == std::errc()) return integer(value);
  return Value(Storage(std::make_shared<const std::string>(std::move(digits))));
}

Value Value::method(const Value& self, std::string_view name) {
  return Value(Storage(
      std::make_shared<const BoundMethod>(BoundMethod{.self = self, .name = std::string(name)})));
}

int64_t Value::as_integer() const {
  if (is(Kind::kBool)) return as_bool() ? 1 : 0;
  return std::get<3>(storage_);
}

double Value::as_double() const {
  if (is(Kind::kFloat)) return std::get<4>(storage_);
  if (is(Kind::kBigInt)) {
    const std::string& digits = as_digits();
    double value = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (read.ec == std::errc()) return value;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return digits.starts_with('-') ? -kInfinity : kInfinity;
  }
  return static_cast<double>(as_integer());
}

const std::string& Value::as_string() const { return as_text().bytes; }

std::string Value::undefined_reason() const {
  const auto& reason = std::get<0>(storage_).reason;
  return reason == nullptr ? "the value is undefined" : *reason;
}

bool Value::truthy() const {
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return as_bool();
    case Kind::kInt:
      return as_integer() != 0;
    case Kind::kFloat:
      return as_double() != 0;
    case Kind::kString:
      return !as_string().empty();
    case Kind::kSequence:
      return as_sequence()->flavor == Flavor::kGenerator || !as_sequence()->items.empty();
    case Kind::kDict:
      return as_dict().size() != 0;
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kMacro:
    case Kind::kMethod:
    case Kind::kBuiltin:
    case Kind::kBigInt:
      return true;
  }
  return true;
}

std::string_view Value::type_name() const {
  switch (kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kSequence:
      return flavor_name(as_sequence()->flavor);
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "namespace";
    case Kind::kLoop:
      return "loop";
    case Kind::kMacro:
      return "macro";
    case Kind::kMethod:
      return "method";
    case Kind::kBuiltin:
      return "function";
  }
  return "value";
}

int Value::depth() const {
  if (is(Kind::kSequence)) return as_sequence()->depth;
  if (is(Kind::kDict)) return as_dict().depth();
  return is(Kind::kMethod) ? as_method().self.depth() + 1 : 0;
}

Text::Text(Budget* budget, std::string text)
    : Metered(budget, text.capacity() + kObjectBytes),
      bytes(std::move(text)),
      num_code_points(count_code_points(bytes)) {}

Sequence::Sequence(Budget* budget, Flavor sequence_flavor, std::vector<Value> values, int levels)
    : Metered(budget, values.capacity() * sizeof(Value) + kObjectBytes),
      flavor(sequence_flavor),
      items(std::move(values)),
      depth(levels) {}

Dict::Dict(Budget* budget, std::vector<Entry> entries, std::vector<uint32_t> sorted, int levels,
           Spelling spelling)
    : Metered(budget, entries.capacity() * (sizeof(Entry) + sizeof(uint32_t)) + kObjectBytes),
      entries_(std::move(entries)),
      sorted_(std::move(sorted)),
      depth_(levels),
      spelling_(std::move(spelling)) {}

const Value* Dict::find(const Value& key) const {
  if (!is_valid_key(key)) return nullptr;
  const auto found = std::lower_bound(sorted_.begin(), sorted_.end(), key,
                                      [this](uint32_t index, const Value& wanted) {
                                        return compare_keys(entries_[index].first, wanted) < 0;
                                      });
  if (found == sorted_.end() || compare_keys(entries_[*found].first, key) != 0) return nullptr;
  return &entries_[*found].second;
}

const Value* Dict::find(std::string_view key) const {
  const auto found = std::lower_bound(
      sorted_.begin(), sorted_.end(), key, [this](uint32_t index, std::string_view wanted) {
        const Value& candidate = entries_[index].first;
        return !candidate.is_string() || candidate.as_string() < wanted;
      });
  if (found == sorted_.end() || entries_[*found].first.as_string() != key) return nullptr;
  return &entries_[*found].second;
}

bool is_valid_key(const Value& key) { return key.is_string() || key.is_number() || key.is_none(); }

int compare_keys(const Value& a, const Value& b) {
  const int rank = key_rank(a);
  const int other_rank = key_rank(b);
  if (rank != other_rank) return rank < other_rank ? -1 : 1;
  if (rank == 0) return 0;
  if (rank == 1) {
    const int order = compare_numbers(a, b);
    if (order != 2) return order;
    // One key is NaN: it sorts after all other numbers and equals itself.
    const bool a_is_nan = a.is(Kind::kFloat) && std::isnan(a.as_double());
    const bool b_is_nan = b.is(Kind::kFloat) && std::isnan(b.as_double());
    return a_is_nan == b_is_nan ? 0 : a_is_nan ? 1 : -1;
  }
  const int order = a.as_string().compare(b.as_string());
  return order < 0 ? -1 : order > 0 ? 1 : 0;
}

Result<Value> make_text(Budget* budget, std::string text) {
  if (budget == nullptr) return Value::string(std::move(text));
  HEDDLE_RETURN_IF_ERROR(budget->fits(text.size() + kObjectBytes));
  HEDDLE_RETURN_IF_ERROR(budget->touch(text.size()));
  return Value::from_text(std::make_shared<const Text>(budget, std::move(text)));
}

Result<Value> make_sequence(Budget* budget, Flavor flavor, std::vector<Value> items,
                            Spelling spelling) {
  int levels = 0;
  for (const Value& item : items) levels = std::max(levels, item.depth());
  if (++levels > kMaxValueDepth) return value_too_deep();
  if (budget != nullptr) {
    HEDDLE_RETURN_IF_ERROR(budget->fits(items.size() * sizeof(Value) + kObjectBytes));
    HEDDLE_RETURN_IF_ERROR(budget->touch(items.size() * sizeof(Value)));
  }
  auto sequence = std::make_shared<Sequence>(budget, flavor, std::move(items), levels);
  sequence->spelling = std::move(spelling);
  return Value::sequence(std::move(sequence));
}

Result<Value> make_list(Budget* budget, std::vector<Value> items) {
  return make_sequence(budget, Flavor::kList, std::move(items));
}

Result<Value> make_dict(Budget* budget, std::vector<Dict::Entry> entries, Spelling spelling) {
  int levels = 0;
  for (const auto& [key, value] : entries) {
    if (!is_valid_key(key)) {
      return invalid_argument(fmt::format(
          "a dict key must be a string, number, boolean or none, not '{}'", key.type_name()));
    }
    levels = std::max(levels, value.depth());
  }
  if (++levels > kMaxValueDepth) return value_too_deep();
  if (budget != nullptr) {
    HEDDLE_RETURN_IF_ERROR(budget->fits(entries.size() * sizeof(Dict::Entry) + kObjectBytes));
    HEDDLE_RETURN_IF_ERROR(budget->touch(entries.size() * sizeof(Dict::Entry)));
  }
  std::vector<uint32_t> sorted(entries.size());
  std::iota(sorted.begin(), sorted.end(), 0U);
  std::sort(sorted.begin(), sorted.end(), [&entries](uint32_t a, uint32_t b) {
    const int order = compare_keys(entries[a].first, entries[b].first);
    return order != 0 ? order < 0 : a < b;
  });
  const auto same_key = [&entries](uint32_t a, uint32_t b) {
    return compare_keys(entries[a].first, entries[b].first) == 0;
  };
  if (std::adjacent_find(sorted.begin(), sorted.end(), same_key) != sorted.end()) {
    std::vector<bool> dropped(entries.size());
    for (size_t i = 0; i + 1 < sorted.size();) {
      const uint32_t first = sorted[i];
      for (++i; i < sorted.size() && same_key(first, sorted[i]); ++i) {
        entries[first].second = entries[sorted[i]].second;
        dropped[sorted[i]] = true;
      }
    }
    std::vector<Dict::Entry> unique;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (!dropped[i]) unique.push_back(std::move(entries[i]));
    }
    return make_dict(budget, std::move(unique), std::move(spelling));
  }
  return Value::dict(std::make_shared<const Dict>(budget, std::move(entries), std::move(sorted),
                                                  levels, std::move(spelling)));
}

}  // namespace heddle::chat
