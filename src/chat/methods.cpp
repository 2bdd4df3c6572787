// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "chat/access.h"
#include "chat/callables.h"
#include "chat/operators.h"
#include "chat/python_text.h"
#include "chat/render_state.h"
#include "chat/string_format.h"
#include "chat/text_operations.h"
#include "chat/value.h"

namespace heddle::chat {

namespace {

// ==== Strings ====

std::string_view text_of(const Value& self) { return self.as_string(); }

// Counts the cost of a method that reads its string once and may write as much.
Status charge(Budget* budget, const Value& self) {
  HEDDLE_RETURN_IF_ERROR(budget->fits(3 * self.as_string().size()));
  return budget->touch(self.as_string().size());
}

// ---- Stripping and splitting ----

template <bool kLeft, bool kRight>
Result<Value> strip(Budget* budget, const Value& self, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args, BoundArguments::bind(call, "strip", {"chars"}));
  HEDDLE_RETURN_IF_ERROR(charge(budget, self));
  std::optional<std::string_view> characters;
  if (args.get(0) != nullptr && !args.get(0)->is_none()) {
    HEDDLE_ASSIGN_OR_RETURN(characters, args.text(0, {}));
    // Every character may be compared with all characters of the set.
    HEDDLE_RETURN_IF_ERROR(budget->step(
        static_cast<int64_t>(std::min<size_t>(characters->size(), size_t{1} << 20) *
                             std::min<size_t>(self.as_string().size(), size_t{1} << 30) / 64)));
  }
  return make_text(budget, std::string(stripped(text_of(self), characters, kLeft, kRight)));
}

template <bool kFromRight>
Result<Value> split(Budget* budget, const Value& self, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args,
                          BoundArguments::bind(call, "split", {"sep", "maxsplit"}));
  HEDDLE_RETURN_IF_ERROR(charge(budget, self));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t max_splits, args.integer(1, -1));
  // The parts need more memory than the text: checks the worst case, one part per character.
  HEDDLE_RETURN_IF_ERROR(budget->fits(self.as_string().size() * sizeof(std::string_view)));
  if (args.get(0) == nullptr || args.get(0)->is_none()) {
    return list_of_texts(budget, split_at_spaces(text_of(self), max_splits, kFromRight));
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view separator, args.text(0, {}));
  if (separator.empty()) return invalid_argument("split(): the separator is empty");
  HEDDLE_RETURN_IF_ERROR(kFromRight ? charge_search(budget, text_of(self), separator) : Status());
  return list_of_texts(budget, split_at(text_of(self), separator, max_splits, kFromRight));
}

Result<Value> splitlines(Budget* budget, const Value& self, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args, BoundArguments::bind(call, "splitlines", {"keepends"}));
  HEDDLE_RETURN_IF_ERROR(charge(budget, self));
  HEDDLE_RETURN_IF_ERROR(budget->fits(self.as_string().size() * sizeof(std::string_view)));
  return list_of_texts(budget, split_lines(text_of(self), args.flag(0, false)));
}

template <bool kFromRight>
Result<Value> partition(Budget* budget, const Value& self, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args, BoundArguments::bind(call, "partition", {"sep"}, 1));
  HEDDLE_RETURN_IF_ERROR(charge(budget, self));
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view separator, args.text(0, {}));
  if (separator.empty()) return invalid_argument("partition(): the separator is empty");
  const std::string_view text = text_of(self);
  HEDDLE_RETURN_IF_ERROR(kFromRight ? charge_search(budget, text, separator) : Status());
  const size_t found = kFromRight ? text.rfind(separator) : find_text(text, separator, 0);
  std::array<std::string_view, 3> parts{};
  if (found == std::string_view::npos) {
    parts[kFromRight ? 2 : 0] = text;
  } else {
    parts = {text.substr(0, found), separator, text.substr(found + separator.size())};
  }
  std::vector<Value> items;
  for (const std::string_view part : parts) {
    HEDDLE_ASSIGN_OR_RETURN(Value item, make_text(budget, std::string(part)));
    items.push_back(std::move(item));
  }
  return make_sequence(budget, Flavor::kTuple, std::move(items));
}

// ---- Searching ----

