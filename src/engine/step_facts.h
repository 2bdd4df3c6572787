// SPDX-License-Identifier: Apache-2.0
// StepFacts: what a step computes, counted when it is handed to the runner, for metrics and log.
#pragma once

#include <cstdint>

namespace heddle::engine {

struct StepFacts {
  int64_t new_sequences = 0;     // first prefilled here
  int64_t cached_tokens = 0;     // that these had in the cache
  int64_t prefill_tokens = 0;    // computed, not drawn
  int64_t decode_sequences = 0;  // one token each
  int64_t decode_context = 0;    // tokens these had before
  double launched_seconds = 0;
  double seconds = 0;  // from the launch, or from the end of the step before if that was later

  [[nodiscard]] bool prefills() const { return prefill_tokens > 0 || new_sequences > 0; }
};

}  // namespace heddle::engine
