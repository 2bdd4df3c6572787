// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cache_workload.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heddle::tools {
namespace {

constexpr uint64_t kSeed = 20250710;
constexpr double kTraceBlockTokens = 512;

// Appends random tokens. The bias of the modulo does not matter, but every machine must draw the
// same tokens.
void append_random(std::mt19937_64& random, int64_t count, int64_t vocab_size,
                   std::vector<TokenId>& tokens) {
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(random() % static_cast<uint64_t>(vocab_size)));
  }
}

std::vector<TokenId> random_tokens(std::mt19937_64& random, int64_t count,
                                   const WorkloadShape& shape) {
  std::vector<TokenId> tokens;
  append_random(random, count, shape.vocab_size, tokens);
  return tokens;
}

// Length of the longest prompt that leaves space for the answer in the context.
int64_t prompt_room(const WorkloadShape& shape, int64_t output_tokens) {
  return std::max<int64_t>(shape.context_length - output_tokens, 1);
}

WorkloadRequest request_of(std::vector<TokenId> tokens, const WorkloadShape& shape) {
  tokens.resize(
      static_cast<size_t>(std::min(std::ssize(tokens), prompt_room(shape, shape.output_tokens))));
  WorkloadRequest request;
  request.tokens = std::move(tokens);
  request.max_new_tokens = shape.output_tokens;
  return request;
}

// Length of a request's prefix, which leaves space for its question.
int64_t prefix_of(const WorkloadShape& shape) {
  return std::max<int64_t>(std::min(shape.prefix_tokens, prompt_room(shape, shape.output_tokens) -
                                                             shape.question_tokens),
                           1);
}

}  // namespace

Workload shared_prefixes(const WorkloadShape& shape) {
  std::mt19937_64 random(kSeed);
  std::vector<std::vector<TokenId>> prefixes;
  for (int64_t i = 0; i < shape.groups; ++i) {
    prefixes.push_back(random_tokens(random, prefix_of(shape), shape));
  }
  Workload workload{.name = "shared prefixes", .requests = {}};
  for (int64_t question = 0; question < shape.questions; ++question) {
    for (const auto& prefix : prefixes) {
      std::vector<TokenId> tokens = prefix;
      append_random(random, shape.question_tokens, shape.vocab_size, tokens);
      workload.requests.push_back(request_of(std::move(tokens), shape));
    }
  }
  return workload;
}

Workload chats(const WorkloadShape& shape) {
  std::mt19937_64 random(kSeed + 1);
  const int64_t turn_tokens = shape.question_tokens + shape.output_tokens;
  const int64_t system_tokens = std::max<int64_t>(prefix_of(shape) / 4, 1);
  const int64_t num_turns =
      std::clamp<int64_t>((shape.context_length - system_tokens) / turn_tokens, 1, shape.questions);
  const std::vector<TokenId> system = random_tokens(random, system_tokens, shape);
  Workload workload{.name = "chats", .requests = {}};
  for (int64_t turn = 0; turn < num_turns; ++turn) {
    for (int64_t chat = 0; chat < shape.groups; ++chat) {
      std::vector<TokenId> tokens = turn == 0 ? system : std::vector<TokenId>();
      append_random(random, shape.question_tokens, shape.vocab_size, tokens);
      WorkloadRequest request = request_of(std::move(tokens), shape);
      if (turn > 0) {
        request.follows = workload.requests.size() - static_cast<size_t>(shape.groups);
      }
      workload.requests.push_back(std::move(request));
    }
  }
  return workload;
}

Workload forks(const WorkloadShape& shape) {
  std::mt19937_64 random(kSeed + 2);
  WorkloadShape longer = shape;
  longer.prefix_tokens *= 2;
  const int64_t document_tokens = prefix_of(longer);
  std::vector<std::vector<TokenId>> documents;
  for (int64_t i = 0; i < shape.groups; ++i) {
    documents.push_back(random_tokens(random, document_tokens, shape));
  }
  Workload workload{.name = "forks", .requests = {}};
  for (const auto& document : documents) workload.requests.push_back(request_of(document, shape));
  for (int64_t fork = 1; fork < shape.questions; ++fork) {
    for (const auto& document : documents) {
      const auto kept =
          static_cast<std::ptrdiff_t>(random() % static_cast<uint64_t>(document_tokens));
      std::vector<TokenId> tokens(document.begin(), document.begin() + kept);
      append_random(random, shape.question_tokens, shape.vocab_size, tokens);
      workload.requests.push_back(request_of(std::move(tokens), shape));
    }
  }
  return workload;
}

Workload unique_prompts(const WorkloadShape& shape) {
  std::mt19937_64 random(kSeed + 3);
  Workload workload{.name = "unique prompts", .requests = {}};
  for (int64_t i = 0; i < shape.groups * shape.questions; ++i) {
    workload.requests.push_back(request_of(
        random_tokens(random, prefix_of(shape) / 2 + shape.question_tokens, shape), shape));
  }
  return workload;
}

Workload repeats(const WorkloadShape& shape) {
  std::mt19937_64 random(kSeed + 4);
  std::vector<std::vector<TokenId>> prompts;
  for (int64_t i = 0; i < shape.groups; ++i) {
    prompts.push_back(random_tokens(random, prefix_of(shape), shape));
  }
  Workload workload{.name = "exact repeats", .requests = {}};
  for (int64_t round = 0; round < shape.questions; ++round) {
    for (const auto& prompt : prompts) workload.requests.push_back(request_of(prompt, shape));
  }
  return workload;
}

