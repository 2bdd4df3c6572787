// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/model_output.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_files.h"
#include "core/file_presence.h"
#include "core/log.h"

namespace heddle::checkpoint {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeightExtensions[] = {".safetensors", ".bin",     ".pth", ".pt",
                                                  ".gguf",        ".msgpack", ".h5",  ".onnx"};

}  // namespace

Result<fs::path> check_output(const fs::path& output) {
  fs::path folder = output.lexically_normal();
  // a path with a slash at its end: "out/"
  if (!folder.has_filename()) folder = folder.parent_path();
  if (folder.empty()) return invalid_argument("the output has no name; name the folder to make");
  std::error_code error;
  if (!fs::exists(fs::symlink_status(folder, error))) return folder;
  return invalid_argument(
      fmt::format("{} exists; remove it or name another folder", folder.string()));
}

std::string shard_name(size_t index, size_t num_shards) {
  if (num_shards == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, num_shards);
}

Status write_text(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return ok_status();
  return data_loss(fmt::format("cannot write {}: folder missing or disk full", path.string()));
}

Status write_index(const fs::path& folder, const std::map<std::string, std::string>& shards,
                   int64_t num_bytes) {
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", num_bytes}}},
                                        {"weight_map", shards}};
  return write_text(folder / kIndexFile, index.dump(1));
}

Status copy_beside_weights(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::directory_iterator files(from, error);
  for (; !error && files != fs::directory_iterator(); files.increment(error)) {
    const fs::path name = files->path().filename();
    if (name == "config.json" || name.string().ends_with(".index.json") ||
        std::ranges::find(kWeightExtensions, name.extension().string()) !=
            std::end(kWeightExtensions)) {
      continue;
    }
    if (const Status gone = file_exists(files->path()).status(); !gone.ok()) {
      log_warning(fmt::format("not copied to {}: {}", to.string(), gone.message()));
      continue;
    }
    if (!files->is_regular_file(error)) continue;
    fs::copy_file(files->path(), to / name, fs::copy_options::overwrite_existing, error);
    if (error) {
      return data_loss(fmt::format("cannot write {}: {}", (to / name).string(), error.message()));
    }
  }
  if (!error) return ok_status();
  return data_loss(fmt::format("cannot read {}: {}", from.string(), error.message()));
}

}  // namespace heddle::checkpoint
