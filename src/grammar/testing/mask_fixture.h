// SPDX-License-Identifier: Apache-2.0
// A small vocabulary for tests of grammars: every byte, and words that cross the borders of JSON's
// tokens, as those of real vocabularies do.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "grammar/grammar.h"

namespace heddle::grammar::testing {

inline constexpr TokenId kEndToken = 256;

inline std::shared_ptr<VocabularyMasks> small_vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.emplace_back();  // kEndToken
  tokens.emplace_back();  // a special token
  for (const char* const text :
       {"{\"",      "\":",      "\",",
        "\"}",      "},",       "}]",
        "[{",       "\": \"",   "\", \"",
        "\":\"",    "\"]",      "[]",
        "{}",       "true",     "false",
        "null",     "123",      " 12",
        "0.5",      "abc",      " the",
        "name",     "\n  ",     "\n\n",
        "],",       "\\n",      "\\u00",
        "\xC3\xA9", "\xE2\x82", "\xE2\x82\xAC\"",
        "a\"",      "<tool",    "_call>",
        "</",       "think>",   "----------------------------------------"}) {
    tokens.emplace_back(text);
  }
  return std::make_shared<VocabularyMasks>(std::move(tokens), std::vector<TokenId>{kEndToken});
}

inline std::shared_ptr<const TokenGrammar> token_grammar(Automaton automaton,
                                                         std::shared_ptr<VocabularyMasks> masks) {
  return std::make_shared<const TokenGrammar>(std::move(automaton), std::move(masks));
}

// The grammar's places after the text.
inline StackMachine::Places places_after(const Automaton& automaton, std::string_view text) {
  StackMachine machine(automaton);
  StackMachine::Places places;
  StackMachine::Places next;
  machine.start({.stack = StackMachine::kBase, .state = automaton.start()}, places);
  for (const char byte : text) {
    machine.step(places, static_cast<uint8_t>(byte), next);
    std::swap(places, next);
  }
  return places;
}

// Whether the whole text belongs to the grammar.
inline bool matches(const Automaton& automaton, std::string_view text) {
  return places_after(automaton, text).ended;
}

// Whether a text of the grammar begins so.
inline bool can_begin(const Automaton& automaton, std::string_view text) {
  return !places_after(automaton, text).is_dead();
}

inline bool is_allowed(const std::vector<uint32_t>& mask, TokenId token) {
  return (mask[static_cast<size_t>(token) / 32] >> (static_cast<uint32_t>(token) % 32) & 1) != 0;
}

}  // namespace heddle::grammar::testing