Workload probes(const WorkloadShape& shape) {
  constexpr int64_t kSegmentTokens = 1024;
  constexpr int64_t kOutputTokens = 2;
  const int64_t segment =
      std::clamp<int64_t>(prompt_room(shape, kOutputTokens) / 3, 16, kSegmentTokens);
  std::mt19937_64 random(kSeed + 5);
  const auto draw = [&](int64_t count) { return random_tokens(random, count, shape); };
  const auto joined = [](std::vector<TokenId> head, const std::vector<TokenId>& tail) {
    head.insert(head.end(), tail.begin(), tail.end());
    return head;
  };
  const auto a = draw(segment), b = draw(segment), c = draw(segment), d = draw(segment / 4);
  const auto ab = joined(a, b);
  Workload workload{.name = "probes", .requests = {}};
  const auto ask = [&](std::string name, std::vector<TokenId> tokens) {
    WorkloadRequest request{.tokens = std::move(tokens),
                            .follows = {},
                            .after = {},
                            .max_new_tokens = kOutputTokens,
                            .probe = std::move(name)};
    if (!workload.requests.empty()) request.after = workload.requests.size() - 1;
    workload.requests.push_back(std::move(request));
  };
  ask("A+B", ab);
  ask("A+B repeated", ab);
  ask("A+C, which shares A", joined(a, c));
  ask("A+B once more", ab);
  ask("A+D, which shares A", joined(a, d));
  ask("A alone", a);
  ask("A+B+D, which extends A+B", joined(ab, d));
  const size_t last = workload.requests.size() - 1;
  const auto shared = draw(segment + segment / 2);
  for (int64_t i = 1; i <= kProbesAtOnce; ++i) {
    ask(fmt::format("four at once that share {}: {}", shared.size(), i),
        joined(shared, draw(segment / 16)));
    workload.requests.back().after = last;
  }
  return workload;
}

Result<std::vector<Pattern>> choose_patterns(std::string_view names, int64_t concurrency) {
  constexpr Pattern kPatterns[] = {
      {"shared", shared_prefixes}, {"chats", chats},     {"forks", forks},
      {"unique", unique_prompts},  {"repeats", repeats}, {"probes", probes}};
  std::vector<Pattern> chosen;
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    const std::string_view name = names.substr(begin, end - begin);
    const auto* const pattern = std::ranges::find(kPatterns, name, &Pattern::name);
    if (pattern == std::end(kPatterns)) {
      return invalid_argument(fmt::format(
          "--patterns: \"{}\" is not known; there are shared, chats, forks, unique, repeats and "
          "probes",
          name));
    }
    if (pattern->make == probes && concurrency < kProbesAtOnce) {
      return invalid_argument(fmt::format(
          "--concurrency {}: {} of the probes come at once; raise it to {} at least, or "
          "leave probes out of --patterns",
          concurrency, kProbesAtOnce, kProbesAtOnce));
    }
    chosen.push_back(*pattern);
    begin = end + 1;
  }
  return chosen;
}

Result<Workload> read_trace(const TraceOptions& options, const WorkloadShape& shape) {
  std::ifstream file(options.file);
  if (!file)
    return not_found(
        fmt::format("cannot read the trace {}; name a Mooncake trace (.jsonl)", options.file));
  const auto scaled = [&options](double length) {
    return std::max<int64_t>(std::llround(length * options.scale), 1);
  };
  const int64_t block_tokens = scaled(kTraceBlockTokens);
  Workload workload{.name = "trace", .requests = {}};
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (options.limit > 0 && std::ssize(workload.requests) == options.limit) break;
    if (line.empty()) continue;
    const nlohmann::json entry = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto is_count = [&entry](const char* name) {
      return entry.contains(name) && entry[name].is_number_unsigned();
    };
    if (!entry.is_object() || !is_count("input_length") || !is_count("output_length") ||
        !entry.contains("hash_ids") || !entry["hash_ids"].is_array()) {
      return invalid_argument(fmt::format(
          "{}, line {}: a request needs input_length, output_length and a list hash_ids",
          options.file, number));
    }
    WorkloadRequest request;
    request.max_new_tokens = std::min(scaled(entry["output_length"].get<double>()),
                                      std::max<int64_t>(shape.context_length / 2, 1));
    const int64_t prompt_tokens = std::min(scaled(entry["input_length"].get<double>()),
                                           prompt_room(shape, request.max_new_tokens));
    for (const nlohmann::json& hash : entry["hash_ids"]) {
      if (!hash.is_number_unsigned()) {
        return invalid_argument(
            fmt::format("{}, line {}: hash_ids holds what is no number", options.file, number));
      }
      std::mt19937_64 block(kSeed ^ hash.get<uint64_t>() * 0x9e3779b97f4a7c15u);
      append_random(block, block_tokens, shape.vocab_size, request.tokens);
      if (std::ssize(request.tokens) >= prompt_tokens) break;
    }
    if (request.tokens.empty()) continue;
    request.tokens.resize(static_cast<size_t>(std::min(std::ssize(request.tokens), prompt_tokens)));
    workload.requests.push_back(std::move(request));
  }
  if (workload.requests.empty()) {
    return invalid_argument(fmt::format("{} has no requests", options.file));
  }
  return workload;
}

}  // namespace heddle::tools
