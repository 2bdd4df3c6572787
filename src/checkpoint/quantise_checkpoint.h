// SPDX-License-Identifier: Apache-2.0
// Writes a quantised copy of an unquantised checkpoint, rounding to nearest: no calibration, no
// search. The formats are ones that other engines read.
//
//   kAwq       4 bits, groups along the rows, AWQ's "gemm" layout
//   kFp8Block  E4M3 with a scale per block of 128 x 128
//   kInt8      8 bits with a scale per row, as compressed-tensors "int-quantized"
//
// The output appears complete or not at all: it is made in `<output>.partial` and renamed. A run
// that was interrupted continues after the last shard it finished; what else it left is removed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <heddle/status.h>

#include "checkpoint/safetensors.h"
#include "checkpoint/weight_source.h"

namespace heddle::checkpoint {

enum class QuantisedFormat : uint8_t { kAwq, kFp8Block, kInt8 };

// A model in another layout, converted to the hub's. Integer blocks are quantised again; the other
// weights become bf16.
struct QuantiseSource {
  std::unique_ptr<const WeightSource> weights;             // by hub names
  std::string config;                                      // the text of its config.json
  std::vector<std::pair<std::string, std::string>> files;  // names and bytes of those beside it
};

struct QuantiseOptions {
  std::filesystem::path source;  // a model folder; of a QuantiseSource, where it is from
  std::filesystem::path output;  // must not exist
  QuantisedFormat format = QuantisedFormat::kFp8Block;
  int64_t group_size = 128;  // for kAwq: 32, 64 or 128
  bool include_lm_head = false;
  int64_t shard_bytes = int64_t{1} << 30;  // a shard is written when it has grown to this
  WriteProgress progress;  // in bytes of the source; a status that is not ok ends the run
};

struct QuantiseReport {
  int64_t num_quantised = 0;       // matrices
  std::vector<std::string> unfit;  // matrices that stay as they are because of their sizes
  int64_t source_bytes = 0;
  int64_t output_bytes = 0;
  int64_t num_shards = 0;
  int64_t num_shards_resumed = 0;  // found finished
};

// Error: kInvalidArgument when the source is quantised already, or the output has no name, exists
// or was begun with other options; kDataLoss when it cannot be written; what `progress` returns.
// Memory: one shard.
Result<QuantiseReport> quantise_checkpoint(const QuantiseOptions& options);
Result<QuantiseReport> quantise_checkpoint(const QuantiseOptions& options, QuantiseSource source);

}  // namespace heddle::checkpoint
