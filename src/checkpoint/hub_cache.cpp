// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hub_cache.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "checkpoint/gguf_model.h"
#include "checkpoint/mapped_file.h"
#include "core/file_presence.h"

namespace heddle::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "models--";
constexpr std::string_view kSeparator = "--";
constexpr int64_t kMaxRefBytes = 256;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The folder that an environment variable names; "~" is replaced by the home folder, as in the
// Python libraries.
fs::path folder_in(const char* name) {
  const std::string value = variable(name);
  if (value != "~" && !value.starts_with("~/")) return value;
  return fs::path(variable("HOME") + value.substr(1));
}

// "Qwen/Qwen3-0.6B" for "models--Qwen--Qwen3-0.6B"; empty for any other name.
std::string repository_of(std::string_view folder_name) {
  if (!folder_name.starts_with(kPrefix)) return {};
  std::string name(folder_name.substr(kPrefix.size()));
  if (const size_t at = name.find(kSeparator); at != std::string::npos) {
    name.replace(at, kSeparator.size(), "/");
  }
  return name;
}

// The inverse of repository_of(); empty if `name` is not a repository's name. Old models have no
// owner: "gpt2".
std::string folder_name_of(const std::string& name) {
  if (!repository_of(name).empty()) return name;
  if (name.empty() || name[0] == '.' || name[0] == '/' || name[0] == '~') return {};
  if (std::ranges::count(name, '/') > 1 || name.ends_with('/')) return {};
  std::string folder(kPrefix);
  folder += name;
  if (const size_t slash = folder.find('/'); slash != std::string::npos) {
    folder.replace(slash, 1, kSeparator);
  }
  return folder;
}

std::string download_command(const std::string& repository) {
  return fmt::format("`hf download {}`", repository);
}

std::vector<fs::path> folders_in(const fs::path& parent) {
  std::vector<fs::path> folders;
  const Result<std::vector<std::string>> names = names_in_folder(parent);
  if (!names.ok()) return folders;
  for (const std::string& name : *names) {
    std::error_code error;
    if (fs::is_directory(parent / name, error)) folders.push_back(parent / name);
  }
  return folders;
}

// The snapshot to use in `repository`, a folder models--OWNER--NAME.
Result<fs::path> snapshot_of(const fs::path& repository) {
  const std::string name = repository_of(repository.filename().string());
  const std::vector<fs::path> snapshots = folders_in(repository / "snapshots");
  const auto not_whole = [&](const std::string& found) {
    return not_found(fmt::format("{} in {} was not downloaded to its end: {}; {} goes on", name,
                                 repository.parent_path().string(), found, download_command(name)));
  };
  if (snapshots.empty()) return not_whole("it has no snapshot");
  fs::path chosen = snapshots.front();
  HEDDLE_ASSIGN_OR_RETURN(const bool has_ref, file_exists(repository / "refs" / "main"));
  if (has_ref) {
    HEDDLE_ASSIGN_OR_RETURN(std::string commit,
                            read_text_file(repository / "refs" / "main", kMaxRefBytes));
    while (!commit.empty() && commit.back() <= ' ') commit.pop_back();
    const auto found = std::ranges::find(
        snapshots, commit, [](const fs::path& snapshot) { return snapshot.filename().string(); });
    if (found == snapshots.end()) return not_whole("the snapshot of refs/main is missing");
    chosen = *found;
  } else if (snapshots.size() > 1) {
    return invalid_argument(
        fmt::format("{} has {} snapshots and no refs/main; name the folder of one, as {}",
                    repository.string(), snapshots.size(), snapshots.front().string()));
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<std::string> files, names_in_folder(chosen));
  if (files.empty()) return not_whole("its snapshot is empty");
  return chosen;
}

}  // namespace

fs::path hub_cache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const fs::path cache = folder_in(name); !cache.empty()) return cache;
  }
  if (const fs::path home = folder_in("HF_HOME"); !home.empty()) return home / "hub";
  if (const fs::path cache = folder_in("XDG_CACHE_HOME"); !cache.empty()) {
    return cache / "huggingface" / "hub";
  }
  const fs::path home = variable("HOME");
  return home.empty() ? fs::path() : home / ".cache" / "huggingface" / "hub";
}

Result<fs::path> find_model(const std::string& name) {
  const fs::path path = name;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    const fs::path folder = path.has_filename() ? path : path.parent_path();
    const bool is_repository = !repository_of(folder.filename().string()).empty() &&
                               fs::is_directory(folder / "snapshots", error);
    return is_repository ? snapshot_of(folder) : Result<fs::path>(path);
  }
  const std::string folder_name = folder_name_of(name);
  const fs::path cache = hub_cache();
  if (folder_name.empty() || cache.empty() || fs::exists(path, error)) return path;
  const fs::path folder = cache / folder_name;
  return fs::is_directory(folder, error) ? snapshot_of(folder) : Result<fs::path>(path);
}

std::string model_name(const fs::path& folder) {
  // A file in the cache is a link to a blob with another name, so the link's name is used.
  if (folder.extension() == ".gguf") return gguf_model_name(folder);
  const fs::path whole = fs::weakly_canonical(folder);
  const fs::path snapshots = whole.parent_path();
  const std::string repository = snapshots.filename() == "snapshots"
                                     ? repository_of(snapshots.parent_path().filename().string())
                                     : "";
  return repository.empty() ? whole.filename().string() : repository;
}

std::vector<CachedModel> cached_models() {
  std::vector<CachedModel> models;
  for (const fs::path& folder : folders_in(hub_cache())) {
    CachedModel model{.name = repository_of(folder.filename().string())};
    if (model.name.empty()) continue;
    if (const Result<fs::path> snapshot = snapshot_of(folder); snapshot.ok()) {
      model.folder = *snapshot;
      std::error_code error;
      for (auto file = fs::recursive_directory_iterator(model.folder, error);
           !error && file != fs::recursive_directory_iterator(); file.increment(error)) {
        std::error_code unreadable;
        const auto bytes = static_cast<int64_t>(file->file_size(unreadable));
        if (!unreadable) model.bytes += bytes;
      }
    }
    models.push_back(std::move(model));
  }
  return models;
}

}  // namespace heddle::checkpoint
