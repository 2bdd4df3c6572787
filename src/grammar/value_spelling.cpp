// SPDX-License-Identifier: Apache-2.0
#include "grammar/value_spelling.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "core/exact_json.h"
#include "grammar/code_points.h"

namespace heddle::grammar {
namespace {

constexpr int kMaxNameCharacters = 64;

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

bool begins_name(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || letter == '_';
}

void add_name_letter(Nfa& nfa, NfaState from, NfaState to) {
  nfa.add_bytes(from, 'a', 'z', to);
  nfa.add_bytes(from, 'A', 'Z', to);
  nfa.add_bytes(from, '_', '_', to);
}

}  // namespace

LiteralWords literal_words(ValueForm form) {
  if (form != ValueForm::kPythonArguments) {
    return {.null_word = "null", .true_word = "true", .false_word = "false"};
  }
  return {.null_word = "None", .true_word = "True", .false_word = "False"};
}

std::string spell_value(const nlohmann::ordered_json& value, ValueForm form,
                        const TextSpelling& texts) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return texts.form == TextForm::kPlain ? texts.mark + text + texts.mark
                                          : spell_json_string(text);
  }
  const LiteralWords words = literal_words(form);
  if (value.is_null()) return std::string(words.null_word);
  if (value.is_boolean()) return std::string(value == true ? words.true_word : words.false_word);
  if (!value.is_structured()) return dump_exact_json(value);
  std::string text(1, value.is_object() ? '{' : '[');
  bool is_first = true;
  for (const auto& [key, item] : value.items()) {
    if (!is_first) text += ',';
    is_first = false;
    if (value.is_object()) {
      text += form == ValueForm::kGemmaArguments ? key : spell_json_string(key);
      text += ':';
    }
    text += spell_value(item, form, texts);
  }
  return text + (value.is_object() ? '}' : ']');
}

bool can_spell(const nlohmann::ordered_json& value, ValueForm form) {
  if (form != ValueForm::kGemmaArguments) return true;
  if (value.is_string()) {
    return value.get_ref<const std::string&>().find(kGemmaTextMark) == std::string::npos;
  }
  if (!value.is_structured()) return true;
  return std::ranges::all_of(value.items(), [&](const auto& item) {
    return (!value.is_object() || is_bare_key(item.key())) && can_spell(item.value(), form);
  });
}

bool is_argument_name(std::string_view name) {
  return !name.empty() && begins_name(name.front()) && std::ranges::all_of(name, [](char letter) {
    return begins_name(letter) || is_digit(letter);
  });
}

bool is_bare_key(std::string_view key) {
  return !key.empty() && key.find_first_of("{}[]<>\"'`:,|\\ \t\r\n") == std::string_view::npos;
}

void add_argument_name(Nfa& nfa, NfaState from, NfaState to) {
  NfaState state = nfa.add_state();
  add_name_letter(nfa, from, state);
  for (int i = 1; i < kMaxNameCharacters; ++i) {
    nfa.add_empty(state, to);
    const NfaState next = nfa.add_state();
    add_name_letter(nfa, state, next);
    nfa.add_bytes(state, '0', '9', next);
    state = next;
  }
  nfa.add_empty(state, to);
}

}  // namespace heddle::grammar
