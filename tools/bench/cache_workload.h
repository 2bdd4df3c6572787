// SPDX-License-Identifier: Apache-2.0
// Workloads for the prefix cache: requests whose prompts have common beginnings as real ones do,
// made of random tokens from a fixed seed, or from the block hashes of a recorded trace.
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
  // The prompt; with `follows`, the text after that request's prompt and answer, sent after the
  // answer.
  std::vector<TokenId> tokens;
  std::optional<size_t> follows;
  // Index of a request after whose answer this independent prompt is sent.
  std::optional<size_t> after;
  int64_t max_new_tokens = 1;
  std::string probe;  // name under which this request is reported separately; empty: it is not
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
  // Per group: its questions, turns of a chat, forks of a document, or repeats.
  int64_t questions = 6;
};

// Groups with a common system prompt each; the questions of all groups are interleaved.
Workload shared_prefixes(const WorkloadShape& shape);

// As many chats as groups, all with the same system prompt. Every turn continues the whole chat so
// far.
Workload chats(const WorkloadShape& shape);

// Long documents, one per group, and texts that fork from them at random positions.
Workload forks(const WorkloadShape& shape);

// Prompts that share nothing, to measure the cost of the cache.
Workload unique_prompts(const WorkloadShape& shape);

// Repetitions of the same prompts.
Workload repeats(const WorkloadShape& shape);

// Probes that show what another server's cache can do: a prompt repeated, aborted halfway, cut,
// extended, and four concurrent ones with a common prefix. Segments have 1024 tokens, or fewer so
// that three fit the context.
Workload probes(const WorkloadShape& shape);

inline constexpr int64_t kProbesAtOnce = 4;

struct Pattern {
  std::string_view name;  // name of the pattern, as "shared"
  Workload (*make)(const WorkloadShape&);
};

// Parses the names of patterns, as "shared,probes"; "" gives none. Error: kInvalidArgument for an
// unknown name, or for probes if fewer than kProbesAtOnce requests are sent at a time.
Result<std::vector<Pattern>> choose_patterns(std::string_view names, int64_t concurrency);

struct TraceOptions {
  std::string file;
  double scale = 1;   // factor on all lengths of the trace
  int64_t limit = 0;  // most requests to read; 0: all
};

// Reads a Mooncake trace: one line per request, {"input_length", "output_length", "hash_ids"},
// where equal hashes mean equal blocks of 512 tokens. Arrival times are ignored: the replay is a
// closed loop. Lengths are scaled, then cut to the context.
// Error: kNotFound; kInvalidArgument naming the line.
Result<Workload> read_trace(const TraceOptions& options, const WorkloadShape& shape);

}  // namespace heddle::tools
