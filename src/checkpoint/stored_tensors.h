// SPDX-License-Identifier: Apache-2.0
// The tensors of a model's files as they are stored, for tools that list them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <heddle/status.h>

#include "core/tensor.h"

namespace heddle::checkpoint {

struct ListedTensor {
  std::string name;          // the name in the files
  std::string stored_dtype;  // the dtype or block type as the files spell it: "BF16", "Q4_K"
  Shape shape;               // dimensions, slowest first: rows, columns
};

struct StoredTensors {
  std::vector<ListedTensor> tensors;  // sorted by name
  std::vector<std::string> notes;     // WeightSource::notes(), for safetensors files only
};

// Lists the tensors of a folder's safetensors files or of a GGUF model. Error: as
// CheckpointFiles::open(), find_gguf() and GgufModel::open().
Result<StoredTensors> list_stored_tensors(const std::filesystem::path& model);

}  // namespace heddle::checkpoint