struct Window {
  std::string_view text;
  int64_t first = 0;   // number of code points before the window
  bool exists = true;  // false if start is after the end: then not even "" is found
};

// The part of `self` between the optional positions `start` and `end`.
Result<Window> window(Budget* budget, const Value& self, const BoundArguments& args, size_t start) {
  const Text& text = self.as_text();
  HEDDLE_RETURN_IF_ERROR(budget->touch(text.bytes.size()));
  const auto length = static_cast<int64_t>(text.num_code_points);
  int64_t begin = 0;
  int64_t end = length;
  if (args.has(start)) {
    HEDDLE_ASSIGN_OR_RETURN(begin, args.integer(start, 0));
  }
  if (args.has(start + 1)) {
    HEDDLE_ASSIGN_OR_RETURN(end, args.integer(start + 1, length));
  }
  if (begin < 0) begin = std::max<int64_t>(begin < -length ? 0 : begin + length, 0);
  if (end < 0) end = end < -length ? 0 : end + length;
  end = std::min(end, length);
  if (begin > end) return Window{.text = {}, .first = 0, .exists = false};
  const size_t from = offset_of_code_point(text.bytes, static_cast<size_t>(begin));
  const std::string_view rest = std::string_view(text.bytes).substr(from);
  return Window{
      .text = rest.substr(0, offset_of_code_point(rest, static_cast<size_t>(end - begin))),
      .first = begin};
}

template <bool kAtStart>
Result<Value> has_affix(Budget* budget, const Value& self, const Arguments& call) {
  const std::string_view name = kAtStart ? "startswith" : "endswith";
  HEDDLE_ASSIGN_OR_RETURN(const auto args,
                          BoundArguments::bind(call, name, {"text", "start", "end"}, 1));
  HEDDLE_ASSIGN_OR_RETURN(const Window part, window(budget, self, args, 1));
  const Value& affix = *args.get(0);
  const bool is_tuple = affix.is(Kind::kSequence) && affix.as_sequence()->flavor == Flavor::kTuple;
  const auto matches = [&part](const Value& candidate) {
    const std::string& text = candidate.as_string();
    return part.exists && (kAtStart ? part.text.starts_with(text) : part.text.ends_with(text));
  };
  if (affix.is_string()) return Value::boolean(matches(affix));
  if (!is_tuple) {
    HEDDLE_RETURN_IF_ERROR(args.text(0, {}).status());  // the error names the expected type
    return Value::boolean(false);
  }
  for (const Value& candidate : affix.as_sequence()->items) {
    HEDDLE_RETURN_IF_ERROR(budget->step());
    if (!candidate.is_string()) {
      return invalid_argument(fmt::format("{}(): the tuple must consist of strings, not '{}'", name,
                                          candidate.type_name()));
    }
    if (matches(candidate)) return Value::boolean(true);
  }
  return Value::boolean(false);
}

template <bool kFromRight, bool kMustExist>
Result<Value> find(Budget* budget, const Value& self, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args,
                          BoundArguments::bind(call, "find", {"text", "start", "end"}, 1));
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view wanted, args.text(0, {}));
  HEDDLE_ASSIGN_OR_RETURN(const Window part, window(budget, self, args, 1));
  HEDDLE_RETURN_IF_ERROR(kFromRight ? charge_search(budget, part.text, wanted) : Status());
  const size_t found = !part.exists ? std::string_view::npos
                       : kFromRight ? part.text.rfind(wanted)
                                    : find_text(part.text, wanted, 0);
  if (found == std::string_view::npos) {
    if (kMustExist) return invalid_argument("index(): substring not found");
    return Value::integer(-1);
  }
  return Value::integer(part.first +
                        static_cast<int64_t>(count_code_points(part.text.substr(0, found))));
}

Result<Value> count(Budget* budget, const Value& self, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args,
                          BoundArguments::bind(call, "count", {"text", "start", "end"}, 1));
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view wanted, args.text(0, {}));
  HEDDLE_ASSIGN_OR_RETURN(const Window part, window(budget, self, args, 1));
  if (!part.exists) return Value::integer(0);
  if (wanted.empty()) return Value::integer(static_cast<int64_t>(count_code_points(part.text)) + 1);
  int64_t total = 0;
  for (size_t at = find_text(part.text, wanted, 0); at != std::string_view::npos;
       at = find_text(part.text, wanted, at + wanted.size())) {
    ++total;
  }
  return Value::integer(total);
}

