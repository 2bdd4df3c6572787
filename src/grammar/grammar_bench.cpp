// SPDX-License-Identifier: Apache-2.0
// Costs of constrained output: compiling schemas, and a mask per token over Qwen3's vocabulary of
// 151,669 tokens, from the folder named by HEDDLE_SHARED (without it, a vocabulary of as many made
// up words).
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "grammar/code_points.h"
#include "grammar/grammar.h"

namespace heddle::grammar {
namespace {

constexpr std::string_view kCall =
    R"({"type": "object", "properties": {
      "path": {"type": "string", "description": "A file."},
      "old_text": {"type": "string", "maxLength": 2000}, "new_text": {"type": "string"},
      "mode": {"enum": ["replace", "insert", "delete"]},
      "line": {"type": "integer", "minimum": 1, "maximum": 100000},
      "flags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z-]{1,20}$"}},
      "options": {"type": "object", "additionalProperties": {"type": "boolean"}}},
      "required": ["path", "mode"], "additionalProperties": false})";

constexpr std::string_view kTree =
    R"({"$defs": {"node": {"type": "object", "properties": {"kind": {"enum": ["div", "button", "form"]},
      "label": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
      "attributes": {"type": "array", "items": {"type": "object", "properties": {
        "name": {"type": "string"}, "value": {"type": ["string", "number", "null"]}},
        "required": ["name", "value"], "additionalProperties": false}}},
      "required": ["kind", "label", "children", "attributes"], "additionalProperties": false}},
      "$ref": "#/$defs/node"})";

// A configuration of 60 sections of 10 fields each.
std::string large_schema() {
  nlohmann::ordered_json schema = {{"type", "object"}};
  for (int i = 0; i < 60; ++i) {
    nlohmann::ordered_json section = {{"type", "object"}, {"additionalProperties", false}};
    for (int j = 0; j < 10; ++j) {
      nlohmann::ordered_json& field = section["properties"][fmt::format("field_{}_{}", i, j)];
      field = {{"description", "A field with some words about what it is for."}};
      if (j % 3 == 0) field["type"] = "string";
      if (j % 3 == 1) field.update({{"type", "integer"}, {"minimum", 0}, {"maximum", 1000 + i}});
      if (j % 3 == 2) field["enum"] = {"low", "middle", "high", fmt::format("custom-{}", i)};
    }
    schema["properties"][fmt::format("section_{}", i)] = section;
  }
  return schema.dump();
}

std::vector<std::string> vocabulary() {
  std::vector<std::string> tokens;
  if (const char* root = std::getenv("HEDDLE_SHARED")) {
    std::ifstream file(std::string(root) + "/data/tokenizers/qwen2/vocab.json");
    if (file) {
      // The byte alphabet of byte-level BPE (tokenizer/vocabulary.h) read back.
      std::vector<int> byte_of(512, -1);
      int next = 256;
      for (int byte = 0; byte < 256; ++byte) {
        const bool is_printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
        byte_of[static_cast<size_t>(is_printable ? byte : next++)] = byte;
      }
      const nlohmann::json ids = nlohmann::json::parse(file);
      for (const auto& [spelling, id] : ids.items()) {
        std::string bytes;
        for (size_t at = 0; at < spelling.size();) {
          const uint32_t code = next_code_point(spelling, at);
          bytes += static_cast<char>(byte_of[code % 512]);
        }
        const auto index = id.get<size_t>();
        if (tokens.size() <= index) tokens.resize(index + 1);
        tokens[index] = bytes;
      }
    }
  }
  if (tokens.empty()) {
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    for (int i = 0; i < 150000; ++i) tokens.push_back(fmt::format("{:x}\",", i * 7919 % 1000003));
  }
  tokens.emplace_back();  // ends the text
  return tokens;
}

const std::shared_ptr<VocabularyMasks>& shared_vocabulary() {
  static const auto kMasks = [] {
    std::vector<std::string> tokens = vocabulary();
    const auto end = static_cast<TokenId>(tokens.size() - 1);
    return std::make_shared<VocabularyMasks>(std::move(tokens), std::vector<TokenId>{end});
  }();
  return kMasks;
}

void compile_schema(benchmark::State& state, const std::string& schema) {
  for (auto _ : state) {
    Result<Automaton> automaton = compile({.kind = GrammarKind::kJsonSchema, .text = schema});
    const TokenGrammar grammar(std::move(automaton).value(), shared_vocabulary());
    state.counters["states"] = static_cast<double>(grammar.automaton().num_states());
  }
}

BENCHMARK_CAPTURE(compile_schema, call, std::string(kCall))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(compile_schema, tree, std::string(kTree))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(compile_schema, large, large_schema())->Unit(benchmark::kMillisecond);

