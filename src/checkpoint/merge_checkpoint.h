// SPDX-License-Identifier: Apache-2.0
// Writes a copy of a model with LoRA adapters merged into its weights (merged_weights.h). The
// tensors keep the names and shapes of the base's files. Tensors that no adapter changes are copied
// byte for byte.
//
// The output is either complete or absent: it is written to a sibling folder that ends in ".tmp",
// config.json last, and then renamed.
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
    double scale = 1;  // factor on the adapter's own scale
  };

  std::filesystem::path base;
  std::vector<Adapter> adapters;  // adapters to merge; their updates are summed
  std::filesystem::path output;   // folder to create; must not exist
  // Output dtype of all tensors that are stored as fp32, bf16 or fp16; none: each tensor keeps its
  // dtype.
  std::optional<DType> dtype;
  int64_t shard_bytes = int64_t{1} << 30;  // a shard is closed when it has at least this size
  // called with the number of output bytes written; a status that is not ok ends the merge
  WriteProgress progress = {};
};

struct MergeReport {
  int64_t num_tensors = 0;
  int64_t num_changed = 0;  // tensors that an adapter changes
  int64_t output_bytes = 0;
  int64_t num_shards = 0;
};

// `options.base` is a folder that check_safetensors_folder() has accepted, `specs` its weight map.
// Memory: the adapters in fp32 and one shard. Error: kInvalidArgument if the output has no name or
// exists; kUnimplemented for another dtype of a quantised base; those of AdapterFiles::open() and
// MergedWeights::create(); also kInvalidArgument, naming tensor and element, if a number of the
// output is not finite; kDataLoss if the output cannot be written; any status that `progress`
// returns.
Result<MergeReport> merge_checkpoint(const MergeOptions& options,
                                     std::span<const WeightSpec> specs);

}  // namespace heddle::checkpoint