// ---- Rewriting ----

Result<Value> replace_method(Budget* budget, const Value& self, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args,
                          BoundArguments::bind(call, "replace", {"old", "new", "count"}, 2));
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view from, args.text(0, {}));
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view to, args.text(1, {}));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t limit, args.integer(2, -1));
  return replaced(budget, text_of(self), from, to, limit);
}

std::string swap_case(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    if (is_upper(c)) {
      append_lower(c, result);
    } else {
      append_upper(c, result);
    }
  }
  return result;
}

template <std::string (*kMapping)(std::string_view)>
Result<Value> mapped_method(Budget* budget, const Value& self, const Arguments& call) {
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(call, "the method", {}).status());
  HEDDLE_RETURN_IF_ERROR(charge(budget, self));
  HEDDLE_RETURN_IF_ERROR(budget->step(static_cast<int64_t>(self.as_string().size() / 8)));
  return make_text(budget, kMapping(text_of(self)));
}

template <bool kPrefix>
Result<Value> remove_affix(Budget* budget, const Value& self, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args, BoundArguments::bind(call, "removeprefix", {"text"}, 1));
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view affix, args.text(0, {}));
  HEDDLE_RETURN_IF_ERROR(charge(budget, self));
  std::string_view text = text_of(self);
  if (kPrefix ? text.starts_with(affix) : text.ends_with(affix)) {
    text = kPrefix ? text.substr(affix.size()) : text.substr(0, text.size() - affix.size());
  }
  return make_text(budget, std::string(text));
}

enum class Side { kLeft, kRight, kCenter };

template <Side kSide>
Result<Value> justify(Budget* budget, const Value& self, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args,
                          BoundArguments::bind(call, "justify", {"width", "fillchar"}, 1));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t width, args.integer(0, 0));
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view fill, args.text(1, " "));
  if (count_code_points(fill) != 1)
    return invalid_argument("the fill character must be one character");
  const auto length = static_cast<int64_t>(self.as_text().num_code_points);
  const int64_t missing = width > length ? width - length : 0;
  // As in Python, the odd space is on the left if the width is odd.
  const int64_t left = kSide == Side::kLeft    ? 0
                       : kSide == Side::kRight ? missing
                                               : missing / 2 + (missing & width & 1);
  return padded(budget, text_of(self), left, missing - left, fill);
}

Result<Value> zfill(Budget* budget, const Value& self, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args, BoundArguments::bind(call, "zfill", {"width"}, 1));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t width, args.integer(0, 0));
  std::string_view text = text_of(self);
  const auto length = static_cast<int64_t>(self.as_text().num_code_points);
  TextWriter out(budget);
  if (text.starts_with('-') || text.starts_with('+')) {
    HEDDLE_RETURN_IF_ERROR(out.append(text.substr(0, 1)));
    text.remove_prefix(1);
  }
  HEDDLE_RETURN_IF_ERROR(out.repeat("0", width > length ? width - length : 0));
  HEDDLE_RETURN_IF_ERROR(out.append(text));
  return out.finish();
}

Result<Value> join_method(Budget* budget, const Value& self, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args, BoundArguments::bind(call, "join", {"items"}, 1));
  HEDDLE_ASSIGN_OR_RETURN(const SequencePtr parts, iterate(budget, *args.get(0)));
  TextWriter out(budget);
  bool first = true;
  for (const Value& part : parts->items) {
    if (!part.is_string()) {
      return invalid_argument(
          fmt::format("join(): expected strings, found '{}'", part.type_name()));
    }
    if (!first) HEDDLE_RETURN_IF_ERROR(out.append(text_of(self)));
    first = false;
    HEDDLE_RETURN_IF_ERROR(out.append(part.as_string()));
  }
  return out.finish();
}

// ---- Questions ----

