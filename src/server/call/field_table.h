// SPDX-License-Identifier: Apache-2.0
// FieldTable: the fields of an object in a request as data, which FieldReader reads by and
// /openapi.json shows. body_fields.h has the tables.
//
// Threading: constants. Cost: none while a request is read; names are looked up by the compiler.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

namespace heddle::server {

struct NumberRange {
  double min = -std::numeric_limits<float>::max();
  double max = std::numeric_limits<float>::max();
  bool min_excluded = false;
};

enum class FieldType : uint8_t {
  kBoolean,
  kInteger,
  kNumber,
  kString,
  kStrings,         // one, or a list
  kObject,          // of `members`, or of any
  kObjects,         // a list
  kList,            // of anything
  kTokenIds,        // a list
  kPrompts,         // a text, a list of texts, a list of token ids, or a list of such lists
  kTokenPrompts,    // a list of token ids, or a list of such lists
  kStringOrObject,  // JSON as text, or the value itself
  kStringOrList,    // a text, or a list of parts
  kStringOrNumber,
  kBooleanOrString,
  kFile,  // of a form
};

struct Field {
  std::string_view name;
  FieldType type = FieldType::kString;
  std::string_view preset = {};  // what an absent one means, as JSON; empty where `about` says it
  std::string_view about = {};   // a sentence
  NumberRange range = {};        // of kInteger and kNumber
  std::span<const Field> members = {};
  std::string_view choices = {};  // the only texts, with ", " between them
  bool required = false;
  bool per_prompt = false;  // or a list with one for each prompt

  // A field is often meant by its name alone.
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr operator std::string_view() const { return name; }
};

// Not constexpr: a call while a name is looked up does not compile.
void there_is_no_such_field();

template <size_t kCount>
struct FieldTable {
  std::array<Field, kCount> fields;

  // The field of this name; without one the program does not compile.
  consteval const Field& operator[](std::string_view name) const {
    for (const Field& field : fields) {
      if (field.name == name) return field;
    }
    there_is_no_such_field();
    return fields.front();
  }

  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr operator std::span<const Field>() const { return fields; }
};

template <size_t kCount>
consteval FieldTable<kCount> field_table(const Field (&list)[kCount]) {
  return {std::to_array(list)};
}

// The fields of all these tables.
template <size_t... kCounts>
consteval auto joined(const FieldTable<kCounts>&... tables) {
  FieldTable<(kCounts + ...)> all;
  size_t next = 0;
  const auto append = [&all, &next](const auto& table) {
    for (const Field& field : table.fields) all.fields[next++] = field;
  };
  (append(tables), ...);
  return all;
}

// The same fields, each one for all prompts or a list with one for each.
template <size_t kCount>
consteval FieldTable<kCount> per_prompt(FieldTable<kCount> table) {
  for (Field& field : table.fields) field.per_prompt = true;
  return table;
}

consteval Field renamed(Field field, std::string_view name) {
  field.name = name;
  return field;
}

}  // namespace heddle::server
