// SPDX-License-Identifier: Apache-2.0
// The jobs of one load, shared among threads: plain tensors are copied and converted, quantised
// ones unpacked and packed for the kernels; some are dequantised on their way to a device.
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

// A weight of hub tensors that are quantised, or become so now.
struct PackedPlacement {
  PackedLoad load;
  std::string_view name;
  std::optional<int64_t> dense_begin = {};  // where it begins in the arena, dequantised
};

struct WeightJobs {
  const WeightSource& source;
  std::span<const StoredWeight> pieces;  // hub tensors by CopyJob::piece
  std::span<const CopyJob> copies;
  std::span<const PackedPlacement> packed;
  DType dequantised_dtype = DType::kBf16;  // for jobs with a dense_begin
  std::byte* arena = nullptr;              // on the device if `options` names one
};

// Runs all jobs on as many threads as `options` says, this one among them, and reports progress.
// Error: the first one in the order of the jobs, whichever thread it occurred on: as
// PackedLoad::run_job(); kCancelled; kDeviceLost.
Status run_weight_jobs(const WeightJobs& jobs, const LoadOptions& options);

}  // namespace heddle::checkpoint
