// SPDX-License-Identifier: Apache-2.0
#include "chat/access.h"

#include <algorithm>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "chat/callables.h"
#include "chat/numbers.h"
#include "chat/python_text.h"
#include "chat/render_state.h"
#include "chat/text_operations.h"
#include "tokenizer/utf8.h"

namespace heddle::chat {

namespace {

std::string described(const Value& object) {
  return object.is_none() ? "'None'" : fmt::format("'{} object'", object.type_name());
}

Value no_attribute(const Value& object, std::string_view name) {
  return Value::undefined(fmt::format("{} has no attribute {}", described(object), repr_of(name)));
}

Value loop_attribute(const Value& object, std::string_view name) {
  const LoopState& loop = *object.as_loop();
  const auto index = static_cast<int64_t>(loop.index);
  const auto length = static_cast<int64_t>(loop.items->items.size());
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(length - index);
  if (name == "revindex0") return Value::integer(length - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 >= length);
  if (name == "length") return Value::integer(length);
  if (name == "depth") return Value::integer(loop.depth);
  if (name == "depth0") return Value::integer(loop.depth - 1);
  if (name == "previtem") {
    return index > 0 && index <= length ? loop.items->items[loop.index - 1]
                                        : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < length ? loop.items->items[loop.index + 1]
                              : Value::undefined("there is no next item");
  }
  if (name == "cycle" || name == "changed") return Value::method(object, name);
  return no_attribute(object, name);
}

// The method `name` of the value's type; none if there is no such method.
std::optional<Value> method_of(const Value& object, std::string_view name) {
  switch (find_method(object, name)) {
    case MethodKind::kCallable:
      return Value::method(object, name);
    case MethodKind::kForbidden:
      return Value::undefined(fmt::format(
          "{} cannot be changed by a template: '{}' is not available", described(object), name));
    case MethodKind::kNone:
      break;
  }
  return {};
}

// The character at `index`, counted from the end if negative; none if out of range.
std::optional<std::string> character_at(const Text& text, int64_t index) {
  const auto length = static_cast<int64_t>(text.num_code_points);
  if (index < 0) index += length;
  if (index < 0 || index >= length) return {};
  if (text.is_ascii()) return std::string(1, text.bytes[static_cast<size_t>(index)]);
  const size_t begin = offset_of_code_point(text.bytes, static_cast<size_t>(index));
  return text.bytes.substr(begin, tokenizer::utf8_length(text.bytes[begin]));
}

struct Range {
  int64_t begin;
  int64_t step;
  int64_t count;
};

Result<int64_t> slice_part(const Value& part) {
  if (part.is_undefined()) return invalid_argument(part.undefined_reason());
  if (part.is_integral()) return part.as_integer();
  return invalid_argument(
      fmt::format("slice indices must be integers or none, not '{}'", part.type_name()));
}

Result<Range> slice_range(int64_t length, const Value* begin, const Value* end, const Value* step) {
  const auto given = [](const Value* part) { return part != nullptr && !part->is_none(); };
  int64_t by = 1;
  if (given(step)) {
    HEDDLE_ASSIGN_OR_RETURN(by, slice_part(*step));
    if (by == 0) return invalid_argument("a slice's step must not be zero");
    by = std::max(by, -std::numeric_limits<int64_t>::max());
  }
  const auto clamp = [length, by](int64_t index) {
    if (index < 0) index = index < -length ? -1 : index + length;
    const int64_t low = by > 0 ? 0 : -1;
    const int64_t high = by > 0 ? length : length - 1;
    return std::clamp(index, low, high);
  };
  int64_t first = by > 0 ? 0 : length - 1;
  int64_t last = by > 0 ? length : -1;
  if (given(begin)) {
    HEDDLE_ASSIGN_OR_RETURN(const int64_t index, slice_part(*begin));
    first = clamp(index);
  }
  if (given(end)) {
    HEDDLE_ASSIGN_OR_RETURN(const int64_t index, slice_part(*end));
    last = clamp(index);
  }
  const int64_t span = by > 0 ? last - first : first - last;
  const int64_t stride = by > 0 ? by : -by;
  return Range{.begin = first, .step = by, .count = span <= 0 ? 0 : (span - 1) / stride + 1};
}

Result<Value> slice_text(Budget* budget, const Text& text, const Range& range) {
  HEDDLE_RETURN_IF_ERROR(budget->touch(text.bytes.size()));
  if (range.count == 0) return make_text(budget, "");
  const auto first = static_cast<size_t>(range.begin);
  const auto count = static_cast<size_t>(range.count);
  if (range.step == 1) {
    const std::string_view rest =
        std::string_view(text.bytes)
            .substr(text.is_ascii() ? first : offset_of_code_point(text.bytes, first));
    const size_t size = text.is_ascii() ? count : offset_of_code_point(rest, count);
    HEDDLE_RETURN_IF_ERROR(budget->fits(size));
    return make_text(budget, std::string(rest.substr(0, size)));
  }
  std::string result;
  HEDDLE_RETURN_IF_ERROR(budget->fits(text.bytes.size()));
  if (text.is_ascii()) {
    for (int64_t i = 0; i < range.count; ++i) {
      result += text.bytes[static_cast<size_t>(range.begin + i * range.step)];
    }
    return make_text(budget, std::move(result));
  }
  HEDDLE_RETURN_IF_ERROR(budget->fits(text.num_code_points * sizeof(size_t)));
  std::vector<size_t> offsets;
  for (size_t i = 0; i < text.bytes.size(); i += tokenizer::utf8_length(text.bytes[i]))
    offsets.push_back(i);
  for (int64_t i = 0; i < range.count; ++i) {
    const size_t offset = offsets[static_cast<size_t>(range.begin + i * range.step)];
    result.append(text.bytes, offset, tokenizer::utf8_length(text.bytes[offset]));
  }
  return make_text(budget, std::move(result));
}

Result<SequencePtr> as_items(Budget* budget, std::vector<Value> items) {
  HEDDLE_ASSIGN_OR_RETURN(const Value list, make_list(budget, std::move(items)));
  return list.as_sequence();
}

}  // namespace

Result<Value> get_attribute(Budget* budget, const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kUndefined:
      return invalid_argument(object.undefined_reason());
    case Kind::kNamespace: {
      const Variables& variables = object.as_namespace()->variables;
      const auto found = variables.find(name);
      return found == variables.end() ? no_attribute(object, name) : found->second;
    }
    case Kind::kLoop:
      return loop_attribute(object, name);
    case Kind::kDict: {
      HEDDLE_RETURN_IF_ERROR(budget->step());
      if (std::optional<Value> method = method_of(object, name)) return *std::move(method);
      const Value* item = object.as_dict().find(name);
      return item != nullptr ? *item : no_attribute(object, name);
    }
    default:
      if (std::optional<Value> method = method_of(object, name)) return *std::move(method);
      return no_attribute(object, name);
  }
}

