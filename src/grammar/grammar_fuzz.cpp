// SPDX-License-Identifier: Apache-2.0
// Any text as a schema, regex, EBNF grammar or structural tag: it is refused with a reason, or an
// answer can be drawn from it byte by byte. A short answer to a schema is a valid document.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/check.h"
#include "grammar/grammar.h"
#include "grammar/testing/mask_fixture.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle;
  using namespace heddle::grammar;
  if (size < 2) return 0;
  const auto kind = static_cast<GrammarKind>(1 + data[0] % 4);
  const std::string text(reinterpret_cast<const char*>(data) + 2, size - 2);
  Result<Automaton> automaton = compile({.kind = kind, .text = text});
  if (!automaton.ok()) {
    HEDDLE_CHECK(automaton.status().code() == StatusCode::kInvalidArgument);
    HEDDLE_CHECK(!automaton.status().message().empty());
    return 0;
  }
  static const auto kVocabulary = heddle::grammar::testing::small_vocabulary();
  const auto tokens =
      heddle::grammar::testing::token_grammar(std::move(automaton).value(), kVocabulary);
  const auto state = tokens->start();
  std::vector<uint32_t> mask(kVocabulary->num_words());
  uint32_t seed = data[1];
  std::string answer;
  for (int i = 0; i < 100; ++i) {
    if (!state->fill_mask(mask).ok()) return 0;  // too many readings
    std::vector<TokenId> allowed;
    for (TokenId token = 0; token < kVocabulary->vocab_size(); ++token) {
      if (heddle::grammar::testing::is_allowed(mask, token)) allowed.push_back(token);
    }
    HEDDLE_CHECK(!allowed.empty());
    HEDDLE_CHECK(heddle::grammar::testing::is_allowed(mask, heddle::grammar::testing::kEndToken) ==
                 state->is_complete());
    seed = seed * 1664525 + 1013904223;
    TokenId token = allowed[(seed >> 16) % allowed.size()];
    if (state->is_complete()) token = heddle::grammar::testing::kEndToken;
    HEDDLE_CHECK(state->accept(token));
    if (token == heddle::grammar::testing::kEndToken) {
      if (kind == GrammarKind::kJsonSchema) {
        HEDDLE_CHECK(nlohmann::ordered_json::accept(answer));
      }
      return 0;
    }
    answer += kVocabulary->bytes(token);
  }
  return 0;
}
