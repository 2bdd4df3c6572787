// SPDX-License-Identifier: Apache-2.0
// count_tokens: adds to a table how often texts have their tokens, which penalties read
// (SampleRowsArgs::counts). Tokens of a step that only the device knows are counted where they lie,
// among the ids of the step.
//
// A count stays at kMostCounted (logit_edits.h). In any order the counts are the same.
//
// Bytes: some for each token; the time is that of a launch.
#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/sampling/logit_edits.h"

namespace heddle::ops {

struct CountedToken {
  static constexpr int32_t kGiven = -1;

  int32_t counts_row = 0;
  int32_t id_row = kGiven;  // row of `ids` that holds the token; kGiven: the token is in `token`
  int32_t token = 0;

  friend bool operator==(const CountedToken&, const CountedToken&) = default;
};

// Pointers lead into memory of the context's device. Tokens lie in [0, vocab_size).
struct CountTokensArgs {
  const CountedToken* tokens = nullptr;
  int64_t num_tokens = 0;
  const int32_t* ids = nullptr;  // [T], of the step; may be null where all are given
  TokenCount* counts = nullptr;  // [counts rows, vocab_size], on 4 bytes
  int64_t vocab_size = 0;
};

// One launch, or a loop. Error: kDeviceLost.
Status count_tokens(Context& context, const CountTokensArgs& args);

Status count_tokens_cpu(CpuContext& context, const CountTokensArgs& args);
Status count_tokens_cuda(CudaContext& context, const CountTokensArgs& args);

}  // namespace heddle::ops
