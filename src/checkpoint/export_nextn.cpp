// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/export_nextn.h"

#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/config_reader.h"
#include "checkpoint/model_output.h"
#include "checkpoint/nextn_layer.h"
#include "checkpoint/unfinished_folder.h"
#include "core/log.h"

namespace heddle::checkpoint {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kConfigFile = "config.json";
constexpr const char* kTensorFile = "nextn_layer_parameters.safetensors";

// Writes JSON with sorted keys and UTF-8 text.
Status write_json(const fs::path& path, const json& value) {
  return write_text(
      path, value.dump(2, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace) + '\n');
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

// Writes the draft to `folder`, which is renamed to `output` later.
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
  HEDDLE_ASSIGN_OR_RETURN(const fs::path target, check_output(output));
  HEDDLE_ASSIGN_OR_RETURN(const CheckpointFiles files, CheckpointFiles::open(model_dir));
  for (const std::string& note : files.notes()) log_warning(note);
  HEDDLE_ASSIGN_OR_RETURN(const json config, read_config(model_dir / kConfigFile));
  const std::vector<std::string_view> hub_names = files.names();
  const Result<NextnLayer> layer = find_nextn_layer(config, hub_names);
  if (!layer.ok()) return layer.status().with_context(model_dir.string());
  const Result<json> draft = draft_config(config, *layer);
  if (!draft.ok()) return draft.status().with_context((model_dir / kConfigFile).string());

  HEDDLE_ASSIGN_OR_RETURN(UnfinishedFolder folder, UnfinishedFolder::create(target));
  HEDDLE_RETURN_IF_ERROR(copy_beside_weights(model_dir, folder.path()));
  HEDDLE_ASSIGN_OR_RETURN(
      NextnExport report,
      write_draft(folder.path(), *draft, draft_tensors(files, *layer), on_progress));
  HEDDLE_RETURN_IF_ERROR(folder.finish());
  return report;
}

}  // namespace heddle::checkpoint
