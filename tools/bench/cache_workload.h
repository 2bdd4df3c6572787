// SPDX-License-Identifier: Apache-2.0
// Workloads for the prefix cache: requests whose prompts begin alike in the ways real ones do, made
// of random tokens from a fixed seed, or of the block hashes of a recorded trace.
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/request.h>
#include <heddle/status.h>

namespace heddle::tools {

struct WorkloadRequest {
  // With `follows`: the text after that request's prompt and answer; sent after the answer.
  std::vector<TokenId> tokens;
  std::optional<size_t> follows;
  std::optional<size_t> after;  // an independent prompt, sent when that request is answered
  int64_t max_new_tokens = 1;
  std::string probe;  // named: reported apart
};

struct Workload {
  std::string name;
  std::vector<WorkloadRequest> requests;
};

struct WorkloadShape {
  int64_t vocab_size = 0;
  int64_t context_length = 0;
  int64_t prefix_tokens = 768;  // length of system prompts and documents
  int64_t question_tokens = 64;
  int64_t output_tokens = 32;
  int64_t groups = 3;
  int64_t questions = 6;  // per group, turns of a chat, forks of a document, repeats
};

// Every group has a system prompt; its questions come in turn with the other groups'.
Workload shared_prefixes(const WorkloadShape& shape);

// As many chats as groups, all with one system prompt; every turn continues the whole chat so far.
Workload chats(const WorkloadShape& shape);

// Long documents, one per group, and texts that leave them at random places.
Workload forks(const WorkloadShape& shape);

// Nothing is shared: what the cache costs.
Workload unique_prompts(const WorkloadShape& shape);

// Repeats the same prompts.
Workload repeats(const WorkloadShape& shape);

// Probes for other servers' caches: a prompt repeated, aborted halfway, cut, extended, and four
// concurrent ones with a common prefix. Segments of 1024 tokens, or less so that three fit the
// context.
Workload probes(const WorkloadShape& shape);

inline constexpr int64_t kProbesAtOnce = 4;

struct Pattern {
  std::string_view name;  // "shared"
  Workload (*make)(const WorkloadShape&);
};

// "shared,probes" as patterns; "" is none. Error: kInvalidArgument for a name there is not, or for
// probes where fewer than kProbesAtOnce requests are sent at a time.
Result<std::vector<Pattern>> choose_patterns(std::string_view names, int64_t concurrency);

struct TraceOptions {
  std::string file;
  double scale = 1;   // factor on all lengths
  int64_t limit = 0;  // most requests; 0: all
};

// A Mooncake trace: a line per request, {"input_length", "output_length", "hash_ids"}, where equal
// hashes stand for equal blocks of 512 tokens. Arrival times are ignored: the replay is a closed
// loop. Lengths are scaled, then clipped to the context.
// Error: kNotFound, kInvalidArgument naming the line.
Result<Workload> read_trace(const TraceOptions& options, const WorkloadShape& shape);

}  // namespace heddle::tools
