// SPDX-License-Identifier: Apache-2.0
// The scratch memory of both forms of the delta rule. Widths are padded to whole vectors of every
// instruction set.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/linear_attention/delta_rule_core.h"

namespace heddle::ops {

inline constexpr int64_t kDeltaTokenBlock = 64;  // tokens whose q and k are normalised at a time

inline int64_t padded_key_dim(int64_t key_dim) { return (key_dim + 15) / 16 * 16; }

inline int64_t num_delta_panels(int64_t value_dim) {
  return (value_dim + kDeltaSlabRows - 1) / kDeltaSlabRows;
}

struct DeltaScratch {
  float* k;        // [kDeltaTokenBlock, padded Dk] normalised keys
  float* q;        // [kDeltaTokenBlock, padded Dk] normalised and scaled queries
  float* weights;  // [kDeltaTokenBlock] a small vector with a different use in each kernel
  // recurrent: [kDeltaSlabRows + 1, padded Dk] padded copies of state rows; the last row is zero
  float* slab;
  float* kk;       // chunked: [kDeltaChunk, kDeltaChunk] -beta k.k times decay
  float* qk;       // chunked: [kDeltaChunk, kDeltaChunk] q.k times decay
  float* values;   // chunked: [kDeltaChunk, kDeltaSlabRows] corrected values for a panel
  float* outputs;  // chunked: [kDeltaChunk, kDeltaSlabRows] y for a panel
  float* decay;  // channel decay: [kDeltaTokenBlock, padded Dk] decays of the tokens, or their logs
  float* faded_k;  // channel decay: [kDeltaTokenBlock, padded Dk] keys times a decay
  float* faded_q;  // channel decay: [kDeltaTokenBlock, padded Dk] queries times a decay
  // chunked: [panels, padded Dk, kDeltaSlabRows] the state, with value rows as columns
  float* panels;
  int64_t floats = 0;

  // If `base` is null, only `floats` is computed.
  DeltaScratch(float* base, int64_t key_dim, int64_t value_dim, bool channel_decay) {
    const int64_t width = padded_key_dim(key_dim);
    const auto take = [&](int64_t count) {
      float* piece = base == nullptr ? nullptr : base + floats;
      floats += (count + 15) / 16 * 16;
      return piece;
    };
    k = take(kDeltaTokenBlock * width);
    q = take(kDeltaTokenBlock * width);
    weights = take(4 * kDeltaTokenBlock);
    slab = take((kDeltaSlabRows + 1) * width);
    kk = take(kDeltaChunk * kDeltaChunk);
    qk = take(kDeltaChunk * kDeltaChunk);
    values = take(kDeltaChunk * kDeltaSlabRows);
    outputs = take(kDeltaChunk * kDeltaSlabRows);
    const int64_t channels = channel_decay ? kDeltaTokenBlock * width : 0;
    decay = take(channels);
    faded_k = take(channels);
    faded_q = take(channels);
    panels = take(num_delta_panels(value_dim) * width * kDeltaSlabRows);
  }
};

}  // namespace heddle::ops
