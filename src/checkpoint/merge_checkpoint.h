// SPDX-License-Identifier: Apache-2.0
// Writes a copy of a model with LoRA adapters merged into its weights (merged_weights.h): names and
// shapes of its tensors stay the hub's, tensors that no adapter changes are copied byte for byte.
//
// The output appears complete or not at all: it is made in a sibling folder that ends in ".tmp",
// whose config.json is written last.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include <heddle/status.h>

#include "checkpoint/safetensors.h"
#include "checkpoint/weight_map.h"

namespace heddle::checkpoint {

struct MergeOptions {
  struct Adapter {
    std::filesystem::path folder;
    double scale = 1;  // multiplies the adapter's own
  };

  std::filesystem::path base;
  std::vector<Adapter> adapters;           // their updates are summed
  std::filesystem::path output;            // must not exist
  std::optional<DType> dtype;              // of all tensors in fp32, bf16 or fp16; none: as stored
  int64_t shard_bytes = int64_t{1} << 30;  // a shard is written when it has grown to this
  WriteProgress progress = {};  // in bytes of the output; a status that is not ok ends the run
};

struct MergeReport {
  int64_t num_tensors = 0;
  int64_t num_changed = 0;  // tensors that an adapter changes
  int64_t output_bytes = 0;
  int64_t num_shards = 0;
};

// `specs` is the weight map of the base. Memory: the adapters in fp32 and a shard. Error:
// kInvalidArgument when the output has no name or exists; those of AdapterFiles::open() and
// MergedWeights::create(); kDataLoss when the output cannot be written; what `progress` returns.
Result<MergeReport> merge_checkpoint(const MergeOptions& options,
                                     std::span<const WeightSpec> specs);

}  // namespace heddle::checkpoint
