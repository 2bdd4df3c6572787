// SPDX-License-Identifier: Apache-2.0
// Where the chunked delta rule divides a sequence into chunks (gated_delta_rule_sm90.h). A chunk
// ends at each multiple of 64 of the sequence's positions, at each snapshot and at the last row of
// the step. A prompt therefore has the same chunks in one step and in several steps that end at
// multiples of 64. A step that begins at another position, and the tokens after a snapshot at
// another position, begin with a shorter chunk.
//
// Threading: pure functions, the same on the host and on the device.
#pragma once

#include <cstdint>

#include "core/compiler.h"

namespace heddle::ops::chunked {

inline constexpr int kTokens = 64;  // most tokens of a chunk

// Positions [begin, end) of one sequence.
struct Span {
  int32_t begin = 0;
  int32_t end = 0;

  [[nodiscard]] HEDDLE_HOST_DEVICE constexpr int32_t size() const { return end - begin; }

  // Number of chunks that overlap this span.
  [[nodiscard]] HEDDLE_HOST_DEVICE constexpr int32_t num_chunks() const {
    return begin < end ? (end + kTokens - 1) / kTokens - begin / kTokens : 0;
  }

  // The part of this span that is in its c-th chunk.
  [[nodiscard]] HEDDLE_HOST_DEVICE constexpr Span chunk(int32_t c) const {
    const int32_t first = (begin / kTokens + c) * kTokens;
    const int32_t last = first + kTokens;
    return {.begin = first < begin ? begin : first, .end = last < end ? last : end};
  }
};

// Upper bound for the chunks of sequences of at least 64 rows each, `num_rows` rows in all, without
// snapshots; each snapshot adds at most one. Sequences of 66 rows have the most chunks per row: 1,
// 64 and 1.
[[nodiscard]] constexpr int64_t most_chunks(int64_t num_rows) {
  return num_rows / ((kTokens + 2) / 3);
}

}  // namespace heddle::ops::chunked
