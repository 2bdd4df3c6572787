// SPDX-License-Identifier: Apache-2.0
#include "grammar/unicode_classes.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <pcre2.h>

#include "core/mutex.h"

namespace heddle::grammar {
namespace {

constexpr size_t kMaxNameBytes = 64;
constexpr size_t kMaxKeptClasses = 256;

// Long names of the general categories, of which PCRE2 knows only the short names.
constexpr std::array kLongNames = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"Letter", "L"},
    {"Cased_Letter", "L&"},
    {"LC", "L&"},
    {"Uppercase_Letter", "Lu"},
    {"Lowercase_Letter", "Ll"},
    {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Mark", "M"},
    {"Combining_Mark", "M"},
    {"Nonspacing_Mark", "Mn"},
    {"Spacing_Mark", "Mc"},
    {"Enclosing_Mark", "Me"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"digit", "Nd"},
    {"Letter_Number", "Nl"},
    {"Other_Number", "No"},
    {"Symbol", "S"},
    {"Math_Symbol", "Sm"},
    {"Currency_Symbol", "Sc"},
    {"Modifier_Symbol", "Sk"},
    {"Other_Symbol", "So"},
    {"Punctuation", "P"},
    {"punct", "P"},
    {"Connector_Punctuation", "Pc"},
    {"Dash_Punctuation", "Pd"},
    {"Open_Punctuation", "Ps"},
    {"Close_Punctuation", "Pe"},
    {"Initial_Punctuation", "Pi"},
    {"Final_Punctuation", "Pf"},
    {"Other_Punctuation", "Po"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
    {"Line_Separator", "Zl"},
    {"Paragraph_Separator", "Zp"},
    {"Other", "C"},
    {"Control", "Cc"},
    {"cntrl", "Cc"},
    {"Format", "Cf"},
    {"Surrogate", "Cs"},
    {"Private_Use", "Co"},
    {"Unassigned", "Cn"},
    {"ASCII_Hex_Digit", "ahex"},
});

// The name of a property in PCRE2's syntax; empty for a text that cannot be a property.
std::string pcre2_name(std::string_view name) {
  std::string_view value = name;
  bool is_script = false;
  if (const size_t equals = name.find('='); equals != std::string_view::npos) {
    const std::string_view key = name.substr(0, equals);
    value = name.substr(equals + 1);
    is_script = key == "Script" || key == "sc" || key == "Script_Extensions" || key == "scx";
    if (!is_script && key != "General_Category" && key != "gc") return {};
    if (is_script) {
      return std::string(key.starts_with("Script_E") || key == "scx" ? "scx:" : "sc:") +
             std::string(value);
    }
  }
  for (const auto& [long_name, short_name] : kLongNames) {
    if (value == long_name) return std::string(short_name);
  }
  return std::string(value);
}

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};

struct MatchDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

void append_utf8(uint32_t code, std::string& text) {
  const auto add = [&text](uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) return add(code);
  if (code < 0x800) {
    add(0xC0 | (code >> 6));
  } else if (code < 0x10000) {
    add(0xE0 | (code >> 12));
    add(0x80 | ((code >> 6) & 0x3F));
  } else {
    add(0xF0 | (code >> 18));
    add(0x80 | ((code >> 12) & 0x3F));
    add(0x80 | ((code >> 6) & 0x3F));
  }
  add(0x80 | (code & 0x3F));
}

// All characters once, without the surrogates, which are not characters.
std::string all_characters() {
  std::string text;
  text.reserve(size_t{4} * kMaxCodePoint);
  for (uint32_t code = 0; code <= kMaxCodePoint; ++code) {
    if (code < 0xD800 || code > 0xDFFF) append_utf8(code, text);
  }
  return text;
}

std::optional<CodePointSet> read_class(const std::string& property) {
  const std::string pattern = "\\p{" + property + "}+";
  const auto bytes_of = [](const std::string& text) {
    return reinterpret_cast<PCRE2_SPTR>(text.data());
  };
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_code, CodeDeleter> code(
      pcre2_compile(bytes_of(pattern), pattern.size(), PCRE2_UTF, &error, &offset, nullptr));
  if (code == nullptr) return std::nullopt;
  const std::unique_ptr<pcre2_match_data, MatchDeleter> match(
      pcre2_match_data_create_from_pattern(code.get(), nullptr));
  const std::string all = all_characters();
  CodePointSet set;
  PCRE2_SIZE begin = 0;
  while (begin < all.size() && pcre2_match(code.get(), bytes_of(all), all.size(), begin,
                                           PCRE2_NO_UTF_CHECK, match.get(), nullptr) > 0) {
    const PCRE2_SIZE* const found = pcre2_get_ovector_pointer(match.get());
    size_t first = found[0];
    size_t last = found[1] - 1;
    while ((static_cast<uint8_t>(all[last]) & 0xC0) == 0x80) --last;
    set.push_back({.first = next_code_point(all, first), .last = next_code_point(all, last)});
    begin = found[1];
  }
  normalise(set);
  return set;
}

}  // namespace

std::optional<CodePointSet> unicode_class(std::string_view name) {
  if (name == "Any") return all_code_points();
  if (name == "ASCII") return CodePointSet{{.first = 0, .last = 0x7F}};
  const auto is_name_letter = [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9') || letter == '_' || letter == '=';
  };
  if (name.empty() || name.size() > kMaxNameBytes || !std::ranges::all_of(name, is_name_letter)) {
    return std::nullopt;
  }
  const std::string property = pcre2_name(name);
  if (property.empty()) return std::nullopt;

  static Mutex mutex;
  static std::map<std::string, std::optional<CodePointSet>> classes;
  {
    const MutexLock lock(mutex);
    if (const auto found = classes.find(property); found != classes.end()) return found->second;
  }
  std::optional<CodePointSet> set = read_class(property);
  const MutexLock lock(mutex);
  if (classes.size() < kMaxKeptClasses) classes.emplace(property, set);
  return set;
}

}  // namespace heddle::grammar
