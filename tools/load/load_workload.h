// SPDX-License-Identifier: Apache-2.0
// The requests of a load test: prompts of given lengths, with shared beginnings, from a file, or
// with the lengths and times of a recorded trace.
//
// Prompts consist of segments, each generated from a seed: equal seeds give equal text, and a
// prompt of any length is a few numbers until it is sent.
//
// Threading: free functions and plain values.
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
  // Time of sending after the start; none: as soon as a client is free.
  std::optional<double> at_seconds;
  std::vector<PromptSegment> segments;
  std::string text;      // prompt from a file, instead of segments
  std::string messages;  // messages from a file as a JSON array, instead of segments
  int64_t output_tokens = 1;
};

struct LoadWorkload {
  std::vector<LoadRequest> requests;
  bool open_loop = false;
  std::string description;  // description, as "random prompts of 512 tokens, answers of 128"
};

struct LoadWorkloadOptions {
  std::optional<int64_t> requests;  // number of requests; none: kDefaultRequests, or all in a file
  std::optional<double> rate;       // requests per second of an open loop; none: a closed loop
  std::string arrivals = "poisson";
  int64_t burst_size = 8;
  uint64_t seed = 1;
  int64_t input_tokens = 512;
  int64_t output_tokens = 128;
  // Lengths are uniform between this ratio times the length and the length.
  double length_ratio = 1;
  // Tokens with which all prompts of a group begin, in addition to input_tokens.
  int64_t prefix_tokens = 0;
  int64_t groups = 1;
  std::string prompts_file;
  std::string trace_file;
  double speed = 1;  // factor on the speed of the trace
  double scale = 1;  // factor on the lengths in the trace
};

inline constexpr int64_t kDefaultRequests = 100;

// Makes the workload. A file of prompts has one object per line: {"prompt": TEXT} or {"messages":
// [...]}, and optionally "output_tokens". A trace is Azure's CSV
// (TIMESTAMP,ContextTokens,GeneratedTokens) or Mooncake's JSON lines ("timestamp" in ms,
// "input_length", "output_length", "hash_ids" of blocks of 512 tokens, equal for equal text). The
// first request of a trace is sent at once.
// Error: kNotFound; kInvalidArgument naming the file and the line.
Result<LoadWorkload> make_load_workload(const LoadWorkloadOptions& options);

// The prompt as ids from 3 to vocab_size - 1; many vocabularies have special tokens below 3.
std::vector<int64_t> prompt_ids(const LoadRequest& request, int64_t vocab_size);

// The prompt as text: that of the file, or one common English word per token.
std::string prompt_text(const LoadRequest& request);

// How the requests of an open loop are distributed in time, independently of the answers.
enum class ArrivalKind : uint8_t {
  kPoisson,  // exponentially distributed gaps, as from independent users
  kUniform,  // equal gaps between requests
  kBurst,    // several requests at once; the bursts are distributed as kPoisson
};

struct ArrivalOptions {
  ArrivalKind kind = ArrivalKind::kPoisson;
  double requests_per_second = 1;
  int64_t burst_size = 8;
  uint64_t seed = 1;
};

// `count` ascending times in seconds, the first 0. Equal options give equal times on every machine.
std::vector<double> arrival_times(const ArrivalOptions& options, int64_t count);

}  // namespace heddle::tools
