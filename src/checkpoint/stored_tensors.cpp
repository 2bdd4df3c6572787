// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/stored_tensors.h"

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/gguf_model.h"

namespace heddle::checkpoint {

Result<StoredTensors> list_stored_tensors(const std::filesystem::path& model) {
  StoredTensors listed;
  HEDDLE_ASSIGN_OR_RETURN(const auto gguf, find_gguf(model));
  if (gguf) {
    HEDDLE_ASSIGN_OR_RETURN(const GgufModel files, GgufModel::open(*gguf));
    for (const std::string_view name : files.names()) {
      const GgufTensor& tensor = *files.find(name)->tensor;
      listed.tensors.push_back({std::string(name), std::string(tensor.type->name), tensor.shape});
    }
    return listed;
  }
  HEDDLE_ASSIGN_OR_RETURN(const CheckpointFiles files, CheckpointFiles::open(model));
  listed.notes = files.notes();
  for (const std::string_view name : files.names()) {
    const TensorEntry& entry = *files.entry(name);
    listed.tensors.push_back({std::string(name), std::string(entry.stored_dtype), entry.shape});
  }
  return listed;
}

}  // namespace heddle::checkpoint
