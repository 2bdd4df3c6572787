// SPDX-License-Identifier: Apache-2.0
#include "core/file_presence.h"

#include <algorithm>
#include <cerrno>
#include <set>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/mutex.h"

namespace heddle {

namespace {

namespace fs = std::filesystem;

bool is_link(const fs::path& path) {
  struct stat info{};

  return ::lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
}

// The target of a symbolic link, resolved relative to the folder of the link.
fs::path target_of(const fs::path& link) {
  std::error_code error;
  return (link.parent_path() / fs::read_symlink(link, error)).lexically_normal();
}

// The command that downloads one file of a model again. The path in Hugging Face's cache contains
// the name of the model: models--OWNER--NAME/snapshots/REVISION/FILE.
std::string download_command(const fs::path& path) {
  constexpr std::string_view kPrefix = "models--";
  for (auto part = path.begin(); part != path.end(); ++part) {
    std::string name = part->string();
    const size_t mark = name.find("--", kPrefix.size());
    if (!name.starts_with(kPrefix) || mark == std::string::npos) continue;
    fs::path file;
    auto rest = part;
    for (int skipped = 0; skipped < 3 && rest != path.end(); ++skipped) ++rest;
    for (; rest != path.end(); ++rest) file /= *rest;
    name = name.substr(kPrefix.size()).replace(mark - kPrefix.size(), 2, "/");
    if (!file.empty()) return fmt::format("hf download {} {}", name, file.string());
  }
  return fmt::format("hf download OWNER/MODEL {} --local-dir {}", path.filename().string(),
                     path.parent_path().string());
}

// Whether the link has not been logged before.
bool is_news(const fs::path& path) {
  struct Logged {
    Mutex mutex;
    std::set<fs::path> links HEDDLE_GUARDED_BY(mutex);
  };

  static Logged logged;
  const MutexLock lock(logged.mutex);
  return logged.links.insert(path).second;
}

bool is_absence(int error) { return error == ENOENT || error == ENOTDIR; }

}  // namespace

Status cannot_open(const fs::path& path, int error) {
  if (is_absence(error) && is_link(path)) {
    return data_loss(
        fmt::format("{} is a link to {}, which does not exist; download it again: `{}`",
                    path.string(), target_of(path).string(), download_command(path)));
  }
  if (is_absence(error)) {
    return not_found(fmt::format("{} does not exist{}", path.string(),
                                 path.string().starts_with('~')
                                     ? "; the shell has not expanded its ~: write the whole path"
                                     : ""));
  }
  const std::string reason = std::generic_category().message(error);
  if (error == EACCES || error == EPERM) {
    return invalid_argument(fmt::format(
        "cannot open {}: {}; let the user that runs this program read it and enter its folders",
        path.string(), reason));
  }
  if (error == ELOOP) {
    return data_loss(
        fmt::format("{} is a link to {}, which leads back to it; download it again: `{}`",
                    path.string(), target_of(path).string(), download_command(path)));
  }
  return invalid_argument(fmt::format("cannot open {}: {}", path.string(), reason));
}

Result<bool> file_exists(const fs::path& path) {
  struct stat info{};

  if (::stat(path.c_str(), &info) != 0) {
    const int error = errno;
    if (is_absence(error) && !is_link(path)) return false;
    return cannot_open(path, error);
  }
  // A folder that may be entered can be used even if it cannot be listed.
  const int wanted = S_ISDIR(info.st_mode) ? F_OK : R_OK;
  if (::faccessat(AT_FDCWD, path.c_str(), wanted, AT_EACCESS) != 0) return cannot_open(path, errno);
  return true;
}

Result<bool> optional_file_exists(const fs::path& path) {
  Result<bool> exists = file_exists(path);
  if (exists.ok() || exists.status().code() != StatusCode::kDataLoss) return exists;
  if (is_news(path)) {
    log_warning(fmt::format("{} is a link to {}, which is not there; the file counts as missing",
                            path.string(), target_of(path).string()));
  }
  return false;
}

Result<std::vector<std::string>> names_in_folder(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator files(folder, error);
  for (; !error && files != fs::directory_iterator(); files.increment(error)) {
    names.push_back(files->path().filename().string());
  }
  if (error) return cannot_open(folder, error.value());
  std::ranges::sort(names);
  return names;
}

}  // namespace heddle
