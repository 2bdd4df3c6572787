// SPDX-License-Identifier: Apache-2.0
// How the values of a schema are written: as JSON, or as arguments of a call in Python's or Gemma
// 4's notation.
//
// Threading: free functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "grammar/code_points.h"
#include "grammar/nfa.h"

namespace heddle::grammar {

enum class ValueForm : uint8_t {
  kJson,
  // An object as the arguments of a Python call, without the parentheses: city="Paris", days=[1,
  // None]. Values are literals: lists, dicts, and texts spelled as in JSON, which Python also
  // reads.
  kPythonArguments,
  // Arguments of a call in Gemma 4's notation: {city:<|"|>Paris<|"|>,days:[1,null]}. Keys have no
  // quotes. Texts are between two marks, without escapes, and do not contain the mark's characters.
  // There is no white space between the parts.
  kGemmaArguments,
};

// How texts are spelled: the marks around them.
struct TextSpelling {
  std::string mark = "\"";  // mark before and after a text; may be special_token_bytes()
  TextForm form = TextForm::kJsonString;
};

inline constexpr std::string_view kGemmaTextMark = "<|\"|>";

struct LiteralWords {
  std::string_view null_word;
  std::string_view true_word;
  std::string_view false_word;
};

[[nodiscard]] LiteralWords literal_words(ValueForm form);

// A value without white space; strings are spelled as described in code_points.h.
[[nodiscard]] std::string spell_value(const nlohmann::ordered_json& value, ValueForm form,
                                      const TextSpelling& texts = {});

// Whether a value can be written in this form. In Gemma's arguments a key must not need quotes, and
// a text must not contain the mark.
[[nodiscard]] bool can_spell(const nlohmann::ordered_json& value, ValueForm form);

// The text before, between and after the members of an object.
struct ObjectSpelling {
  std::string_view open;
  std::string_view close;
  std::string_view after_key;
  bool is_call = false;        // keys are names without quotes, and blanks follow only commas
  bool has_bare_keys = false;  // keys are written without quotes
};

inline constexpr ObjectSpelling kBraces = {.open = "{", .close = "}", .after_key = ":"};
inline constexpr ObjectSpelling kArguments = {
    .open = "", .close = "", .after_key = "=", .is_call = true, .has_bare_keys = true};
inline constexpr ObjectSpelling kGemmaBraces = {
    .open = "{", .close = "}", .after_key = ":", .has_bare_keys = true};

// Whether a Python argument may have this name: letters, digits and '_', not beginning with a
// digit.
[[nodiscard]] bool is_argument_name(std::string_view name);

// Whether a key may be written without quotes: no blanks, quotes, brackets, commas, colons.
[[nodiscard]] bool is_bare_key(std::string_view key);

// Adds any argument name of at most 64 characters.
void add_argument_name(Nfa& nfa, NfaState from, NfaState to);

}  // namespace heddle::grammar
