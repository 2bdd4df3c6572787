// SPDX-License-Identifier: Apache-2.0
// HostDraws: draws and scores tokens from logits that the host reads: all of them on the CPU, on a
// GPU those of prompts that are repeated from a kept vector.
//
// Threading: confined. Cost: that of sampling::Sampler, O(vocabulary) a token.
#pragma once

#include <cstdint>
#include <span>

#include "request/step_output.h"
#include "runner/step/step_sequence.h"
#include "sampling/sampler.h"

namespace heddle::runner {

class HostDraws {
 public:
  explicit HostDraws(int64_t vocab_size)
      : vocab_size_(static_cast<size_t>(vocab_size)), sampler_(vocab_size) {}

  // The token at `position` for the sequence, out of those that `mask` allows
  // (PlannedSequence::masks). `logits` [V] are edited.
  void draw(const StepSequence& sequence, int64_t position, std::span<const uint32_t> mask,
            float* logits, request::SampledToken& sampled);

  // The logprob of `token`, the one at `position`. `logits` [V].
  void score(const StepSequence& sequence, int64_t position, TokenId token, const float* logits,
             request::ScoredToken& scored);

 private:
  size_t vocab_size_;
  sampling::Sampler sampler_;
};

}  // namespace heddle::runner
