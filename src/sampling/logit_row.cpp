// SPDX-License-Identifier: Apache-2.0
#include "sampling/logit_row.h"

#include <bit>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/compiler.h"
#include "ops/sampling/token_weight.h"

namespace heddle::sampling {
namespace {

// Four floats, a vector that every x86-64 and ARMv8 has. g++ and clang compile arithmetic on them
// to vector instructions at any optimisation level, which they do not promise for loops.
using Float4 = float __attribute__((vector_size(16)));
using Int4 = int32_t __attribute__((vector_size(16)));

constexpr size_t kLanes = 4;
constexpr size_t kChains = 4;  // independent accumulators, which hide the latency of the additions

Float4 load(const float* x) {
  Float4 value;
  std::memcpy(&value, x, sizeof(value));
  return value;
}

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

// Sums the weights of a block, eight lanes at a time: whole registers if the CPU has them,
// otherwise pairs of four. The exponential is ops::exp_of_negative, operation for operation, so the
// bits are equal.
//
// Weights are rounded as ops::fixed_weight does and summed without 64-bit lanes. Adding kCoarse
// leaves the multiple of 2^-21 in the last bits of the float; adding kFine to the rest leaves the
// multiple of 2^-44, from -2^22 to 2^22 of them. Rounding twice to nearest even equals rounding
// once, because the first multiple is an even number of the second. Both are summed as integers
// modulo 2^32.
HEDDLE_VECTOR_CLONES
void sum_blocks(const float* logits, size_t blocks, float max, float inverse_temperature,
                uint64_t* block_sums) {
  using Float8 = float __attribute__((vector_size(32)));
  using UInt8 = uint32_t __attribute__((vector_size(32)));
  constexpr size_t kWide = 8;
  constexpr float kLowest = -86.0f;
  constexpr float kRound = 12582912.0f;
  constexpr auto kRoundBits = std::bit_cast<uint32_t>(kRound);
  constexpr float kCoarse = 6.0f;
  constexpr float kFine = 0x1.8p-21f;
  constexpr auto kCount = static_cast<uint32_t>(kBlockSize);
  for (size_t b = 0; b < blocks; ++b) {
    UInt8 coarse = {};
    UInt8 fine = {};
    for (size_t i = 0; i < kBlockSize; i += kWide) {
      Float8 x;
      std::memcpy(&x, logits + b * kBlockSize + i, sizeof(x));
      const Float8 z = (x - max) * inverse_temperature;
      const Float8 clamped = z > kLowest ? z : Float8{} + kLowest;
      const Float8 shifted = clamped * 1.44269504088896341f + kRound;
      const Float8 n = shifted - kRound;
      const Float8 r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
      Float8 p = 1.9875691500e-4f * r + 1.3981999507e-3f;
      p = p * r + 8.3334519073e-3f;
      p = p * r + 4.1665795894e-2f;
      p = p * r + 1.6666665459e-1f;
      p = p * r + 5.0000001201e-1f;
      p = p * (r * r) + r + 1.0f;
      const UInt8 exponent = (__builtin_bit_cast(UInt8, shifted) - kRoundBits) << 23;
      const auto weight = __builtin_bit_cast(Float8, __builtin_bit_cast(UInt8, p) + exponent);

      const Float8 multiple = weight + kCoarse;
      const Float8 rest = weight - (multiple - kCoarse);
      coarse += __builtin_bit_cast(UInt8, multiple);
      fine += __builtin_bit_cast(UInt8, rest + kFine);
    }
    uint32_t coarse_units = 0 - kCount * std::bit_cast<uint32_t>(kCoarse);
    uint32_t fine_units = 0 - kCount * std::bit_cast<uint32_t>(kFine);
    for (size_t lane = 0; lane < kWide; ++lane) {
      coarse_units += coarse[lane];
      fine_units += fine[lane];
    }
    block_sums[b] = (uint64_t{coarse_units} << 23) +
                    static_cast<uint64_t>(int64_t{static_cast<int32_t>(fine_units)});
  }
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

uint64_t sum_weights(std::span<const float> logits, float max, float inverse_temperature,
                     std::span<uint64_t> block_sums) {
  const size_t full_blocks = logits.size() / kBlockSize;
  sum_blocks(logits.data(), full_blocks, max, inverse_temperature, block_sums.data());
  if (full_blocks < block_sums.size()) {
    block_sums[full_blocks] = 0;
    for (const float x : block_of(logits, full_blocks)) {
      block_sums[full_blocks] += ops::token_weight(x, max, inverse_temperature);
    }
  }
  return std::accumulate(block_sums.begin(), block_sums.end(), uint64_t{0});
}

}  // namespace heddle::sampling
