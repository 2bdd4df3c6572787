// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/unfinished_folder.h"

#include <algorithm>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "checkpoint/checkpoint_files.h"
#include "core/file_presence.h"
#include "core/log.h"

namespace heddle::checkpoint {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeightExtensions[] = {".safetensors", ".bin",     ".pth", ".pt",
                                                  ".gguf",        ".msgpack", ".h5",  ".onnx"};

Status cannot_write(const fs::path& path, const std::error_code& error) {
  return data_loss(fmt::format("cannot write {}: {}", path.string(), error.message()));
}

}  // namespace

Result<fs::path> UnfinishedFolder::check_output(const fs::path& output) {
  fs::path folder = output.lexically_normal();
  // a path with a slash at its end: "out/"
  if (!folder.has_filename()) folder = folder.parent_path();
  if (folder.empty()) return invalid_argument("the output has no name; name the folder to make");
  std::error_code error;
  if (!fs::exists(fs::symlink_status(folder, error))) return folder;
  return invalid_argument(
      fmt::format("{} exists; remove it or name another folder", folder.string()));
}

Result<UnfinishedFolder> UnfinishedFolder::create(const fs::path& output) {
  fs::path path = output;
  path += fmt::format(".{}.tmp", ::getpid());
  std::error_code error;
  fs::remove_all(path, error);  // remains of a killed process that had the same id
  if (!fs::create_directory(path, error)) return cannot_write(path, error);
  return UnfinishedFolder(std::move(path));
}

UnfinishedFolder::~UnfinishedFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

UnfinishedFolder::UnfinishedFolder(UnfinishedFolder&& other) noexcept
    : path_(std::move(other.path_)) {
  other.path_.clear();
}

Status UnfinishedFolder::finish(const fs::path& output) {
  std::error_code error;
  fs::rename(path_, output, error);
  if (error) return cannot_write(output, error);
  path_.clear();
  return ok_status();
}

Status copy_beside_weights(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::directory_iterator files(from, error);
  for (; !error && files != fs::directory_iterator(); files.increment(error)) {
    const fs::path name = files->path().filename();
    if (name == "config.json" || name == kIndexFile ||
        std::ranges::find(kWeightExtensions, name.extension().string()) !=
            std::end(kWeightExtensions)) {
      continue;
    }
    if (const Status gone = file_exists(files->path()).status(); !gone.ok()) {
      log_warning(fmt::format("not copied to {}: {}", to.string(), gone.message()));
      continue;
    }
    if (!files->is_regular_file(error)) continue;
    if (!fs::copy_file(files->path(), to / name, error)) return cannot_write(to / name, error);
  }
  if (!error) return ok_status();
  return data_loss(fmt::format("cannot read {}: {}", from.string(), error.message()));
}

}  // namespace heddle::checkpoint
