// SPDX-License-Identifier: Apache-2.0
// The jobs of one load, shared among threads. Plain tensors are copied and converted; quantised
// ones are unpacked and packed for the kernels; some are dequantised while they are copied to a
// device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "checkpoint/copy_job.h"
#include "checkpoint/load_weights.h"
#include "checkpoint/packed_load.h"
#include "checkpoint/weight_source.h"

namespace heddle::checkpoint {

// A weight whose hub tensors are quantised, or are quantised while they load.
struct PackedPlacement {
  PackedLoad load;
  std::string_view name;
  std::optional<int64_t> dense_begin = {};  // byte in the arena at which the dequantised weight
                                            // begins; none: it stays packed
};

struct WeightJobs {
  const WeightSource& source;
  std::span<const StoredWeight> pieces;  // the hub tensors, indexed by CopyJob::piece
  std::span<const CopyJob> copies;
  std::span<const PackedPlacement> packed;
  DType dequantised_dtype = DType::kBf16;  // dtype of dequantised weights, those with a dense_begin
  std::byte* arena = nullptr;              // target memory of all weights; device memory if
                                           // `options` names a device
};

// Runs all jobs on the number of threads that `options` says, the calling thread included, and
// reports progress. If several jobs fail, returns the error of the first one in job order. Error:
// as PackedLoad::run_job(); kCancelled; kDeviceLost.
Status run_weight_jobs(const WeightJobs& jobs, const LoadOptions& options);

}  // namespace heddle::checkpoint
