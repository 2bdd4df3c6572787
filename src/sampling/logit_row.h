// SPDX-License-Identifier: Apache-2.0
// One pass over a row of logits: its maximum and where, whether it holds NaN, and the maximum of
// every block of 64. The block maxima let later steps skip blocks that cannot matter, so that top-k
// of 20 in a vocabulary of 150,000 reads few logits twice.
//
// Threading: pure functions. Cost: four lanes of the baseline instruction set.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace heddle::sampling {

inline constexpr size_t kBlockSize = 64;

[[nodiscard]] constexpr size_t num_blocks(size_t vocab_size) {
  return (vocab_size + kBlockSize - 1) / kBlockSize;
}

// The logits of block `index`; the last one may be short.
template <typename Float>
[[nodiscard]] std::span<Float> block_of(std::span<Float> logits, size_t index) {
  const size_t begin = index * kBlockSize;
  return logits.subspan(begin, std::min(kBlockSize, logits.size() - begin));
}

struct RowScan {
  float max = 0;       // -inf when everything is masked
  int32_t argmax = 0;  // lowest id among equals
  bool has_nan = false;
};

// Fills `block_max`, one value per block. The row is not empty.
RowScan scan_row(std::span<const float> logits, std::span<float> block_max);

// exp(z) for z <= 0; 0 below -86. Relative error below 3e-7: well under what a softmax in fp32
// carries. Coefficients from Cephes' expf (Moshier).
[[nodiscard]] inline float exp_of_negative(float z) {
  constexpr float kLowest = -86.0f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float clamped = z > kLowest ? z : kLowest;
  const float shifted = clamped * 1.44269504088896341f + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const auto exponent = (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound)) << 23;
  const float value = std::bit_cast<float>(std::bit_cast<uint32_t>(p) + exponent);
  return z > kLowest ? value : 0.0f;
}

// Sum over the row of exp((logit - max) * inverse_temperature), and of each block. `max` is the
// row's.
double exp_sums(std::span<const float> logits, float max, float inverse_temperature,
                std::span<double> block_sums);

}  // namespace heddle::sampling
