// SPDX-License-Identifier: Apache-2.0
// UnfinishedFolder: the folder of a model while it is written. It is a sibling of the folder that
// it becomes and ends in ".tmp"; a writer that fails or is cancelled removes it.
//
// Threading: confined.
#pragma once

#include <filesystem>

#include <heddle/status.h>

namespace heddle::checkpoint {

class UnfinishedFolder {
 public:
  // `output` as a user wrote it, without a slash at its end. Error: kInvalidArgument where it is
  // empty or exists.
  static Result<std::filesystem::path> check_output(const std::filesystem::path& output);

  // Error: kDataLoss where the folder cannot be made.
  static Result<UnfinishedFolder> create(const std::filesystem::path& output);

  ~UnfinishedFolder();
  UnfinishedFolder(UnfinishedFolder&& other) noexcept;
  UnfinishedFolder& operator=(UnfinishedFolder&&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // Renames it to `output`. Error: kDataLoss.
  Status finish(const std::filesystem::path& output);

 private:
  explicit UnfinishedFolder(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;  // empty once it is finished or moved
};

// Copies the plain files of a model's folder but config.json and weights of any form: tokenizer,
// templates, licence. Error: kDataLoss.
Status copy_beside_weights(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace heddle::checkpoint