// Tools that a client brings for the first time, called as Qwen's models write calls: text with
// calls in it (`tool_choice` auto, tools that are `strict`), or calls alone.
std::string tools_form(int number, int num_tools, bool beside_text) {
  using Json = nlohmann::ordered_json;
  Json tags = Json::array();
  for (int i = 0; i < num_tools; ++i) {
    Json schema = Json::parse(kCall);
    schema["properties"][fmt::format("note_{}", number)] = {{"type", "string"}};
    tags.push_back(
        {{"begin",
          fmt::format("<tool_call>\n{{\"name\": \"tool_{}_{}\", \"arguments\": ", i, number)},
         {"content", {{"type", "json_schema"}, {"json_schema", std::move(schema)}}},
         {"end", "}\n</tool_call>"}});
  }
  Json form =
      beside_text
          ? Json{{"type", "triggered_tags"}, {"triggers", {"<tool_call>"}}}
          : Json{{"type", "tags_with_separator"}, {"separator", "\n"}, {"at_least_one", true}};
  form["tags"] = std::move(tags);
  return Json{{"format", std::move(form)}}.dump();
}

void first_use_of_tools(benchmark::State& state, int num_tools, bool beside_text) {
  const auto& masks = shared_vocabulary();
  static int number = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const std::string form = tools_form(++number, num_tools, beside_text);
    state.ResumeTiming();
    Result<Automaton> automaton =
        compile({.kind = GrammarKind::kStructuralTag, .text = form}, masks.get());
    const TokenGrammar grammar(std::move(automaton).value(), masks);
    grammar.make_masks();
    state.counters["states"] = static_cast<double>(grammar.automaton().num_states());
  }
}

