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
  // `output` is the final folder, which check_output() has accepted. Errors: kNotFound
  // if its parent folder does not exist, kDataLoss if the folder cannot be made.
  static Result<UnfinishedFolder> create(const std::filesystem::path& output);

  ~UnfinishedFolder();
  UnfinishedFolder(UnfinishedFolder&& other) noexcept;
  UnfinishedFolder& operator=(UnfinishedFolder&&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // Renames the folder to its final name. Error: kDataLoss.
  Status finish();

 private:
  UnfinishedFolder(std::filesystem::path path, std::filesystem::path output)
      : path_(std::move(path)), output_(std::move(output)) {}

  std::filesystem::path path_;  // empty after finish() and after a move
  std::filesystem::path output_;
};

}  // namespace heddle::checkpoint