Result<Value> get_item(Budget* budget, const Value& object, const Value& key) {
  if (object.is_undefined()) return invalid_argument(object.undefined_reason());
  if (object.is(Kind::kDict)) {
    HEDDLE_RETURN_IF_ERROR(budget->step());
    if (const Value* item = object.as_dict().find(key)) return *item;
  } else if (key.is_integral()) {
    const int64_t index = key.as_integer();
    if (object.is_string()) {
      HEDDLE_RETURN_IF_ERROR(
          budget->touch(object.as_text().is_ascii() ? 0 : object.as_string().size()));
      if (std::optional<std::string> text = character_at(object.as_text(), index)) {
        return make_text(budget, *std::move(text));
      }
    } else if (object.is(Kind::kSequence) && object.as_sequence()->flavor <= Flavor::kRange) {
      const std::vector<Value>& items = object.as_sequence()->items;
      const auto length = static_cast<int64_t>(items.size());
      const int64_t position = index < 0 ? index + length : index;
      if (position >= 0 && position < length) return items[static_cast<size_t>(position)];
    }
  }
  if (key.is_string()) return get_attribute(budget, object, key.as_string());
  TextWriter written(budget);
  HEDDLE_RETURN_IF_ERROR(write_repr(written, key));
  return Value::undefined(fmt::format(
      "{} has no element {}",
      object.is_none() ? "None" : std::string(object.type_name()) + " object", written.text()));
}

