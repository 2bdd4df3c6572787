// SPDX-License-Identifier: Apache-2.0
// Decayed linear attention on the CPU for one value head of one sequence, given its time steps:
//
//   S <- exp(dt decay) S + k (dt v)'       y = S'q + skip v
//
// The state S [Dk, Dv] is stored transposed. A DecayedHead may also be a range of a head's value
// rows, which are independent of each other.
#pragma once

#include <cstdint>

#include "ops/linear_attention/delta_rule_core.h"
#include "ops/linear_attention/delta_rule_scratch.h"

namespace heddle::ops {

struct DecayedHead {
  const float* v = nullptr;  // [n, Dv]; rows of v, k and q are `stride` apart
  const float* k = nullptr;
  const float* q = nullptr;
  int64_t stride = 0;
  const float* dt = nullptr;  // [n] time steps
  float decay = 0;            // log decay for a time step of 1, at most 0
  float skip = 0;
  float* y = nullptr;  // [n, Dv] outputs
  int64_t y_stride = 0;
  float* state = nullptr;  // [Dv, Dk] state, advanced in place
  int64_t num_tokens = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
};

// The part of a head that has tokens [begin, end).
inline DecayedHead tokens_of(DecayedHead head, int64_t begin, int64_t end) {
  head.v += begin * head.stride;
  head.k += begin * head.stride;
  head.q += begin * head.stride;
  head.y += begin * head.y_stride;
  head.dt += begin;
  head.num_tokens = end - begin;
  return head;
}

struct DecayedScratch {
  float* k;  // [kDeltaTokenBlock, padded Dk] keys
  float* q;  // [kDeltaTokenBlock, padded Dk] queries
  float* g;  // [kDeltaTokenBlock] log decays, or decays
  // recurrent: [kDeltaSlabRows + 1, padded Dk] padded copies of state rows; the last row is zero
  float* slab;
  float* qk;       // chunked: [kDeltaChunk, kDeltaChunk] q.k times decay
  float* values;   // chunked: [kDeltaChunk, kDeltaSlabRows] dt v for a panel
  float* outputs;  // chunked: [kDeltaChunk, kDeltaSlabRows] y for a panel
  // chunked: [panels, padded Dk, kDeltaSlabRows] the state, with value rows as columns
  float* panels;
  int64_t floats = 0;

  // If `base` is null, only `floats` is computed.
  DecayedScratch(float* base, int64_t key_dim, int64_t value_dim) {
    const int64_t width = padded_key_dim(key_dim);
    const auto take = [&](int64_t count) {
      float* piece = base == nullptr ? nullptr : base + floats;
      floats += (count + 15) / 16 * 16;
      return piece;
    };
    k = take(kDeltaTokenBlock * width);
    q = take(kDeltaTokenBlock * width);
    g = take(kDeltaTokenBlock);
    slab = take((kDeltaSlabRows + 1) * width);
    qk = take(kDeltaChunk * kDeltaChunk);
    values = take(kDeltaChunk * kDeltaSlabRows);
    outputs = take(kDeltaChunk * kDeltaSlabRows);
    panels = take(num_delta_panels(value_dim) * width * kDeltaSlabRows);
  }
};

}  // namespace heddle::ops
