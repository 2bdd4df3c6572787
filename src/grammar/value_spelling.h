// SPDX-License-Identifier: Apache-2.0
// How the values of a schema are written: as JSON, as Python writes them in a call, or as Gemma 4
// does.
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
  // An object as the arguments of a call in Python, without the brackets around them: city="Paris",
  // days=[1, None]. The values are literals: lists, dicts, and texts spelled as in JSON, which
  // Python reads as well.
  kPythonArguments,
  // As Gemma 4 writes the arguments of a call: {city:<|"|>Paris<|"|>,days:[1,null]}. Keys have no
  // quotes; texts stand between two marks, as they are, and do not have the mark's characters
  // inside. Nothing stands between the parts.
  kGemmaArguments,
};

// How texts are written.
struct TextSpelling {
  std::string mark = "\"";  // on both sides; or special_token_bytes()
  TextForm form = TextForm::kJsonString;
};

inline constexpr std::string_view kGemmaTextMark = "<|\"|>";

struct LiteralWords {
  std::string_view null_word;
  std::string_view true_word;
  std::string_view false_word;
};

[[nodiscard]] LiteralWords literal_words(ValueForm form);

// A value without blanks; strings spelled as everywhere (code_points.h).
[[nodiscard]] std::string spell_value(const nlohmann::ordered_json& value, ValueForm form,
                                      const TextSpelling& texts = {});

// Whether a value can be written so: in Gemma's arguments, not a key that needs quotes, nor a text
// that has the mark inside.
[[nodiscard]] bool can_spell(const nlohmann::ordered_json& value, ValueForm form);

// Around an object and its members.
struct ObjectSpelling {
  std::string_view open;
  std::string_view close;
  std::string_view after_key;
  bool is_call = false;        // keys are names without quotes, blanks stand after commas alone
  bool has_bare_keys = false;  // keys have no quotes
};

inline constexpr ObjectSpelling kBraces = {.open = "{", .close = "}", .after_key = ":"};
inline constexpr ObjectSpelling kArguments = {
    .open = "", .close = "", .after_key = "=", .is_call = true, .has_bare_keys = true};
inline constexpr ObjectSpelling kGemmaBraces = {
    .open = "{", .close = "}", .after_key = ":", .has_bare_keys = true};

// Whether an argument may be called so: letters, digits and '_', no digit first.
[[nodiscard]] bool is_argument_name(std::string_view name);

// Whether a key may stand without quotes: no blanks, quotes, brackets, commas, colons.
[[nodiscard]] bool is_bare_key(std::string_view key);

// Any argument's name of at most 64 characters.
void add_argument_name(Nfa& nfa, NfaState from, NfaState to);

}  // namespace heddle::grammar
