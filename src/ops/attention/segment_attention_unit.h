// SPDX-License-Identifier: Apache-2.0
// How segment_attention cuts its work: a unit is up to kSegmentBlock queries of one segment, and
// one worker computes one head of it at a time.
#pragma once

#include <cstdint>

namespace heddle::ops::segments {

// Queries of a unit, and keys of a block.
inline constexpr int64_t kSegmentBlock = 64;

struct SegmentUnit {
  int64_t first_row = 0;
  int64_t num_rows = 0;
};

// A worker's memory; heads are padded with zeros.
struct SegmentScratch {
  float* q = nullptr;       // [kSegmentBlock, padded D], scaled
  float* k = nullptr;       // [kSegmentBlock, padded D]
  float* v = nullptr;       // [kSegmentBlock, padded D]
  float* output = nullptr;  // [kSegmentBlock, padded D]
  float* scores = nullptr;  // [kSegmentBlock, kSegmentBlock]
};

// The padded width of a head in scratch: a multiple of every instruction set's vector width.
[[nodiscard]] inline int64_t padded_segment_head(int64_t head_dim) {
  constexpr int64_t kMostLanes = 16;
  return (head_dim + kMostLanes - 1) / kMostLanes * kMostLanes;
}

}  // namespace heddle::ops::segments
