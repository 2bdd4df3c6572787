// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/model_folder.h"

#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "checkpoint/gguf_model.h"
#include "checkpoint/hub_cache.h"
#include "checkpoint/readable.h"
#include "core/file_presence.h"

namespace heddle::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDownload = "hf download OWNER/MODEL --local-dir FOLDER";

constexpr std::string_view kConfig = "config.json";

// Whether the folder has a config.json, readable or not: reading it reports the error.
bool has_config(const fs::path& folder) {
  const Result<bool> exists = file_exists(folder / kConfig);
  return !exists.ok() || *exists;
}

std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  const Result<std::vector<std::string>> names = names_in_folder(folder);
  if (!names.ok()) return entries;
  for (const std::string& name : *names) entries.push_back(folder / name);
  return entries;
}

// Whether `name` looks like a repository's: "Qwen/Qwen3-0.6B".
bool is_repository_name(const std::string& name) {
  const size_t slash = name.find('/');
  return slash != std::string::npos && slash > 0 && slash + 1 < name.size() &&
         name.find('/', slash + 1) == std::string::npos && name[0] != '.';
}

// Explains a "~" that was not expanded: a shell does that only at the beginning of a word, not in
// --model-path=~/model.
Status describe_home(const std::string& path) {
  const char* const home = std::getenv("HOME");
  const bool is_own = home != nullptr && (path.size() == 1 || path[1] == '/');
  const std::string meant = is_own ? home + path.substr(1) : "the whole path";
  return not_found(fmt::format("there is no folder {}: the shell has not expanded its ~; write {}",
                               path, meant));
}

Status describe_missing(const fs::path& path) {
  if (path.string().starts_with('~')) return describe_home(path.string());
  const size_t at = path.string().find('@');
  const std::string repository = path.string().substr(0, at);
  if (at != std::string::npos && is_repository_name(repository)) {
    return not_found(fmt::format(
        "there is no folder {}, and a model is named without a revision; `hf download {} "
        "--revision {} --local-dir FOLDER` brings this one into a folder, which you name then",
        path.string(), repository, path.string().substr(at + 1)));
  }
  if (is_repository_name(path.string())) {
    const size_t tag = path.string().find(':');  // a tag after the name, as in
                                                 // "ORG/NAME-GGUF:Q4_K_M"
    const std::string name = path.string().substr(0, tag);
    if (name.ends_with("-GGUF") || name.ends_with("-gguf")) {
      return not_found(fmt::format(
          "there is no folder {}; `hf download {} --include \"*{}*.gguf\"` brings a file into "
          "Hugging Face's cache, {}: name it {}, or name the model whose files are *.safetensors",
          path.string(), name, tag == std::string::npos ? "Q4_K_M" : path.string().substr(tag + 1),
          hub_cache().string(), name));
    }
    return not_found(fmt::format(
        "there is no folder {}, nor such a model in Hugging Face's cache, {}; `hf download {}` "
        "brings it there, with `--local-dir FOLDER` into a folder",
        path.string(), hub_cache().string(), name));
  }
  return not_found(
      fmt::format("there is no folder {}; name one with config.json, *.safetensors and "
                  "tokenizer.json in it, or a GGUF file",
                  path.string()));
}

Status describe_file(const fs::path& path) {
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (has_config(parent)) {
    return invalid_argument(fmt::format("{} is not a folder; name the one that it is in, {}",
                                        path.string(), parent.string()));
  }
  return invalid_argument(
      fmt::format("{} is not a folder; name one with config.json, *.safetensors and "
                  "tokenizer.json in it, or a GGUF file",
                  path.string()));
}

// The model folders among `entries`, also those that the Hugging Face cache nests more deeply.
std::vector<std::string> models_below(const std::vector<fs::path>& entries) {
  std::vector<std::string> models;
  for (const fs::path& entry : entries) {
    std::error_code error;
    if (!fs::is_directory(entry, error)) continue;
    if (has_config(entry)) models.push_back(entry.string());
    const fs::path snapshots = entry.filename() == "snapshots" ? entry : entry / "snapshots";
    for (const fs::path& snapshot : sorted_entries(snapshots)) {
      if (has_config(snapshot)) models.push_back(snapshot.string());
    }
  }
  return models;
}

Status describe_without_config(const fs::path& folder) {
  HEDDLE_RETURN_IF_ERROR(names_in_folder(folder).status());
  const std::vector<fs::path> entries = sorted_entries(folder);
  if (entries.empty()) {
    return not_found(
        fmt::format("{} is empty; download the model into it: `{}`", folder.string(), kDownload));
  }
  const std::vector<std::string> models = models_below(entries);
  if (!models.empty()) {
    return invalid_argument(fmt::format(
        "{} has no config.json, but is the folder of {}; name {}", folder.string(),
        models.size() == 1 ? "a model's folder" : fmt::format("{} models", models.size()),
        models.size() == 1 ? models.front() : "one of them, as " + models.front()));
  }
  const auto find = [&](std::string_view ending) -> std::string {
    for (const fs::path& entry : entries) {
      const std::string name = entry.filename().string();
      if (name.ends_with(ending)) return name;
    }
    return {};
  };
  if (!find("adapter_config.json").empty()) {
    return unimplemented(
        fmt::format("{} has no config.json, only adapter_config.json: an adapter without its "
                    "model; merge it into "
                    "the model (heddle merge MODEL {} OUT_DIR) and name that folder",
                    folder.string(), folder.string()));
  }
  if (!find("params.json").empty()) {
    return unimplemented(fmt::format(
        "{} has no config.json, only params.json: a layout of the model's maker, which is not "
        "served; download the model in Hugging Face layout with `{}`",
        folder.string(), kDownload));
  }
  return not_found(fmt::format(
      "{} has no config.json; name the folder of a model, or download the file again: `{}`",
      folder.string(), kDownload));
}

}  // namespace

Status check_model_folder(const fs::path& folder) {
  HEDDLE_ASSIGN_OR_RETURN(const bool exists, file_exists(folder));
  if (!exists) return describe_missing(folder);
  HEDDLE_ASSIGN_OR_RETURN(const std::optional<fs::path> gguf, find_gguf(folder));
  if (gguf) return ok_status();
  std::error_code error;
  if (!fs::is_directory(folder, error)) return describe_file(folder);
  HEDDLE_ASSIGN_OR_RETURN(const bool is_model, file_exists(folder / kConfig));
  return is_model ? ok_status() : describe_without_config(folder);
}

Status check_safetensors_folder(const fs::path& folder, std::string_view reader) {
  HEDDLE_RETURN_IF_ERROR(check_model_folder(folder));
  HEDDLE_ASSIGN_OR_RETURN(const std::optional<fs::path> gguf, find_gguf(folder));
  if (!gguf) return ok_status();
  return unimplemented(
      fmt::format("{} is a GGUF model, which {} does not read; name the folder of the model's "
                  "safetensors files",
                  gguf->string(), reader));
}

}  // namespace heddle::checkpoint
