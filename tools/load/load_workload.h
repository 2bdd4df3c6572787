// SPDX-License-Identifier: Apache-2.0
// The requests of a load test: prompts of given lengths, with shared beginnings, from a file, or
// with the lengths and times of a recorded trace.
//
// Prompts are made of segments, each drawn from its own seed: equal seeds are equal text, and a
// prompt of any length is a few numbers until it is sent.
//
// Threading: free functions and values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <heddle/status.h>

namespace heddle::tools {

struct PromptSegment {
  uint64_t seed = 0;
  int64_t tokens = 0;
};

struct LoadRequest {
  std::optional<double> at_seconds;  // after the start; none: as soon as a client is free
  std::vector<PromptSegment> segments;
  std::string text;      // prompt from a file, instead of segments
  std::string messages;  // messages from a file as a JSON array, instead of segments
  int64_t output_tokens = 1;
};

struct LoadWorkload {
  std::vector<LoadRequest> requests;
  bool open_loop = false;
  std::string description;  // "random prompts of 512 tokens, answers of 128"
};

struct LoadWorkloadOptions {
  std::optional<int64_t> requests;  // default: kDefaultRequests, or all of a file
  std::optional<double> rate;       // an open loop with these arrivals; else closed
  std::string arrivals = "poisson";
  int64_t burst_size = 8;
  uint64_t seed = 1;
  int64_t input_tokens = 512;
  int64_t output_tokens = 128;
  double length_ratio = 1;  // lengths are uniform between ratio * length and length
  // Tokens that all prompts of a group begin with, in addition to input_tokens.
  int64_t prefix_tokens = 0;
  int64_t groups = 1;
  std::string prompts_file;
  std::string trace_file;
  double speed = 1;  // factor on the speed of the trace's clock
  double scale = 1;  // factor on the trace's lengths
};

inline constexpr int64_t kDefaultRequests = 100;

// A file of prompts has an object a line: {"prompt": TEXT} or {"messages": [...]}, and where wanted
// "output_tokens". A trace is Azure's CSV (TIMESTAMP,ContextTokens,GeneratedTokens) or Mooncake's
// JSON lines ("timestamp" in ms, "input_length", "output_length", "hash_ids" of blocks of 512
// tokens, equal ones for equal text). Its first request is sent at once.
// Error: kNotFound, kInvalidArgument naming the file and the line.
Result<LoadWorkload> make_load_workload(const LoadWorkloadOptions& options);

// Ids from 3 (below stand the special ones of many vocabularies) to vocab_size - 1.
std::vector<int64_t> prompt_ids(const LoadRequest& request, int64_t vocab_size);

// The file's text, or one common English word per token.
std::string prompt_text(const LoadRequest& request);

// The times at which the requests of an open loop are sent do not depend on the answers.
enum class ArrivalKind : uint8_t {
  kPoisson,  // exponential gaps: users who know nothing of each other
  kUniform,  // equal gaps
  kBurst,    // several at once, the bursts as kPoisson
};

struct ArrivalOptions {
  ArrivalKind kind = ArrivalKind::kPoisson;
  double requests_per_second = 1;
  int64_t burst_size = 8;
  uint64_t seed = 1;
};

// `count` times in seconds, ascending, the first 0. Equal for equal options on every machine.
std::vector<double> arrival_times(const ArrivalOptions& options, int64_t count);

}  // namespace heddle::tools
