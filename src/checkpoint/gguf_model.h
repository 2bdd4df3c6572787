// SPDX-License-Identifier: Apache-2.0
// GgufModel: the GGUF files of one model, mapped. They are one file, or the parts it was split into
// ("NAME-00001-of-00003.gguf"). The metadata is that of the first part.
//
// Threading: thread-compatible.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <heddle/status.h>

#include "checkpoint/gguf_header.h"
#include "checkpoint/mapped_file.h"

namespace heddle::checkpoint {

// The first file of the GGUF model that `path` names: a *.gguf file, any part of a split one, or a
// folder with one such model and without safetensors files. None for all other paths. Files of
// image projectors ("mmproj") do not count. Error: kInvalidArgument for a folder with several
// models, naming two; as names_in_folder().
Result<std::optional<std::filesystem::path>> find_gguf(const std::filesystem::path& path);

// The name of a model: its file's name without ".gguf" and without the part number.
[[nodiscard]] std::string gguf_model_name(const std::filesystem::path& path);

class GgufModel {
 public:
  // Opens the model whose first file is `path`, as find_gguf() returns it. Error: as
  // parse_gguf_header(), with the file's name before the message; kNotFound for a missing part;
  // kDataLoss for parts that do not belong together.
  static Result<GgufModel> open(const std::filesystem::path& path);

  [[nodiscard]] const GgufMetadata& metadata() const { return parts_.front().header.metadata; }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  struct Stored {
    const GgufTensor* tensor = nullptr;
    const std::byte* data = nullptr;  // `tensor->end - tensor->begin` bytes, at any alignment
  };

  // The tensor's stored bytes; none if the model has no such tensor.
  [[nodiscard]] std::optional<Stored> find(std::string_view name) const;

  [[nodiscard]] std::vector<std::string_view> names() const;  // the tensors' names, sorted

  // The format of most weights, as in the names of such files: "Q4_K_M". It follows from
  // general.file_type or, if that is absent or unknown, is the type with the most elements.
  [[nodiscard]] std::string quantization() const;

  [[nodiscard]] int64_t num_files() const { return static_cast<int64_t>(parts_.size()); }

 private:
  struct Part {
    MappedFile file;
    GgufHeader header;
  };

  Status add_part(const std::filesystem::path& path);
  Status add_other_parts();

  std::filesystem::path path_;
  std::vector<Part> parts_;
  std::unordered_map<std::string_view, Stored> tensors_;  // keys live in the files
};

}  // namespace heddle::checkpoint