template <bool (*kIs)(char32_t)>
Result<Value> all_are(Budget* budget, const Value& self, const Arguments& call) {
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(call, "the method", {}).status());
  HEDDLE_RETURN_IF_ERROR(budget->touch(self.as_string().size()));
  const std::string_view text = text_of(self);
  for (size_t i = 0; i < text.size();) {
    if (!kIs(next_code_point(text, i))) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

bool is_alphanumeric(char32_t c) { return is_alphabetic(c) || is_numeric(c); }

// Whether the text has a cased character and all cased characters have the right case.
template <bool (*kWrongCase)(char32_t)>
Result<Value> is_in_case(Budget* budget, const Value& self, const Arguments& call) {
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(call, "the method", {}).status());
  HEDDLE_RETURN_IF_ERROR(budget->touch(self.as_string().size()));
  const std::string_view text = text_of(self);
  bool has_cased = false;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    if (kWrongCase(c)) return Value::boolean(false);
    has_cased = has_cased || is_cased(c);
  }
  return Value::boolean(has_cased);
}

Result<Value> is_ascii(Budget* budget, const Value& self, const Arguments& call) {
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(call, "isascii", {}).status());
  HEDDLE_RETURN_IF_ERROR(budget->step());
  return Value::boolean(self.as_text().is_ascii());
}

Result<Value> format_method(Budget* budget, const Value& self, const Arguments& call) {
  return format_braces(budget, text_of(self), call);
}

constexpr std::array<std::pair<std::string_view, MethodFunction>, 40> kStringMethods = {{
    {"capitalize", mapped_method<capitalized>},
    {"center", justify<Side::kCenter>},
    {"count", count},
    {"endswith", has_affix<false>},
    {"find", find<false, false>},
    {"format", format_method},
    {"index", find<false, true>},
    {"isalnum", all_are<is_alphanumeric>},
    {"isalpha", all_are<is_alphabetic>},
    {"isascii", is_ascii},
    {"isdecimal", all_are<is_decimal>},
    {"isdigit", all_are<is_decimal>},
    {"islower", is_in_case<is_upper>},
    {"isnumeric", all_are<is_numeric>},
    {"isprintable", all_are<is_printable>},
    {"isspace", all_are<is_space>},
    {"isupper", is_in_case<is_lower>},
    {"join", join_method},
    {"ljust", justify<Side::kLeft>},
    {"lower", mapped_method<to_lower>},
    {"lstrip", strip<true, false>},
    {"partition", partition<false>},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
    {"replace", replace_method},
    {"rfind", find<true, false>},
    {"rindex", find<true, true>},
    {"rjust", justify<Side::kRight>},
    {"rpartition", partition<true>},
    {"rsplit", split<true>},
    {"rstrip", strip<false, true>},
    {"split", split<false>},
    {"splitlines", splitlines},
    {"startswith", has_affix<true>},
    {"strip", strip<true, true>},
    {"swapcase", mapped_method<swap_case>},
    {"title", mapped_method<title_case>},
    {"upper", mapped_method<to_upper>},
    {"zfill", zfill},
    {"casefold", mapped_method<to_lower>},
}};

// ==== Dicts, lists and loops ====

constexpr std::array<std::string_view, 5> kDictMethods = {"get", "keys", "values", "items", "copy"};
constexpr std::array<std::string_view, 5> kDictChanges = {"pop", "popitem", "update", "clear",
                                                          "setdefault"};
constexpr std::array<std::string_view, 2> kSequenceMethods = {"index", "count"};
constexpr std::array<std::string_view, 8> kListChanges = {"append", "extend",  "insert", "pop",
                                                          "remove", "reverse", "sort",   "clear"};

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Result<Value> dict_view(Budget* budget, const Dict& dict, std::string_view name) {
  HEDDLE_RETURN_IF_ERROR(budget->fits(dict.size() * sizeof(Value)));
  std::vector<Value> items;
  items.reserve(dict.size());
  for (const auto& [key, value] : dict.entries()) {
    if (name == "keys") {
      items.push_back(key);
    } else if (name == "values") {
      items.push_back(value);
    } else {
      HEDDLE_ASSIGN_OR_RETURN(Value pair, make_sequence(budget, Flavor::kTuple, {key, value}));
      items.push_back(std::move(pair));
    }
  }
  const Flavor flavor = name == "keys"     ? Flavor::kKeys
                        : name == "values" ? Flavor::kValues
                                           : Flavor::kItems;
  return make_sequence(budget, flavor, std::move(items));
}

