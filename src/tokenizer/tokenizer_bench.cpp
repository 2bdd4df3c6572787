// SPDX-License-Identifier: Apache-2.0
// Encoding in MB/s of one thread, and what loading costs. The vocabularies and the English text
// come from the folder named by HEDDLE_SHARED; without it these benchmarks report an error and are
// skipped.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <simdjson.h>

#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace heddle::tokenizer {
namespace {

constexpr EncodeOptions kContent = {.add_special_tokens = false, .parse_special_tokens = true};
constexpr size_t kRunBytes = 1 << 20;

std::filesystem::path shared(const std::string& relative) {
  const char* root = std::getenv("HEDDLE_SHARED");
  return root == nullptr ? std::filesystem::path() : std::filesystem::path(root) / relative;
}

std::unique_ptr<Tokenizer> load(benchmark::State& state, const std::string& vocabulary) {
  Result<std::unique_ptr<Tokenizer>> tokenizer =
      load_tokenizer(shared("data/tokenizers/" + vocabulary));
  if (tokenizer.ok()) return std::move(tokenizer).value();
  state.SkipWithError(tokenizer.status().to_string().c_str());
  return nullptr;
}

// Questions and answers of grade-school mathematics: about 4 MB of plain English with some numbers.
std::string english() {
  std::string text;
  std::ifstream file(shared("data/gsm8k/train.jsonl"));
  simdjson::dom::parser parser;
  for (std::string line; std::getline(file, line);) {
    simdjson::dom::element entry;
    if (parser.parse(line).get(entry) != simdjson::SUCCESS) continue;
    for (const char* key : {"question", "answer"}) {
      std::string_view part;
      if (entry.at_key(key).get(part) == simdjson::SUCCESS) text.append(part).append("\n\n");
    }
  }
  return text;
}

// Mostly Han, so that words are long and the cache helps less.
std::string chinese() {
  std::string text;
  while (text.size() < kRunBytes) {
    text += fmt::format("第{}章：模型把文字切成片段，再由片段得到编号，最后送入网络计算。",
                        text.size());
  }
  return text;
}

void encode_repeatedly(benchmark::State& state, const Tokenizer& tokenizer,
                       const std::string& text) {
  int64_t tokens = 0;
  for (auto step : state) {
    const auto ids = tokenizer.encode(text, kContent);
    if (!ids.ok()) return state.SkipWithError(ids.status().to_string().c_str());
    tokens += static_cast<int64_t>(ids->size());
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(tokens), benchmark::Counter::kIsRate);
}

void encode_english(benchmark::State& state, const std::string& vocabulary) {
  const auto tokenizer = load(state, vocabulary);
  const std::string text = english();
  if (tokenizer == nullptr) return;
  if (text.empty()) return state.SkipWithError("data/gsm8k/train.jsonl cannot be read");
  encode_repeatedly(state, *tokenizer, text);
}

void encode_chinese(benchmark::State& state, const std::string& vocabulary) {
  const auto tokenizer = load(state, vocabulary);
  if (tokenizer != nullptr) encode_repeatedly(state, *tokenizer, chinese());
}

// The case that is quadratic in a naive merge: one word of a million letters.
void encode_run(benchmark::State& state, char letter) {
  const auto tokenizer = load(state, "qwen3");
  if (tokenizer != nullptr) encode_repeatedly(state, *tokenizer, std::string(kRunBytes, letter));
}

// The case that is quadratic in utf8proc: NFC of one run of marks that are out of order.
void encode_marks(benchmark::State& state) {
  const auto tokenizer = load(state, "qwen3");
  std::string text = "a";
  while (text.size() < kRunBytes) text += "\u0301\u0316";
  if (tokenizer != nullptr) encode_repeatedly(state, *tokenizer, text);
}

void detokenize_stream(benchmark::State& state) {
  const auto tokenizer = load(state, "qwen3");
  if (tokenizer == nullptr) return;
  const auto ids = tokenizer->encode(english().substr(0, kRunBytes), kContent);
  if (!ids.ok()) return state.SkipWithError(ids.status().to_string().c_str());
  for (auto step : state) {
    IncrementalDetokenizer detokenizer(*tokenizer);
    for (const TokenId id : *ids) benchmark::DoNotOptimize(detokenizer.push(id));
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * ids->size()));
}

void load_vocabulary(benchmark::State& state, const std::string& folder) {
  for (auto step : state) {
    auto tokenizer = load_tokenizer(shared(folder));
    if (!tokenizer.ok()) return state.SkipWithError(tokenizer.status().to_string().c_str());
    benchmark::DoNotOptimize(tokenizer);
  }
}

BENCHMARK_CAPTURE(encode_english, qwen3, "qwen3")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_english, llama3, "llama3")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_english, deepseek_v3, "deepseek-v3")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_english, llama2, "llama2")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_chinese, qwen3, "qwen3")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_run, letter, 'a')->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_run, space, ' ')->Unit(benchmark::kMillisecond);
BENCHMARK(encode_marks)->Unit(benchmark::kMillisecond);
BENCHMARK(detokenize_stream)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(load_vocabulary, qwen3, "data/tokenizers/qwen3")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(load_vocabulary, llama3, "data/tokenizers/llama3")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(load_vocabulary, gpt2, "data/tokenizers/gpt2")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(load_vocabulary, heddle_tiny, "models/heddle-tiny")
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace heddle::tokenizer
