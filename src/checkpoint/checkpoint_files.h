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

// Beside the shards: which tensor is in which.
inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";

class CheckpointFiles final : public WeightSource {
 public:
  // Maps every file and checks the index against them. Of a tensor that several shards have, the
  // last one counts, in the order of the files' names and whatever the index says, as in
  // transformers. Error: kNotFound, kDataLoss, naming file and tensor, or the weights of another
  // form (GGUF, PyTorch, adapters) and what to do; as file_exists() (core/file_presence.h). Cost:
  // 76,000 tensors in 0.15 s.
  static Result<CheckpointFiles> open(const std::filesystem::path& folder);

  [[nodiscard]] std::optional<StoredWeight> find(const WeightRequest& request) const override;
  [[nodiscard]] std::vector<std::string_view> names() const override;  // sorted
  void read(const StoredWeight& weight, int64_t first, int64_t count, DType dtype,
            void* target) const override;

  // Tensors that are in several shards, and those that are not where the index says.
  [[nodiscard]] std::vector<std::string> notes() const override { return notes_; }

  // Shards next to a single file, and files that no index names.
  [[nodiscard]] std::string unread_files() const override;

  // The stored tensor, or null. For tools that list a checkpoint.
  [[nodiscard]] const TensorEntry* entry(std::string_view name) const;

  [[nodiscard]] int64_t num_files() const { return static_cast<int64_t>(files_.size()); }

  // Bytes of all tensors, each counted once.
  [[nodiscard]] int64_t num_bytes() const;

 private:
  struct Location {
    size_t file;
    const TensorEntry* entry;  // in files_[file]
  };

  Status add_file(std::string name);
  Status add_shards(const std::filesystem::path& index_path);
  [[nodiscard]] std::string name_twins() const;  // requires that there are some

  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
  std::vector<std::string> file_names_;  // within the folder
  std::vector<std::string> notes_;
  std::set<std::string_view> tensors_in_several_;             // files_; keys live there
  std::unordered_map<std::string_view, Location> locations_;  // keys live in files_
};

}  // namespace heddle::checkpoint