BENCHMARK_CAPTURE(first_use_of_tools, auto_1, 1, true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(first_use_of_tools, auto_20, 20, true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(first_use_of_tools, forced_20, 20, false)->Unit(benchmark::kMillisecond);

// Schemas of real tools, each as a new `strict` tool, with text.
void first_use_of_schema(benchmark::State& state, const std::string& schema) {
  using Json = nlohmann::ordered_json;
  static int number = 0;
  const auto& masks = shared_vocabulary();
  for (auto _ : state) {
    state.PauseTiming();
    const std::string form =
        Json{{"format",
              {{"type", "triggered_tags"},
               {"triggers", {"<tool_call>"}},
               {"tags",
                {{{"begin",
                   fmt::format("<tool_call>\n{{\"name\": \"tool_{}\", \"arguments\": ", ++number)},
                  {"content", {{"type", "json_schema"}, {"json_schema", Json::parse(schema)}}},
                  {"end", "}\n</tool_call>"}}}}}}}
            .dump();
    state.ResumeTiming();
    Result<Automaton> automaton =
        compile({.kind = GrammarKind::kStructuralTag, .text = form}, masks.get());
    if (!automaton.ok()) {
      state.SkipWithError(automaton.status().message().c_str());
      return;
    }
    const TokenGrammar grammar(std::move(automaton).value(), masks);
    grammar.make_masks();
    state.counters["states"] = static_cast<double>(grammar.automaton().num_states());
  }
}

// Registers bench/shapes/tool_schemas.json.
const bool kSchemasAreRegistered = [] {
  std::ifstream file(HEDDLE_SOURCE_DIR "/bench/shapes/tool_schemas.json");
  const auto schemas = nlohmann::ordered_json::parse(file, nullptr, false);
  if (!schemas.is_object()) return false;
  for (const auto& [name, schema] : schemas.items()) {
    benchmark::RegisterBenchmark(("first_use_of_schema/" + name).c_str(), first_use_of_schema,
                                 schema.dump())
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}();

// Forms that a client may send to keep a worker busy; all but the first are refused.
void compile_hostile(benchmark::State& state, GrammarKind kind, const std::string& text) {
  bool is_served = false;
  for (auto _ : state) is_served = compile({.kind = kind, .text = text}).ok();
  state.counters["served"] = is_served ? 1 : 0;
}

BENCHMARK_CAPTURE(compile_hostile, subsets_16, GrammarKind::kRegex, std::string("(a|b)*a(a|b){15}"))
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(compile_hostile, subsets_40, GrammarKind::kRegex, std::string("(a|b)*a(a|b){40}"))
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(compile_hostile, repeats, GrammarKind::kRegex,
                  std::string("((((a{0,99}b?){0,99}){0,99}){0,99}){0,99}"))
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(compile_hostile, dots, GrammarKind::kRegex, std::string("(.*.*.*.*x){0,400}"))
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(
    compile_hostile, length, GrammarKind::kJsonSchema,
    std::string(R"({"type": "string", "maxLength": 9000, "pattern": "(a|.)*b.{12}"})"))
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(
    compile_hostile, all_of, GrammarKind::kJsonSchema,
    std::string(R"({"type": "string", "allOf": [{"pattern": "a.{9}b"}, {"pattern": "c.{9}d"},
                    {"pattern": "e.{9}f"}, {"pattern": "g.{9}h"}]})"))
    ->Unit(benchmark::kMillisecond);

// Masks along an answer, spelled with the longest tokens.
void masks_of_answer(benchmark::State& state, const std::string& schema,
                     const std::string& answer) {
  const auto& vocabulary = shared_vocabulary();
  std::vector<TokenId> tokens;
  for (size_t at = 0; at < answer.size();) {
    TokenId best = -1;
    for (TokenId token = 0; token < vocabulary->vocab_size(); ++token) {
      const std::string_view bytes = vocabulary->bytes(token);
      if (bytes.empty() || bytes.size() > 12 ||
          !std::string_view(answer).substr(at).starts_with(bytes))
        continue;
      if (best < 0 || bytes.size() > vocabulary->bytes(best).size()) best = token;
    }
    tokens.push_back(best);
    at += vocabulary->bytes(best).size();
  }
  const auto grammar = std::make_shared<const TokenGrammar>(
      compile({.kind = GrammarKind::kJsonSchema, .text = schema}).value(), vocabulary);
  std::vector<uint32_t> mask(vocabulary->num_words());
  for (auto _ : state) {
    const auto matcher = grammar->start();
    for (const TokenId token : tokens) {
      if (!matcher->fill_mask(mask).ok() || !matcher->accept(token)) {
        state.SkipWithError("the answer does not fit the schema");
        return;
      }
    }
  }
  state.counters["us_per_token"] = benchmark::Counter(
      static_cast<double>(tokens.size()) * 1e-6,
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  state.counters["tokens"] = static_cast<double>(tokens.size());
}

BENCHMARK_CAPTURE(masks_of_answer, call, std::string(kCall),
                  R"({"path": "src/main.cpp", "old_text": "int main() { return 0; }", "new_text": )"
                  R"("int main() {\n  std::puts(\"hello\");\n  return 0;\n}", "mode": "replace", )"
                  R"("line": 120, "flags": ["dry-run", "all"], "options": {"keep": true}})");
BENCHMARK_CAPTURE(
    masks_of_answer, tree, std::string(kTree),
    R"({"kind": "div", "label": "A page with words", "children": [{"kind": "button", )"
    R"("label": "Press", "children": [], "attributes": [{"name": "id", "value": 12.5}]}], )"
    R"("attributes": [{"name": "class", "value": "wide and long text"}]})");

// At the beginning of a key, where a grammar forces a text of 40 bytes; and where it forces none.
void forced_tokens(benchmark::State& state, const std::string& begin) {
  const auto& vocabulary = shared_vocabulary();
  const std::string schema =
      R"({"type": "object", "properties": {"an_identifier_of_thirty_eight_letters": {}},
          "required": ["an_identifier_of_thirty_eight_letters"], "additionalProperties": false})";
  const auto matcher =
      std::make_shared<const TokenGrammar>(
          compile({.kind = GrammarKind::kJsonSchema, .text = schema}).value(), vocabulary)
          ->start();
  for (const char byte : begin) {
    for (TokenId token = 0; token < vocabulary->vocab_size(); ++token) {
      if (vocabulary->bytes(token) == std::string_view(&byte, 1) && matcher->accept(token)) break;
    }
  }
  std::vector<TokenId> tokens;
  for (auto _ : state) {
    tokens.clear();
    matcher->forced_tokens(7, tokens);
  }
  state.counters["tokens"] = static_cast<double>(tokens.size());
}

BENCHMARK_CAPTURE(forced_tokens, of_a_key, "{\"")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(forced_tokens, of_nothing, "{")->Unit(benchmark::kMicrosecond);

void cold_mask(benchmark::State& state) {
  std::vector<std::string> tokens = vocabulary();
  const auto end = static_cast<TokenId>(tokens.size() - 1);
  const Automaton automaton = compile({.kind = GrammarKind::kJsonObject}).value();
  std::vector<uint32_t> mask(tokens.size() / 32 + 1);
  for (auto _ : state) {
    state.PauseTiming();
    const auto masks = std::make_shared<VocabularyMasks>(tokens, std::vector<TokenId>{end});
    const auto grammar = std::make_shared<const TokenGrammar>(automaton, masks);
    const auto matcher = grammar->start();
    for (const char byte : std::string_view("{\"a")) {
      for (TokenId token = 0; token < masks->vocab_size(); ++token) {
        if (masks->bytes(token) == std::string_view(&byte, 1) && matcher->accept(token)) break;
      }
    }
    state.ResumeTiming();
    if (!matcher->fill_mask(mask).ok()) state.SkipWithError("no mask");
  }
}

BENCHMARK(cold_mask)->Unit(benchmark::kMillisecond);

// The masks that are made where a grammar is compiled, for a vocabulary that has none yet.
void make_masks(benchmark::State& state, const std::string& schema) {
  std::vector<std::string> tokens = vocabulary();
  const auto end = static_cast<TokenId>(tokens.size() - 1);
  for (auto _ : state) {
    state.PauseTiming();
    const auto masks = std::make_shared<VocabularyMasks>(tokens, std::vector<TokenId>{end});
    const TokenGrammar grammar(compile({.kind = GrammarKind::kJsonSchema, .text = schema}).value(),
                               masks);
    state.ResumeTiming();
    grammar.make_masks();
    state.counters["masks"] = static_cast<double>(masks->num_kept());
  }
}

BENCHMARK_CAPTURE(make_masks, call, std::string(kCall))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(make_masks, tree, std::string(kTree))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(make_masks, large, large_schema())->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace heddle::grammar
