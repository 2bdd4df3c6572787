// SPDX-License-Identifier: Apache-2.0
// FieldTable: the fields of an object in a request as a table, by which FieldReader reads them and
// /openapi.json describes them. The tables are in body_fields.h.
//
// Threading: constants; thread-safe. Cost: none at run time; names are looked up at compile time.
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
  kStrings,         // a text or a list of texts
  kObject,          // an object of `members`; without them, of any
  kObjects,         // a list of objects
  kList,            // a list of any values
  kTokenIds,        // a list of token ids
  kPrompts,         // a text, a list of texts, a list of token ids, or a list of such lists
  kTokenPrompts,    // a list of token ids, or a list of such lists
  kStringOrObject,  // JSON as text, or the JSON value itself
  kStringOrList,    // a text, or a list of parts
  kStringOrNumber,
  kBooleanOrString,
  kFile,  // a file in a multipart form
};

struct Field {
  std::string_view name;
  FieldType type = FieldType::kString;
  std::string_view preset = {};  // default as JSON; empty if there is none or `about` states it
  std::string_view about = {};   // description, one sentence
  NumberRange range = {};        // allowed range of kInteger and kNumber
  std::span<const Field> members = {};
  std::string_view choices = {};  // the allowed texts, separated by ", "; empty: any text
  bool required = false;
  bool per_prompt = false;  // a list with one value per prompt is accepted, too

  // Converts to the field's name, which is often all that is needed.
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr operator std::string_view() const { return name; }
};

// Not constexpr, so that a call during a look-up at compile time fails to compile.
void there_is_no_such_field();

template <size_t kCount>
struct FieldTable {
  std::array<Field, kCount> fields;

  // The field of this name. An unknown name does not compile.
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

// One table with the fields of all these tables.
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

// The same fields, each of which also accepts a list with one value per prompt.
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
