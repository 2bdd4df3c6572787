// SPDX-License-Identifier: Apache-2.0
// The safetensors files of a model folder as one WeightSource: `model.safetensors`, or without it
// the shards named by `model.safetensors.index.json`, as in transformers.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <heddle/status.h>

#include "checkpoint/safetensors.h"
#include "checkpoint/weight_source.h"

namespace heddle::checkpoint {

// The JSON file next to the shards that maps each tensor's name to the shard that stores it.
inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";

class CheckpointFiles final : public WeightSource {
 public:
  // Maps every file and checks the index against the files. If several shards store a tensor, the
  // last shard by file name counts, whatever the index says, as in transformers. Error: kNotFound
  // or kDataLoss, naming file and tensor; if the folder has weights in another form (GGUF, PyTorch,
  // adapters), the message says what to do; errors of file_exists() (core/file_presence.h). Cost:
  // 76,000 tensors in 0.15 s.
  static Result<CheckpointFiles> open(const std::filesystem::path& folder);

  [[nodiscard]] std::optional<StoredWeight> find(const WeightRequest& request) const override;
  // the stored tensors' names, sorted
  [[nodiscard]] std::vector<std::string_view> names() const override;
  void read(const StoredWeight& weight, int64_t first, int64_t count, DType dtype,
            void* target) const override;

  // Notes on tensors that several shards store and on tensors that are not in the shard that the
  // index names.
  [[nodiscard]] std::vector<std::string> notes() const override { return notes_; }

  // A sentence that names the weight files that are not read: shards next to a single file, and
  // files that no index names; empty if there are none.
  [[nodiscard]] std::string unread_files() const override;

  // The stored tensor, or null. For tools that list a checkpoint.
  [[nodiscard]] const TensorEntry* entry(std::string_view name) const;

  [[nodiscard]] int64_t num_files() const { return static_cast<int64_t>(files_.size()); }

  // Bytes of all tensors, each counted once.
  [[nodiscard]] int64_t num_bytes() const;

 private:
  struct Location {
    size_t file;
    const TensorEntry* entry;  // points into files_[file]
  };

  Status add_file(std::string name);
  Status add_shards(const std::filesystem::path& index_path);
  [[nodiscard]] std::string name_twins() const;  // requires tensors_in_several_ not to be empty

  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
  std::vector<std::string> file_names_;  // the shards' file names, relative to the model folder
  std::vector<std::string> notes_;
  std::set<std::string_view> tensors_in_several_;             // keys point into files_
  std::unordered_map<std::string_view, Location> locations_;  // keys point into files_
};

}  // namespace heddle::checkpoint
