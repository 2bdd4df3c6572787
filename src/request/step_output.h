// SPDX-License-Identifier: Apache-2.0
// StepOutput: the result of a step.
#pragma once

#include <cstdint>
#include <vector>

#include <heddle/request.h>

namespace heddle::request {

struct SampledToken {
  int64_t sequence_id = 0;
  TokenId token = 0;
  bool skipped = false;  // had ended before the step (PlannedSequence::ending_tokens); no token
  TokenLogprob logprob;  // filled if the sequence asked for it
  Status error;          // for example all logits masked or not finite; `token` is meaningless then
};

struct StepOutput {
  std::vector<SampledToken> tokens;  // one per sequence of the plan with `sample`, in plan order
};

}  // namespace heddle::request
