// SPDX-License-Identifier: Apache-2.0
// uniform_draw: a number in [0, 1) that depends only on (seed, position, choice): not on the rest
// of the batch, not on earlier draws, not on how often a sequence was computed again.
//
// The hash: three rounds of the SplitMix64 finaliser (Steele, Lea and Flood, "Fast Splittable
// Pseudorandom Number Generators", OOPSLA 2014; constants by Stafford, variant 13), one for each
// input, which is added to the running value together with the golden-ratio increment. The upper 53
// bits become the double. The values must never change: the same seed gives the same text in every
// later version.
#pragma once

#include <cstdint>

#include "core/compiler.h"
#include "ops/sampling/token_weight.h"

namespace heddle::ops {

[[nodiscard]] HEDDLE_HOST_DEVICE constexpr uint64_t mix64(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

// `position` is the absolute index of the drawn token in its sequence (prompt tokens count).
[[nodiscard]] HEDDLE_HOST_DEVICE constexpr uint64_t draw_hash(uint64_t seed, int64_t position,
                                                              int32_t choice) {
  constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15u;
  uint64_t hash = mix64(seed + kGoldenRatio);
  hash = mix64(hash + kGoldenRatio + static_cast<uint64_t>(position));
  return mix64(hash + kGoldenRatio + static_cast<uint64_t>(choice));
}

[[nodiscard]] HEDDLE_HOST_DEVICE constexpr double uniform_draw(uint64_t seed, int64_t position,
                                                               int32_t choice) {
  return static_cast<double>(draw_hash(seed, position, choice) >> 11) * 0x1p-53;
}

// floor(uniform_draw * mass), exactly. The first token whose cumulative weight exceeds it is drawn.
// It is below `mass`, so that there always is such a token.
[[nodiscard]] HEDDLE_HOST_DEVICE inline uint64_t draw_target(uint64_t seed, int64_t position,
                                                             int32_t choice, uint64_t mass) {
  return high_product(draw_hash(seed, position, choice) & ~uint64_t{2047}, mass);
}

}  // namespace heddle::ops
