// SPDX-License-Identifier: Apache-2.0
// The scratch memory of the delta rule's two forms. Widths are padded to whole vectors of any
// target.
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
  float* k;        // [kDeltaTokenBlock, padded Dk] normalised
  float* q;        // [kDeltaTokenBlock, padded Dk] normalised and scaled
  float* weights;  // [kDeltaTokenBlock] small vectors, see the kernels
  float* slab;     // recurrent: [kDeltaSlabRows + 1, padded Dk] rows of a ragged Dk; a row of zeros
  float* kk;       // chunked: [kDeltaChunk, kDeltaChunk] -beta k.k with decay
  float* qk;       // chunked: [kDeltaChunk, kDeltaChunk] q.k with decay
  float* values;   // chunked: [kDeltaChunk, kDeltaSlabRows] corrected values of a panel
  float* outputs;  // chunked: [kDeltaChunk, kDeltaSlabRows]
  float* decay;    // channel decay: [kDeltaTokenBlock, padded Dk] of the tokens, or their logs
  float* faded_k;  // channel decay: [kDeltaTokenBlock, padded Dk] keys times a decay
  float* faded_q;  // channel decay: [kDeltaTokenBlock, padded Dk]
  float* panels;   // chunked: [panels, padded Dk, kDeltaSlabRows] the state, value rows in columns
  int64_t floats = 0;

  // `base` may be null to measure.
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
