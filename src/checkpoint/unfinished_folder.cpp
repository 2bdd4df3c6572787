// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/unfinished_folder.h"

#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

namespace heddle::checkpoint {

namespace {

namespace fs = std::filesystem;

Status cannot_write(const fs::path& path, const std::error_code& error) {
  return data_loss(fmt::format("cannot write {}: {}", path.string(), error.message()));
}

}  // namespace

Result<UnfinishedFolder> UnfinishedFolder::create(const fs::path& output) {
  fs::path path = output;
  path += fmt::format(".{}.tmp", ::getpid());
  std::error_code error;
  fs::remove_all(path, error);  // remains of a killed process that had the same id
  const fs::path parent = fs::absolute(path, error).parent_path();
  if (!error && !fs::exists(parent, error) && !error) {
    return not_found(
        fmt::format("cannot write {}: there is no folder {}; create it, or write to "
                    "another folder",
                    output.string(), parent.string()));
  }
  if (!fs::create_directory(path, error)) return cannot_write(path, error);
  return UnfinishedFolder(std::move(path), output);
}

UnfinishedFolder::~UnfinishedFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

UnfinishedFolder::UnfinishedFolder(UnfinishedFolder&& other) noexcept
    : path_(std::move(other.path_)), output_(std::move(other.output_)) {
  other.path_.clear();
}

Status UnfinishedFolder::finish() {
  std::error_code error;
  fs::rename(path_, output_, error);
  if (error) return cannot_write(output_, error);
  path_.clear();
  return ok_status();
}

}  // namespace heddle::checkpoint
