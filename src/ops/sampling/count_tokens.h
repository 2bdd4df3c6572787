// SPDX-License-Identifier: Apache-2.0
// count_tokens: adds the tokens of texts to a table that counts how often each token occurred;
// penalties read it (SampleRowsArgs::counts). Drawn tokens that only the device knows are read from
// the step's ids on the device.
//
// A count stops at kMostCounted (logit_edits.h). The result does not depend on the order of
// additions.
//
// Cost: reads and writes a few bytes for each token; the time is that of a launch.
#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/sampling/logit_edits.h"

namespace heddle::ops {

struct CountedToken {
  static constexpr int32_t kGiven = -1;

  int32_t counts_row = 0;
  int32_t id_row = kGiven;  // row of `ids` that holds the token; kGiven: `token` is the token
  int32_t token = 0;

  friend bool operator==(const CountedToken&, const CountedToken&) = default;
};

// All pointers are into memory of the context's device. Tokens must be in [0, vocab_size).
struct CountTokensArgs {
  const CountedToken* tokens = nullptr;
  int64_t num_tokens = 0;
  const int32_t* ids = nullptr;  // [T] token ids of the step; may be null if all tokens are given
  TokenCount* counts = nullptr;  // [counts rows, vocab_size], 4-byte aligned
  int64_t vocab_size = 0;
};

// Enqueues one launch, or runs a loop on the CPU. Error: kDeviceLost.
Status count_tokens(Context& context, const CountTokensArgs& args);

Status count_tokens_cpu(CpuContext& context, const CountTokensArgs& args);
Status count_tokens_cuda(CudaContext& context, const CountTokensArgs& args);

}  // namespace heddle::ops
