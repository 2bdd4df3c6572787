// SPDX-License-Identifier: Apache-2.0
// HostDraws: draws and scores tokens on the host: all tokens on the CPU, and on a GPU the first
// tokens of prompts that start from a stored hidden vector.
//
// Threading: confined to one thread. Cost: that of sampling::Sampler, O(vocabulary) a token.
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

  // Draws the token at `position` of the sequence, from the tokens that `mask` allows
  // (PlannedSequence::masks). `logits` [V] are modified.
  void draw(const StepSequence& sequence, int64_t position, std::span<const uint32_t> mask,
            float* logits, request::SampledToken& sampled);

  // Computes the logprob of `token`, which is at `position`, from `logits` [V].
  void score(const StepSequence& sequence, int64_t position, TokenId token, const float* logits,
             request::ScoredToken& scored);

 private:
  size_t vocab_size_;
  sampling::Sampler sampler_;
};

}  // namespace heddle::runner
