// SPDX-License-Identifier: Apache-2.0
// Takes the next-token-prediction layer (nextn_layer.h) out of a checkpoint into a folder of its
// own, which serves as a draft model: a few gigabytes instead of hundreds.
//
// The folder has the layer's tensors, bytes as they were, in nextn_layer_parameters.safetensors
// with an index; config.json of the draft; and every other plain file of the checkpoint (tokenizer,
// templates, licence) that is not safetensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <heddle/status.h>

#include "checkpoint/safetensors.h"

namespace heddle::checkpoint {

struct NextnExport {
  std::string architecture;  // architecture of the draft model
  int64_t num_tensors = 0;
  int64_t num_bytes = 0;  // total size of the tensors
};

// Atomic: `output` appears complete or not at all; the files are first written to a sibling folder
// that ends in ".tmp". Tensors are written directly from the mapped files.
//
// `on_progress` may be empty; if it returns an error, the export ends with it. Error: as
// CheckpointFiles::open, find_nextn_layer and draft_config, with the file's name; kInvalidArgument
// when `output` exists; kDataLoss for a failed write (disk full).
Result<NextnExport> export_nextn(const std::filesystem::path& model_dir,
                                 const std::filesystem::path& output,
                                 const WriteProgress& on_progress = {});

}  // namespace heddle::checkpoint
