// SPDX-License-Identifier: Apache-2.0
// CopyJob: a part of one hub tensor that a load copies to its final location in memory. Jobs are
// small enough that several threads share a model's weights evenly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint/weight_map.h"
#include "checkpoint/weight_source.h"
#include "checkpoint/weight_stage.h"

namespace heddle::checkpoint {

// The most elements of one job, unless a single row is longer: a few milliseconds of work.
inline constexpr int64_t kCopyJobElements = int64_t{1} << 20;

struct CopyJob {
  size_t piece = 0;  // the caller's index of the hub tensor

  // `num_rows` rows of `row_width` elements. Row i begins at element `first` + i * `row_step` of
  // the hub tensor, and its elements lie `element_step` apart.
  int64_t first = 0;
  int64_t num_rows = 0;
  int64_t row_width = 0;
  int64_t row_step = 0;
  int64_t element_step = 1;

  int64_t target_byte = 0;  // byte offset in the target memory at which the rows are stored densely
  DType dtype = DType::kF32;
  float offset = 0;  // added to every element; if not 0, dtype is kF32

  [[nodiscard]] int64_t num_bytes() const { return bytes_of(dtype, num_rows * row_width); }
};

// Cuts the runs of `piece` into jobs and appends them. `whole` has the piece index, dtype and
// offset of every job, and the byte at which the weight begins.
void append_copy_jobs(const HubPiece& piece, const CopyJob& whole, std::vector<CopyJob>& jobs);

// Threading: jobs of one load may run at the same time.
void run_copy_job(const WeightSource& source, const StoredWeight& stored, const CopyJob& job,
                  std::byte* memory);

// The same as run_copy_job(), but the elements are copied to device memory through `stage`.
Status stage_copy_job(const WeightSource& source, const StoredWeight& stored, const CopyJob& job,
                      WeightStage& stage);

}  // namespace heddle::checkpoint
