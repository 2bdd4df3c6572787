// SPDX-License-Identifier: Apache-2.0
// The speed of computation as text for the log: at the end of each generating call, and
// periodically for all calls together.
//
// Threading: thread-confined.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <heddle/engine.h>

namespace heddle::server {

// Counts the tokens of one call's answers.
class CallSpeed {
 public:
  // Adds the last event of an answer. `counts_prompt`: it is the first answer to its prompt.
  void add(const RequestEvent& last, bool counts_prompt);

  // The text "19 + 120 tokens, 16 cached, first after 24 ms, 702 tokens/s": prompt and output
  // tokens, the cached part of the prompt, the time from the call's submission to the first token,
  // and the rate of all answers together after that. Parts that are zero are omitted.
  [[nodiscard]] std::string to_string() const;

 private:
  int64_t prompt_tokens_ = 0;
  int64_t cached_tokens_ = 0;
  int64_t completion_tokens_ = 0;
  int64_t num_answers_ = 0;         // number of answers with at least one token
  double first_token_seconds_ = 0;  // seconds until the first token of the earliest answer
  double elapsed_seconds_ = 0;      // seconds until the last answer had ended
};

// Makes the line that is logged every kSummarySeconds while the engine works.
class SpeedSummary {
 public:
  static constexpr double kSummarySeconds = 10;

  // The line "3 running, 1 waiting; 512 prompt tokens/s, 1406.1 generated tokens/s; 12% of the KV
  // cache in use" for the time since the last call; none if no step was computed in it.
  // `kv_tokens`: capacity of the KV pool in tokens.
  [[nodiscard]] std::optional<std::string> next(const EngineStats& stats, int64_t kv_tokens,
                                                double seconds);

 private:
  EngineStats before_;
};

}  // namespace heddle::server
