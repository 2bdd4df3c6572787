// SPDX-License-Identifier: Apache-2.0
// How fast tokens are computed, in words for the log: at the end of a call that generates, and from
// time to time for all calls together.
//
// Threading: thread-confined.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <heddle/engine.h>

namespace heddle::server {

// The tokens of one call's answers.
class CallSpeed {
 public:
  // The last event of an answer. `counts_prompt`: the first answer to its prompt.
  void add(const RequestEvent& last, bool counts_prompt);

  // "19 + 120 tokens, 16 cached, first after 24 ms, 702 tokens/s": prompt and answers, the prompt's
  // part that was in the cache, the first token since the engine took the call, and the pace of
  // all answers together from there on. Leaves out what there was none of.
  [[nodiscard]] std::string to_string() const;

 private:
  int64_t prompt_tokens_ = 0;
  int64_t cached_tokens_ = 0;
  int64_t completion_tokens_ = 0;
  int64_t num_answers_ = 0;         // answers with at least one token
  double first_token_seconds_ = 0;  // until the first token of the earliest answer
  double elapsed_seconds_ = 0;      // until the last answer had ended
};

// The line that comes every kSummarySeconds while the engine works.
class SpeedSummary {
 public:
  static constexpr double kSummarySeconds = 10;

  // "3 running, 1 waiting; 512 prompt tokens/s, 1406.1 generated tokens/s; 12% of the KV cache in
  // use", of the time since the last call; none where no step was computed in it. `kv_tokens`: the
  // pool's.
  [[nodiscard]] std::optional<std::string> next(const EngineStats& stats, int64_t kv_tokens,
                                                double seconds);

 private:
  EngineStats before_;
};

}  // namespace heddle::server
