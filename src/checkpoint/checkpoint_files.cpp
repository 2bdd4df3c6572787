// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint_files.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <simdjson.h>

#include "checkpoint/convert.h"
#include "checkpoint/readable.h"

namespace heddle::checkpoint {

namespace {

constexpr std::string_view kSingleFile = "model.safetensors";

struct IndexEntry {
  std::string tensor;
  std::string file;
};

// A file of the index must lie in the model's own folder.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

Result<std::vector<IndexEntry>> parse_index(const std::string& text) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (const auto error = parser.parse(text).get(root)) {
    return data_loss(fmt::format("not valid JSON: {}", simdjson::error_message(error)));
  }
  simdjson::dom::object map;
  if (root["weight_map"].get(map) != simdjson::SUCCESS) {
    return data_loss("has no object \"weight_map\"");
  }
  std::vector<IndexEntry> entries;
  for (const auto field : map) {
    std::string_view file;
    if (field.value.get(file) != simdjson::SUCCESS || !is_plain_file_name(file)) {
      return data_loss(
          fmt::format("weight_map gives tensor {} no plain file name", readable(field.key)));
    }
    entries.push_back({std::string(field.key), std::string(file)});
  }
  if (entries.empty()) return data_loss("weight_map is empty");
  return entries;
}

// Says what to do about it: shards without their index need only that.
Status missing_weights(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::directory_iterator files(folder, error);
  for (; !error && files != std::filesystem::directory_iterator(); files.increment(error)) {
    if (files->path().extension() != ".safetensors") continue;
    return not_found(
        fmt::format("{} has {} but no {} that says which tensor is where; download the index, too",
                    folder.string(), readable(files->path().filename().string()), kIndexFile));
  }
  return not_found(
      fmt::format("{} has neither {} nor {}; download the weights, or where a command has "
                  "--load-format, pass dummy to run without them",
                  folder.string(), kSingleFile, kIndexFile));
}

}  // namespace

Result<CheckpointFiles> CheckpointFiles::open(const std::filesystem::path& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return not_found(fmt::format("there is no folder {}", folder.string()));
  }
  CheckpointFiles files;
  const std::filesystem::path index_path = folder / kIndexFile;
  if (std::filesystem::exists(index_path, error)) {
    HEDDLE_RETURN_IF_ERROR(files.add_shards(folder, index_path));
    return files;
  }
  if (!std::filesystem::exists(folder / kSingleFile, error)) {
    return missing_weights(folder);
  }
  HEDDLE_RETURN_IF_ERROR(files.add_file(folder / kSingleFile));
  return files;
}

Status CheckpointFiles::add_file(const std::filesystem::path& path) {
  HEDDLE_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(path));
  const size_t index = files_.size();
  files_.push_back(std::move(file));
  file_names_.push_back(path.filename().string());
  locations_.reserve(locations_.size() + files_.back().tensors().size());
  for (const TensorEntry& entry : files_.back().tensors()) {
    const auto [found, added] = locations_.try_emplace(entry.name, Location{index, &entry});
    if (!added) {
      return data_loss(fmt::format("tensor {} is in {} and in {}", readable(entry.name),
                                   readable(file_names_[found->second.file]),
                                   readable(file_names_[index])));
    }
  }
  return ok_status();
}

Status CheckpointFiles::add_shards(const std::filesystem::path& folder,
                                   const std::filesystem::path& index_path) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string text, read_text_file(index_path, kMaxHeaderBytes));
  Result<std::vector<IndexEntry>> parsed = parse_index(text);
  if (!parsed.ok()) return parsed.status().with_context(index_path.string());
  const std::vector<IndexEntry>& entries = *parsed;

  std::map<std::string_view, size_t> shards;  // sorted, so that files are opened in order
  for (const IndexEntry& entry : entries) shards.emplace(entry.file, 0);
  std::error_code error;
  for (auto& [shard, file] : shards) {
    if (!std::filesystem::exists(folder / shard, error)) {
      const auto user = std::find_if(entries.begin(), entries.end(),
                                     [&](const IndexEntry& entry) { return entry.file == shard; });
      return not_found(
          fmt::format("{}: shard {}, which should hold tensor {}, is missing; download "
                      "it again",
                      index_path.string(), readable(shard), readable(user->tensor)));
    }
  }
  for (auto& [shard, file] : shards) {
    file = files_.size();
    HEDDLE_RETURN_IF_ERROR(add_file(folder / shard));
  }

  for (const IndexEntry& entry : entries) {
    const auto found = locations_.find(entry.tensor);
    if (found == locations_.end() || found->second.file != shards.at(entry.file)) {
      return data_loss(fmt::format("{}: tensor {} is not in shard {}", index_path.string(),
                                   readable(entry.tensor), readable(entry.file)));
    }
  }
  return ok_status();
}

const TensorEntry* CheckpointFiles::entry(std::string_view name) const {
  const auto found = locations_.find(name);
  return found == locations_.end() ? nullptr : found->second.entry;
}

std::optional<StoredWeight> CheckpointFiles::find(const WeightRequest& request) const {
  const auto found = locations_.find(request.name);
  if (found == locations_.end()) return std::nullopt;
  const TensorEntry& entry = *found->second.entry;
  return StoredWeight{.name = entry.name,
                      .stored_dtype = entry.stored_dtype,
                      .dtype = entry.dtype,
                      .shape = entry.shape,
                      .data = files_[found->second.file].bytes(entry).data()};
}

std::vector<std::string_view> CheckpointFiles::names() const {
  std::vector<std::string_view> names;
  names.reserve(locations_.size());
  for (const SafetensorsFile& file : files_) {
    for (const TensorEntry& entry : file.tensors()) names.emplace_back(entry.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

int64_t CheckpointFiles::num_bytes() const {
  int64_t bytes = 0;
  for (const SafetensorsFile& file : files_) {
    for (const TensorEntry& entry : file.tensors()) bytes += entry.end - entry.begin;
  }
  return bytes;
}

void CheckpointFiles::read(const StoredWeight& weight, int64_t first, int64_t count, DType dtype,
                           void* target) const {
  const auto* bytes = static_cast<const std::byte*>(weight.data);
  convert_elements(bytes + bytes_of(*weight.dtype, first), *weight.dtype, target, dtype, count);
}

}  // namespace heddle::checkpoint