Result<Value> call_dict_method(Budget* budget, const Value& self, std::string_view name,
                               const Arguments& arguments) {
  if (name == "get") {
    // Python's dict.get takes no keyword arguments.
    if (!arguments.named.empty()) return invalid_argument("get() takes no keyword arguments");
    HEDDLE_ASSIGN_OR_RETURN(const auto bound,
                            BoundArguments::bind(arguments, name, {"key", "default"}, 1));
    if (const Value* found = self.as_dict().find(*bound.get(0))) return *found;
    return bound.get(1) != nullptr ? *bound.get(1) : Value::none();
  }
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(arguments, name, {}).status());
  if (name == "copy") return self;  // values are immutable, so the copy is the value itself
  return dict_view(budget, self.as_dict(), name);
}

Result<Value> call_sequence_method(Budget* budget, const Value& self, std::string_view name,
                                   const Arguments& arguments) {
  HEDDLE_ASSIGN_OR_RETURN(const auto bound, BoundArguments::bind(arguments, name, {"value"}, 1));
  const std::vector<Value>& items = self.as_sequence()->items;
  int64_t count = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    HEDDLE_ASSIGN_OR_RETURN(const bool same, equal(budget, items[i], *bound.get(0)));
    if (same && name == "index") return Value::integer(static_cast<int64_t>(i));
    count += same ? 1 : 0;
  }
  if (name == "index") {
    return invalid_argument(fmt::format("index(): the value is not in the {}", self.type_name()));
  }
  return Value::integer(count);
}

Result<Value> call_loop_method(Budget* budget, LoopState& loop, std::string_view name,
                               const Arguments& arguments) {
  if (!arguments.named.empty()) {
    return invalid_argument(fmt::format("loop.{}() takes no keyword arguments", name));
  }
  if (name == "cycle") {
    if (arguments.positional.empty())
      return invalid_argument("loop.cycle() needs at least one value");
    return arguments.positional[loop.index % arguments.positional.size()];
  }
  bool changed =
      loop.last_changed.size() != arguments.positional.size() || loop.last_changed.empty();
  for (size_t i = 0; i < arguments.positional.size() && !changed; ++i) {
    HEDDLE_ASSIGN_OR_RETURN(const bool same,
                            equal(budget, loop.last_changed[i], arguments.positional[i]));
    changed = !same;
  }
  loop.last_changed = arguments.positional;
  return Value::boolean(changed);
}

}  // namespace

MethodFunction find_string_method(std::string_view name) {
  for (const auto& [known, function] : kStringMethods) {
    if (known == name) return function;
  }
  return nullptr;
}

MethodKind find_method(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::kString:
      return find_string_method(name) != nullptr ? MethodKind::kCallable : MethodKind::kNone;
    case Kind::kDict:
      if (is_one_of(kDictMethods, name)) return MethodKind::kCallable;
      return is_one_of(kDictChanges, name) ? MethodKind::kForbidden : MethodKind::kNone;
    case Kind::kSequence: {
      const Flavor flavor = self.as_sequence()->flavor;
      if (flavor <= Flavor::kRange && is_one_of(kSequenceMethods, name))
        return MethodKind::kCallable;
      return flavor == Flavor::kList && is_one_of(kListChanges, name) ? MethodKind::kForbidden
                                                                      : MethodKind::kNone;
    }
    default:
      return MethodKind::kNone;
  }
}

Result<Value> call_method(Budget* budget, const BoundMethod& method, const Arguments& arguments) {
  const Value& self = method.self;
  if (self.is_string()) return find_string_method(method.name)(budget, self, arguments);
  if (self.is(Kind::kDict)) return call_dict_method(budget, self, method.name, arguments);
  if (self.is(Kind::kSequence)) return call_sequence_method(budget, self, method.name, arguments);
  return call_loop_method(budget, *self.as_loop(), method.name, arguments);
}

}  // namespace heddle::chat
