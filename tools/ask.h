// SPDX-License-Identifier: Apache-2.0
// ask(): many requests to an engine, some of them in flight at a time, and their whole answers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <heddle/engine.h>

namespace heddle::tools {

struct Answer {
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<float> margins;  // between the two best logits, per token, if they were asked for
  Finish finish;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  double elapsed_seconds = 0;  // from submit to the last token

  [[nodiscard]] bool failed() const { return finish.reason == FinishReason::kError; }
};

struct AskOptions {
  int64_t parallel = 128;                                     // requests in flight
  std::function<void(int64_t done, int64_t total)> progress;  // may be empty
};

// Names the requests and waits for all of them; answers stand in the requests' order.
// Error: what the engine says when it refuses one; those in flight are waited for.
Result<std::vector<Answer>> ask(Engine& engine, std::vector<Request> requests,
                                const AskOptions& options);

}  // namespace heddle::tools
