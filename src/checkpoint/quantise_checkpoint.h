// SPDX-License-Identifier: Apache-2.0
// Writes a quantised copy of an unquantised checkpoint, rounding to nearest: no calibration, no
// search. The formats are ones that other engines read.
//
//   kAwq       4 bits, groups along the rows, AWQ's "gemm" layout
//   kFp8Block  E4M3 with a scale per block of 128 x 128
//   kInt8      8 bits with a scale per row, as compressed-tensors "int-quantized"
//
// The output appears complete or not at all: it is written to `<output>.partial` and then renamed.
// An interrupted run is continued after its last finished shard; its unfinished files are deleted.
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

// A model whose files have another layout (GGUF), converted to the hub's. Integer blocks are
// quantised again; the other weights become bf16.
struct QuantiseSource {
  std::unique_ptr<const WeightSource> weights;  // weights by their hub names
  std::string config;                           // the text of its config.json
  // names and contents of the other files that the output needs
  std::vector<std::pair<std::string, std::string>> files;
};

struct QuantiseOptions {
  std::filesystem::path source;  // model folder or, with a QuantiseSource, the path that the model
                                 // comes from
  std::filesystem::path output;  // folder to create; must not exist
  QuantisedFormat format = QuantisedFormat::kFp8Block;
  int64_t group_size = 128;  // columns that share a scale, for kAwq: 32, 64 or 128
  bool include_lm_head = false;
  int64_t shard_bytes = int64_t{1} << 30;  // size in bytes at which a shard is complete and written
  WriteProgress progress;  // called with bytes of the source; a status that is not ok ends the run
};

struct QuantiseReport {
  int64_t num_quantised = 0;       // number of matrices that were quantised
  std::vector<std::string> unfit;  // names of matrices that stay unquantised because of their sizes
  int64_t source_bytes = 0;
  int64_t output_bytes = 0;
  int64_t num_shards = 0;
  int64_t num_shards_resumed = 0;  // shards that an earlier, interrupted run had finished
};

// Writes the quantised copy. Error: kInvalidArgument if the source is quantised already, or if the
// output has no name, exists or was begun with other options; kDataLoss if it cannot be written;
// any status that `progress` returns. Memory: one shard.
Result<QuantiseReport> quantise_checkpoint(const QuantiseOptions& options);
Result<QuantiseReport> quantise_checkpoint(const QuantiseOptions& options, QuantiseSource source);

}  // namespace heddle::checkpoint
