// SPDX-License-Identifier: Apache-2.0
#include "sampling/logit_row.h"

#include <cstring>
#include <limits>

namespace heddle::sampling {
namespace {

// Four floats, as every x86-64 and ARMv8 has them; g++ and clang compile arithmetic on them to
// vector instructions at any optimisation level, which they do not promise for loops.
using Float4 = float __attribute__((vector_size(16)));
using Int4 = int32_t __attribute__((vector_size(16)));

constexpr size_t kLanes = 4;
constexpr size_t kChains = 4;  // independent accumulators hide the latency of the additions

Float4 load(const float* x) {
  Float4 value;
  std::memcpy(&value, x, sizeof(value));
  return value;
}

Float4 broadcast(float x) { return Float4{x, x, x, x}; }

float max_of_block(const float* x, Int4& unordered) {
  Float4 best[kChains];
  for (size_t c = 0; c < kChains; ++c) {
    best[c] = load(x + c * kLanes);
    unordered |= best[c] != best[c];
  }
  for (size_t i = kChains * kLanes; i < kBlockSize; i += kChains * kLanes) {
    for (size_t c = 0; c < kChains; ++c) {
      const Float4 next = load(x + i + c * kLanes);
      unordered |= next != next;
      best[c] = next > best[c] ? next : best[c];
    }
  }
  best[0] = best[0] > best[1] ? best[0] : best[1];
  best[2] = best[2] > best[3] ? best[2] : best[3];
  best[0] = best[0] > best[2] ? best[0] : best[2];
  return std::max(std::max(best[0][0], best[0][1]), std::max(best[0][2], best[0][3]));
}

// exp_of_negative, four at a time and operation for operation: the same bits.
Float4 exp_of_negative4(Float4 z) {
  constexpr float kRoundFloat = 12582912.0f;
  const Float4 lowest = broadcast(-86.0f);
  const Float4 round = broadcast(kRoundFloat);
  const Float4 clamped = z > lowest ? z : lowest;
  const Float4 shifted = clamped * 1.44269504088896341f + round;
  const Float4 n = shifted - round;
  const Float4 r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  Float4 p = broadcast(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const Int4 exponent = (std::bit_cast<Int4>(shifted) - std::bit_cast<int32_t>(kRoundFloat)) << 23;
  const Float4 value = std::bit_cast<Float4>(std::bit_cast<Int4>(p) + exponent);
  return z > lowest ? value : Float4{};
}

double exp_sum_of_block(const float* x, float max, float inverse_temperature) {
  const Float4 max4 = broadcast(max);
  const Float4 inverse4 = broadcast(inverse_temperature);
  Float4 sums[kChains] = {};
  for (size_t i = 0; i < kBlockSize; i += kChains * kLanes) {
    for (size_t c = 0; c < kChains; ++c) {
      sums[c] += exp_of_negative4((load(x + i + c * kLanes) - max4) * inverse4);
    }
  }
  const Float4 sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return (static_cast<double>(sum[0]) + static_cast<double>(sum[1])) +
         (static_cast<double>(sum[2]) + static_cast<double>(sum[3]));
}

}  // namespace

RowScan scan_row(std::span<const float> logits, std::span<float> block_max) {
  RowScan scan{.max = -std::numeric_limits<float>::infinity()};
  const size_t full_blocks = logits.size() / kBlockSize;
  Int4 unordered = {};
  for (size_t b = 0; b < full_blocks; ++b) {
    block_max[b] = max_of_block(logits.data() + b * kBlockSize, unordered);
  }
  scan.has_nan = (unordered[0] | unordered[1] | unordered[2] | unordered[3]) != 0;
  if (full_blocks < num_blocks(logits.size())) {
    float max = -std::numeric_limits<float>::infinity();
    for (const float x : block_of(logits, full_blocks)) {
      scan.has_nan = scan.has_nan || x != x;
      max = x > max ? x : max;
    }
    block_max[full_blocks] = max;
  }
  size_t best_block = 0;
  for (size_t b = 0; b < block_max.size(); ++b) {
    if (block_max[b] > scan.max) {
      scan.max = block_max[b];
      best_block = b;
    }
  }
  const std::span<const float> block = block_of(logits, best_block);
  const auto first = std::find(block.begin(), block.end(), scan.max);
  scan.argmax = static_cast<int32_t>(best_block * kBlockSize +
                                     static_cast<size_t>(first - block.begin()) % block.size());
  return scan;
}

double exp_sums(std::span<const float> logits, float max, float inverse_temperature,
                std::span<double> block_sums) {
  const size_t full_blocks = logits.size() / kBlockSize;
  double total = 0;
  for (size_t b = 0; b < full_blocks; ++b) {
    block_sums[b] = exp_sum_of_block(logits.data() + b * kBlockSize, max, inverse_temperature);
    total += block_sums[b];
  }
  if (full_blocks < num_blocks(logits.size())) {
    double sum = 0;
    for (const float x : block_of(logits, full_blocks)) {
      sum += static_cast<double>(exp_of_negative((x - max) * inverse_temperature));
    }
    block_sums[full_blocks] = sum;
    total += sum;
  }
  return total;
}

}  // namespace heddle::sampling
