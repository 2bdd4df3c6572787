// SPDX-License-Identifier: Apache-2.0
#include "chat/python_text.h"

#include <fmt/format.h>

#include "chat/numbers.h"
#include "chat/render_state.h"
#include "chat/text_operations.h"

namespace heddle::chat {

namespace {

Status write_items(TextWriter& out, const std::vector<Value>& items) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) HEDDLE_RETURN_IF_ERROR(out.append(", "));
    first = false;
    HEDDLE_RETURN_IF_ERROR(write_repr(out, item));
  }
  return {};
}

Status write_sequence(TextWriter& out, const Sequence& sequence) {
  switch (sequence.flavor) {
    case Flavor::kList:
      HEDDLE_RETURN_IF_ERROR(out.append("["));
      HEDDLE_RETURN_IF_ERROR(write_items(out, sequence.items));
      return out.append("]");
    case Flavor::kTuple:
      HEDDLE_RETURN_IF_ERROR(out.append("("));
      HEDDLE_RETURN_IF_ERROR(write_items(out, sequence.items));
      return out.append(sequence.items.size() == 1 ? ",)" : ")");
    case Flavor::kRange: {
      const std::vector<Value>& items = sequence.items;
      if (items.empty()) return out.append("range(0, 0)");
      const int64_t first = items.front().as_integer();
      const int64_t step = items.size() > 1 ? items[1].as_integer() - first : 1;
      const int64_t stop = items.back().as_integer() + (step > 0 ? 1 : -1);
      return out.append(step == 1 ? fmt::format("range({}, {})", first, stop)
                                  : fmt::format("range({}, {}, {})", first, stop, step));
    }
    case Flavor::kGenerator:
      return out.append("<generator>");
    case Flavor::kKeys:
    case Flavor::kValues:
    case Flavor::kItems:
      HEDDLE_RETURN_IF_ERROR(out.append(sequence.flavor == Flavor::kKeys     ? "dict_keys(["
                                        : sequence.flavor == Flavor::kValues ? "dict_values(["
                                                                             : "dict_items(["));
      HEDDLE_RETURN_IF_ERROR(write_items(out, sequence.items));
      return out.append("])");
  }
  return {};
}

Status write_dict(TextWriter& out, const Dict& dict) {
  HEDDLE_RETURN_IF_ERROR(out.append("{"));
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!first) HEDDLE_RETURN_IF_ERROR(out.append(", "));
    first = false;
    HEDDLE_RETURN_IF_ERROR(write_repr(out, key));
    HEDDLE_RETURN_IF_ERROR(out.append(": "));
    HEDDLE_RETURN_IF_ERROR(write_repr(out, value));
  }
  return out.append("}");
}

void append_escaped(std::string& out, char32_t c) {
  if (c < 0x100) {
    fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<uint32_t>(c));
  } else if (c < 0x10000) {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<uint32_t>(c));
  } else {
    fmt::format_to(std::back_inserter(out), "\\U{:08x}", static_cast<uint32_t>(c));
  }
}

}  // namespace

std::string repr_of(std::string_view text) {
  const bool use_double =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = use_double ? '"' : '\'';
  std::string result(1, quote);
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const char32_t c = next_code_point(text, i);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      result += '\\';
      result += static_cast<char>(c);
    } else if (c == '\n') {
      result += "\\n";
    } else if (c == '\r') {
      result += "\\r";
    } else if (c == '\t') {
      result += "\\t";
    } else if (is_printable(c)) {
      result += text.substr(begin, i - begin);
    } else {
      append_escaped(result, c);
    }
  }
  return result + quote;
}

Status write_str(TextWriter& out, const Value& value) {
  if (value.is_string()) return out.append(value.as_string());
  if (value.is_undefined()) return {};
  return write_repr(out, value);
}

Status write_repr(TextWriter& out, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return out.append("Undefined");
    case Kind::kNone:
      return out.append("None");
    case Kind::kBool:
      return out.append(value.as_bool() ? "True" : "False");
    case Kind::kInt:
      return out.append(fmt::format_int(value.as_integer()).c_str());
    case Kind::kBigInt:
      return out.append(value.as_digits());
    case Kind::kFloat:
      return out.append(float_text(value.as_double()));
    case Kind::kString:
      // Escapes make at most four bytes of one: checks the budget before building the text.
      HEDDLE_RETURN_IF_ERROR(out.budget()->fits(4 * value.as_string().size()));
      return out.append(repr_of(value.as_string()));
    case Kind::kSequence:
      return write_sequence(out, *value.as_sequence());
    case Kind::kDict:
      return write_dict(out, value.as_dict());
    case Kind::kNamespace:
      return out.append("<namespace>");  // its values are not printed, because they may contain the
                                         // namespace itself
    case Kind::kLoop:
      return out.append(fmt::format("<loop {}/{}>", value.as_loop()->index + 1,
                                    value.as_loop()->items->items.size()));
    case Kind::kMacro:
      return out.append(fmt::format("<macro {}>", repr_of(macro_name(*value.as_macro()))));
    case Kind::kMethod:
      return out.append(fmt::format("<method {}>", repr_of(value.as_method().name)));
    case Kind::kBuiltin:
      return out.append("<function>");
  }
  return {};
}

Result<Value> to_string_value(Budget* budget, const Value& value) {
  if (value.is_string()) return value;
  TextWriter out(budget);
  HEDDLE_RETURN_IF_ERROR(write_str(out, value));
  return out.finish();
}

}  // namespace heddle::chat
