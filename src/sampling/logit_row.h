// SPDX-License-Identifier: Apache-2.0
// One pass over a row of logits: its maximum and the position of it, whether it contains NaN, and
// the maximum of every block of 64. With the block maxima later steps skip blocks that cannot
// matter, so that top-k of 20 in a vocabulary of 150,000 reads few logits twice.
//
// Threading: pure functions. Cost: vector code of four lanes, from the baseline instruction set.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace heddle::sampling {

inline constexpr size_t kBlockSize = 64;

[[nodiscard]] constexpr size_t num_blocks(size_t vocab_size) {
  return (vocab_size + kBlockSize - 1) / kBlockSize;
}

// The logits of block `index`; the last block may be shorter.
template <typename Float>
[[nodiscard]] std::span<Float> block_of(std::span<Float> logits, size_t index) {
  const size_t begin = index * kBlockSize;
  return logits.subspan(begin, std::min(kBlockSize, logits.size() - begin));
}

struct RowScan {
  float max = 0;       // largest logit; -inf when all logits are masked
  int32_t argmax = 0;  // token id of the largest logit; the lowest id among equals
  bool has_nan = false;
};

// Fills `block_max`, one value per block. The row must not be empty.
RowScan scan_row(std::span<const float> logits, std::span<float> block_max);

// The sum of the row's weights (ops/sampling/token_weight.h), and in `block_sums` that of each
// block. `max` is the maximum of the row.
uint64_t sum_weights(std::span<const float> logits, float max, float inverse_temperature,
                     std::span<uint64_t> block_sums);

}  // namespace heddle::sampling
