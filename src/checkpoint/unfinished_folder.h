// SPDX-License-Identifier: Apache-2.0
// UnfinishedFolder: a model's folder while it is being written. It is a sibling of the final folder
// and its name ends in ".tmp". It is removed if the writer fails or is cancelled.
//
// Threading: thread-confined.
#pragma once

#include <filesystem>

#include <heddle/status.h>

namespace heddle::checkpoint {

class UnfinishedFolder {
 public:
  // Returns the path that the user gave, without a slash at its end. Error: kInvalidArgument if it
  // is empty or exists.
  static Result<std::filesystem::path> check_output(const std::filesystem::path& output);

  // Error: kDataLoss if the folder cannot be made.
  static Result<UnfinishedFolder> create(const std::filesystem::path& output);

  ~UnfinishedFolder();
  UnfinishedFolder(UnfinishedFolder&& other) noexcept;
  UnfinishedFolder& operator=(UnfinishedFolder&&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // Renames the folder to `output`. Error: kDataLoss.
  Status finish(const std::filesystem::path& output);

 private:
  explicit UnfinishedFolder(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;  // empty after finish() and after a move
};

// Copies the plain files of a model's folder, such as tokenizer, templates and licence, but neither
// config.json nor weights in any form. Error: kDataLoss.
Status copy_beside_weights(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace heddle::checkpoint
