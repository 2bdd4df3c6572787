// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/export_nextn.h"

#include <fstream>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/config_reader.h"
#include "checkpoint/nextn_layer.h"
#include "core/file_presence.h"
#include "core/log.h"

namespace heddle::checkpoint {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kConfigFile = "config.json";
constexpr const char* kTensorFile = "nextn_layer_parameters.safetensors";

Status cannot_write(const fs::path& path, const std::error_code& error) {
  return data_loss(fmt::format("cannot write {}: {}", path.string(), error.message()));
}

// A folder next to the output that becomes the output, or is removed.
class UnfinishedFolder {
 public:
  static Result<UnfinishedFolder> create(const fs::path& output) {
    fs::path path = output;
    path += fmt::format(".{}.tmp", ::getpid());
    std::error_code error;
    fs::remove_all(path, error);  // left by a killed process that had the same id
    if (!fs::create_directory(path, error)) return cannot_write(path, error);
    return UnfinishedFolder(std::move(path));
  }

  ~UnfinishedFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }

  UnfinishedFolder(UnfinishedFolder&& other) noexcept : path_(std::move(other.path_)) {
    other.path_.clear();
  }

  UnfinishedFolder& operator=(UnfinishedFolder&&) = delete;

  [[nodiscard]] const fs::path& path() const { return path_; }

  Status finish(const fs::path& output) {
    std::error_code error;
    fs::rename(path_, output, error);
    if (error) return cannot_write(output, error);
    path_.clear();
    return ok_status();
  }

 private:
  explicit UnfinishedFolder(fs::path path) : path_(std::move(path)) {}

  fs::path path_;
};

// Keys sorted, text in UTF-8.
Status write_json(const fs::path& path, const json& value) {
  std::ofstream file(path, std::ios::binary);
  file << value.dump(2, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace) << '\n';
  file.close();
  if (file) return ok_status();
  return data_loss(fmt::format("cannot write {}: disk full", path.string()));
}

// Files that are neither weights nor written anew.
Status copy_other_files(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::directory_iterator files(from, error);
  for (; !error && files != fs::directory_iterator(); files.increment(error)) {
    const fs::path name = files->path().filename();
    if (name == kConfigFile || name == kIndexFile || name.extension() == ".safetensors") continue;
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

Result<json> read_config(const fs::path& path) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxConfigBytes));
  Result<json> config = parse_json_object(text);
  if (!config.ok()) return config.status().with_context(path.string());
  return config;
}

std::vector<StoredTensor> draft_tensors(const CheckpointFiles& files, const NextnLayer& layer) {
  std::vector<StoredTensor> tensors;
  for (const std::string_view hub_name : files.names()) {
    auto name = layer.draft_name(hub_name);
    if (!name) continue;
    const TensorEntry& entry = *files.entry(hub_name);
    const auto* data = static_cast<const std::byte*>(files.find({.name = hub_name})->data);
    tensors.push_back({.name = std::move(*name),
                       .stored_dtype = entry.stored_dtype,
                       .shape = entry.shape,
                       .bytes = {data, static_cast<size_t>(entry.end - entry.begin)}});
  }
  return tensors;
}

// `folder` is to become `output`.
Result<NextnExport> write_draft(const fs::path& folder, const json& config,
                                std::span<const StoredTensor> tensors,
                                const WriteProgress& on_progress) {
  NextnExport report{.architecture = config["architectures"][0].get<std::string>(),
                     .num_tensors = std::ssize(tensors)};
  json weight_map = json::object();
  for (const StoredTensor& tensor : tensors) {
    report.num_bytes += std::ssize(tensor.bytes);
    weight_map[tensor.name] = kTensorFile;
  }
  HEDDLE_RETURN_IF_ERROR(write_json(folder / kConfigFile, config));
  HEDDLE_RETURN_IF_ERROR(
      write_stored_safetensors(folder / kTensorFile, tensors, {{"format", "pt"}}, on_progress));
  HEDDLE_RETURN_IF_ERROR(write_json(
      folder / kIndexFile,
      {{"metadata", {{"total_size", report.num_bytes}}}, {"weight_map", std::move(weight_map)}}));
  return report;
}

}  // namespace

Result<NextnExport> export_nextn(const fs::path& model_dir, const fs::path& output,
                                 const WriteProgress& on_progress) {
  fs::path target = output.lexically_normal();
  if (!target.has_filename()) target = target.parent_path();  // "draft/"
  std::error_code error;
  if (fs::exists(fs::symlink_status(target, error))) {
    return invalid_argument(
        fmt::format("{} exists; remove it or name another folder", target.string()));
  }
  HEDDLE_ASSIGN_OR_RETURN(const CheckpointFiles files, CheckpointFiles::open(model_dir));
  for (const std::string& note : files.notes()) log_warning(note);
  HEDDLE_ASSIGN_OR_RETURN(const json config, read_config(model_dir / kConfigFile));
  const std::vector<std::string_view> hub_names = files.names();
  const Result<NextnLayer> layer = find_nextn_layer(config, hub_names);
  if (!layer.ok()) return layer.status().with_context(model_dir.string());
  const Result<json> draft = draft_config(config, *layer);
  if (!draft.ok()) return draft.status().with_context((model_dir / kConfigFile).string());

  HEDDLE_ASSIGN_OR_RETURN(UnfinishedFolder folder, UnfinishedFolder::create(target));
  HEDDLE_RETURN_IF_ERROR(copy_other_files(model_dir, folder.path()));
  HEDDLE_ASSIGN_OR_RETURN(
      NextnExport report,
      write_draft(folder.path(), *draft, draft_tensors(files, *layer), on_progress));
  HEDDLE_RETURN_IF_ERROR(folder.finish(target));
  return report;
}

}  // namespace heddle::checkpoint
