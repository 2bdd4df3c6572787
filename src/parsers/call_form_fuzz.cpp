// SPDX-License-Identifier: Apache-2.0
// An answer that the form of a forced call allows, drawn by the input's bytes: the parser of the
// format reads it as calls with arguments that their schema allows, and leaves no text beside them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/check.h"
#include "grammar/grammar.h"
#include "grammar/testing/mask_fixture.h"
#include "grammar/testing/schema_validator.h"
#include "parsers/answer_delta.h"
#include "parsers/answer_parser.h"
#include "parsers/call_form.h"

namespace heddle::parsers {
namespace {

using Json = nlohmann::ordered_json;

const Json& parameters() {
  static const Json kParameters = Json::parse(R"({"type": "object", "required": ["t"],
      "$defs": {"unit": {"enum": ["C", "F", "a b"]}}, "additionalProperties": false,
      "properties": {"t": {"type": "string"}, "u": {"$ref": "#/$defs/unit"},
        "n": {"type": "integer", "minimum": -5, "maximum": 500}, "b": {"type": "boolean"},
        "e": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "string"}]},
        "o": {"type": "object", "properties": {"k": {"type": "string"}},
              "additionalProperties": false}}})");
  return kParameters;
}

std::shared_ptr<const grammar::TokenGrammar> compiled_form(ToolCallFormat format) {
  const auto form =
      call_form({{.name = "w", .parameters = parameters(), .is_strict = true}}, {.format = format});
  HEDDLE_CHECK(form.has_value());
  Result<grammar::Automaton> automaton = grammar::compile(
      {.kind = grammar::GrammarKind::kStructuralTag, .text = Json{{"format", *form}}.dump()});
  HEDDLE_CHECK(automaton.ok());
  static const auto kVocabulary = grammar::testing::small_vocabulary();
  return grammar::testing::token_grammar(std::move(automaton).value(), kVocabulary);
}

// A whole answer; nothing where the bytes end before it may.
std::optional<std::string> drawn_answer(const grammar::TokenGrammar& form, const uint8_t* data,
                                        size_t size) {
  const auto state = form.start();
  std::vector<uint32_t> mask(form.masks().num_words());
  std::string text;
  for (size_t i = 0; i < size; ++i) {
    HEDDLE_CHECK(state->fill_mask(mask).ok());
    // The token that the byte names, or the next one that is allowed.
    const auto first = static_cast<TokenId>(data[i] % form.masks().vocab_size());
    TokenId token = first;
    while (!grammar::testing::is_allowed(mask, token)) {
      token = (token + 1) % static_cast<TokenId>(form.masks().vocab_size());
      HEDDLE_CHECK(token != first);
    }
    HEDDLE_CHECK(state->accept(token));
    text += form.masks().bytes(token);
    if (state->is_over()) return text;
  }
  return state->is_complete() ? std::optional(text) : std::nullopt;
}

}  // namespace
}  // namespace heddle::parsers

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::parsers;
  constexpr ToolCallFormat kFormats[] = {
      ToolCallFormat::kQwen,   ToolCallFormat::kJson,        ToolCallFormat::kQwen3Coder,
      ToolCallFormat::kGlm,    ToolCallFormat::kDeepseekV32, ToolCallFormat::kPythonic,
      ToolCallFormat::kGemma4, ToolCallFormat::kMinimaxM2,   ToolCallFormat::kSeedOss,
      ToolCallFormat::kLfm2,   ToolCallFormat::kGranite,     ToolCallFormat::kNemotronV2,
      ToolCallFormat::kCohere};
  if (size < 2) return 0;
  const size_t index = data[0] % std::size(kFormats);
  static std::shared_ptr<const heddle::grammar::TokenGrammar> forms[std::size(kFormats)];
  if (forms[index] == nullptr) forms[index] = compiled_form(kFormats[index]);
  const auto text = drawn_answer(*forms[index], data + 1, size - 1);
  if (!text) return 0;
  static const auto kTools = std::make_shared<const Json>(Json::array(
      {{{"type", "function"}, {"function", {{"name", "w"}, {"parameters", parameters()}}}}}));
  const auto parser = make_answer_parser(
      {.tool_calls = kFormats[index], .tools = kTools, .is_held_to_form = true, .id_seed = "seed"});
  AnswerDeltas deltas;
  parser->push(*text, deltas);
  parser->finish(TextEnd::kStopped, deltas);
  AssembledAnswer answer;
  for (AnswerDelta& delta : deltas) answer.add(std::move(delta));
  HEDDLE_CHECK(!answer.calls.empty());
  HEDDLE_CHECK(answer.content.find_first_not_of(" \n") == std::string::npos);
  for (const ToolCall& call : answer.calls) {
    HEDDLE_CHECK(call.complete && call.name == "w");
    const Json arguments = Json::parse(call.arguments, nullptr, false);
    HEDDLE_CHECK(arguments.is_object());
    HEDDLE_CHECK(heddle::grammar::testing::is_valid(arguments, parameters(), parameters()));
  }
  return 0;
}