Result<Value> get_path(Budget* budget, const Value& object, const Value& path,
                       const Value* otherwise) {
  const bool has_default = otherwise != nullptr && !otherwise->is_none();
  if (!path.is_string()) {
    HEDDLE_ASSIGN_OR_RETURN(Value item, get_item(budget, object, path));
    return has_default && item.is_undefined() ? *otherwise : item;
  }
  std::string_view rest = path.as_string();
  Value current = object;
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool is_index =
        !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    const std::optional<int64_t> index = is_index ? parse_integer(part, 10) : std::nullopt;
    const Value key = index ? Value::integer(*index) : Value::string(std::string(part));
    HEDDLE_RETURN_IF_ERROR(budget->step());
    HEDDLE_ASSIGN_OR_RETURN(current, get_item(budget, current, key));
    if (has_default && current.is_undefined()) current = *otherwise;
    if (dot == std::string_view::npos) return current;
    rest.remove_prefix(dot + 1);
  }
}

Result<Value> get_slice(Budget* budget, const Value& object, const Value* begin, const Value* end,
                        const Value* step) {
  if (object.is_undefined()) return invalid_argument(object.undefined_reason());
  HEDDLE_RETURN_IF_ERROR(budget->step());
  if (object.is_string()) {
    const Text& text = object.as_text();
    HEDDLE_ASSIGN_OR_RETURN(
        const Range range,
        slice_range(static_cast<int64_t>(text.num_code_points), begin, end, step));
    return slice_text(budget, text, range);
  }
  const bool sliceable =
      object.is(Kind::kSequence) && (object.as_sequence()->flavor <= Flavor::kRange ||
                                     object.as_sequence()->flavor == Flavor::kGenerator);
  if (!sliceable) {
    return invalid_argument(fmt::format("a '{}' cannot be sliced", object.type_name()));
  }
  const Sequence& sequence = *object.as_sequence();
  HEDDLE_ASSIGN_OR_RETURN(
      const Range range,
      slice_range(static_cast<int64_t>(sequence.items.size()), begin, end, step));
  HEDDLE_RETURN_IF_ERROR(budget->fits(static_cast<size_t>(range.count) * sizeof(Value)));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(range.count));
  for (int64_t i = 0; i < range.count; ++i) {
    items.push_back(sequence.items[static_cast<size_t>(range.begin + i * range.step)]);
  }
  const Flavor flavor = sequence.flavor == Flavor::kGenerator ? Flavor::kList : sequence.flavor;
  return make_sequence(budget, flavor, std::move(items));
}

Result<SequencePtr> iterate(Budget* budget, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return as_items(budget, {});
    case Kind::kSequence: {
      const SequencePtr& sequence = value.as_sequence();
      if (sequence->flavor != Flavor::kGenerator) return sequence;
      if (sequence->consumed) return as_items(budget, {});
      sequence->consumed = true;
      return sequence;
    }
    case Kind::kDict: {
      HEDDLE_RETURN_IF_ERROR(budget->fits(value.as_dict().size() * sizeof(Value)));
      std::vector<Value> keys;
      keys.reserve(value.as_dict().size());
      for (const auto& [key, item] : value.as_dict().entries()) keys.push_back(key);
      return as_items(budget, std::move(keys));
    }
    case Kind::kString: {
      const std::string& text = value.as_string();
      constexpr size_t kBytesPerCharacter = sizeof(Value) + sizeof(Text) + 32;
      HEDDLE_RETURN_IF_ERROR(budget->fits(value.as_text().num_code_points * kBytesPerCharacter));
      std::vector<Value> characters;
      characters.reserve(value.as_text().num_code_points);
      for (size_t i = 0; i < text.size();) {
        const size_t size = tokenizer::utf8_length(text[i]);
        HEDDLE_RETURN_IF_ERROR(budget->step());
        HEDDLE_ASSIGN_OR_RETURN(Value character, make_text(budget, text.substr(i, size)));
        characters.push_back(std::move(character));
        i += size;
      }
      return as_items(budget, std::move(characters));
    }
    default:
      return invalid_argument(fmt::format("'{}' object is not iterable", value.type_name()));
  }
}

Result<int64_t> length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return int64_t{0};
    case Kind::kString:
      return static_cast<int64_t>(value.as_text().num_code_points);
    case Kind::kSequence:
      return static_cast<int64_t>(value.as_sequence()->items.size());
    case Kind::kDict:
      return static_cast<int64_t>(value.as_dict().size());
    default:
      return invalid_argument(fmt::format("object of type '{}' has no length", value.type_name()));
  }
}

}  // namespace heddle::chat
