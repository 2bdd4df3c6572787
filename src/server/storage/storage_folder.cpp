// SPDX-License-Identifier: Apache-2.0
#include "server/storage/storage_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"

namespace heddle::server {
namespace {

constexpr const char* kLockName = "heddle.lock";
constexpr std::string_view kTemporaryPrefix = "heddle-files-";
constexpr mode_t kPrivateFile = S_IRUSR | S_IWUSR;
constexpr mode_t kPrivateFolder = S_IRWXU;
constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

Status unusable(const std::filesystem::path& path, int error) {
  return invalid_argument(
      fmt::format("the folder {} cannot be used: {}; name one that this user may write to",
                  path.string(), std::generic_category().message(error)));
}

// Creates folders like `mkdir -p`, accessible by this user only. Returns an errno.
int make_private_folders(const std::filesystem::path& path) {
  std::filesystem::path made;
  for (const std::filesystem::path& part : path) {
    made /= part;
    if (::mkdir(made.c_str(), kPrivateFolder) == 0 || errno == EEXIST) continue;
    const int error = errno;
    struct stat found{};
    if (::stat(made.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) return error;
  }
  return 0;
}

// The names in a folder, without "." and "..".
Result<std::vector<std::string>> names_in(int folder) {
  const int own = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const entries = own < 0 ? nullptr : ::fdopendir(own);
  if (entries == nullptr) {
    const int error = errno;
    if (own >= 0) ::close(own);
    return disk_error("listed", error);
  }
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* const entry = ::readdir(entries)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  const int error = errno;
  ::closedir(entries);
  if (error != 0) return disk_error("listed", error);
  return names;
}

// Opens the lock file of a folder and locks it. Returns its descriptor, or -1 with an errno, which
// is EWOULDBLOCK if another process holds the lock.
int take_lock(int folder, int flags) {
  const int descriptor =
      ::openat(folder, kLockName, O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags, kPrivateFile);
  if (descriptor < 0 || ::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
  const int error = errno;
  ::close(descriptor);
  errno = error;
  return -1;
}

// " (process 123)", the holder of the lock, or "" if the lock file does not name it.
std::string process_in_lock(int folder) {
  const int descriptor = ::openat(folder, kLockName, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  char text[32] = {};
  const ssize_t count = descriptor < 0 ? 0 : ::read(descriptor, text, sizeof(text) - 1);
  if (descriptor >= 0) ::close(descriptor);
  const long process = count > 0 ? std::strtol(text, nullptr, 10) : 0;
  return process > 0 ? fmt::format(" (process {})", process) : "";
}

// Deletes the files in a folder, and the folder if nothing else is in it.
void remove_flat_folder(int folder, const std::filesystem::path& path) {
  const auto names = names_in(folder);
  if (!names.ok()) return;
  for (const std::string& name : *names) ::unlinkat(folder, name.c_str(), 0);
  ::rmdir(path.c_str());
}

}  // namespace

Status disk_error(std::string_view action, int error) {
  const bool is_full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return {is_full ? StatusCode::kResourceExhausted : StatusCode::kInternal,
          fmt::format("a file cannot be {}: {}{}", action, std::generic_category().message(error),
                      is_full ? "; make room on the server's disk" : "")};
}

StorageFile::~StorageFile() { ::close(descriptor_); }

Status StorageFile::append(std::string_view bytes) {
  if (has_remains_) HEDDLE_RETURN_IF_ERROR(truncate(num_bytes_));
  const auto num_appended = static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    size_t count = bytes.size();
    int error = folder_.before(DiskStep::kAppend, name_, count);
    if (error == 0) {
      const ssize_t written = ::write(descriptor_, bytes.data(), count);
      if (written > 0) {
        bytes.remove_prefix(static_cast<size_t>(written));
        continue;
      }
      error = written == 0 ? ENOSPC : errno;
      if (error == EINTR) continue;
    }
    has_remains_ = !truncate(num_bytes_).ok();
    return disk_error("written", error);
  }
  num_bytes_ += num_appended;
  return ok_status();
}

Status StorageFile::truncate(int64_t num_bytes) {
  if (const int error = folder_.before(DiskStep::kTruncate, name_)) {
    return disk_error("cut", error);
  }
  if (::ftruncate(descriptor_, num_bytes) != 0) return disk_error("cut", errno);
  num_bytes_ = num_bytes;
  has_remains_ = false;
  return ok_status();
}

Status StorageFile::sync() {
  if (has_remains_) HEDDLE_RETURN_IF_ERROR(truncate(num_bytes_));
  if (folder_.temporary_) return ok_status();
  if (const int error = folder_.before(DiskStep::kSync, name_)) return disk_error("synced", error);
  return ::fdatasync(descriptor_) == 0 ? ok_status() : disk_error("synced", errno);
}

Result<std::unique_ptr<StorageFolder>> StorageFolder::open(const std::filesystem::path& path,
                                                           std::shared_ptr<DiskFaults> faults) {
  if (const int error = make_private_folders(path)) return unusable(path, error);
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return unusable(path, errno);
  std::unique_ptr<StorageFolder> folder(new StorageFolder(path, descriptor, std::move(faults)));
  struct stat found{};
  if (::fstat(descriptor, &found) == 0 && (found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    log_warning(fmt::format("Other users may change what is stored in {}; `chmod 700 {}` ends that",
                            path.string(), path.string()));
  }
  HEDDLE_RETURN_IF_ERROR(folder->lock());
  return folder;
}

Result<std::unique_ptr<StorageFolder>> StorageFolder::make_temporary(
    std::shared_ptr<DiskFaults> faults) {
  std::error_code error;
  std::string name =
      (std::filesystem::temp_directory_path(error) / fmt::format("{}XXXXXX", kTemporaryPrefix))
          .string();
  if (error) return disk_error("stored", error.value());
  if (::mkdtemp(name.data()) == nullptr) return disk_error("stored", errno);
  auto folder = open(name, std::move(faults));
  if (folder.ok()) {
    (*folder)->temporary_ = true;
  } else {
    ::rmdir(name.c_str());
  }
  return folder;
}

// A folder whose lock is free belongs to no running server. A folder without a lock file belongs to
// another program, or is just being created.
void StorageFolder::remove_abandoned() {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  if (error) return;
  for (std::filesystem::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::filesystem::path& path = entry->path();
    if (!path.filename().string().starts_with(kTemporaryPrefix)) continue;
    const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0) continue;
    struct stat found{};
    const bool is_own = ::fstat(folder, &found) == 0 && found.st_uid == ::geteuid();
    const int lock = is_own ? take_lock(folder, 0) : -1;
    if (lock >= 0) {
      remove_flat_folder(folder, path);
      log_info(fmt::format("{} was removed: the server that made it was killed", path.string()));
      ::close(lock);
    }
    ::close(folder);
  }
}

StorageFolder::~StorageFolder() {
  if (temporary_) remove_flat_folder(descriptor_, path_);
  if (lock_ >= 0) ::close(lock_);
  ::close(descriptor_);
}

Status StorageFolder::lock() {
  lock_ = take_lock(descriptor_, O_CREAT);
  if (lock_ < 0 && errno == EWOULDBLOCK) {
    return unavailable(
        fmt::format("the folder {} is in use by another server{}; stop that one, or give this one "
                    "another folder",
                    path_.string(), process_in_lock(descriptor_)));
  }
  if (lock_ < 0) {
    const int error = errno;
    const bool cannot_lock = error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS;
    if (!cannot_lock) return unusable(path_, error);
    log_warning(fmt::format("{} cannot be locked ({}): no other server may use it", path_.string(),
                            std::generic_category().message(error)));
    return ok_status();
  }
  // Written only for the error message of another process, so a failure does no harm.
  const std::string process = fmt::format("{}\n", ::getpid());
  if (::ftruncate(lock_, 0) != 0 || ::pwrite(lock_, process.data(), process.size(), 0) < 0) {
    log_debug("The lock of the storage folder does not name its process");
  }
  return ok_status();
}

int StorageFolder::before(DiskStep step, const std::string& name, size_t& num_bytes) const {
  return faults_ == nullptr ? 0 : faults_->before(step, name, num_bytes);
}

int StorageFolder::before(DiskStep step, const std::string& name) const {
  size_t none = 0;
  return before(step, name, none);
}

// Opens a regular file. Returns its descriptor, or -1 with an errno. Never blocks, even on a pipe.
int StorageFolder::open_file(const std::string& name, int flags) const {
  const int descriptor = ::openat(descriptor_, name.c_str(),
                                  flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, kPrivateFile);
  if (descriptor < 0) return -1;
  struct stat found{};
  if (::fstat(descriptor, &found) == 0 && S_ISREG(found.st_mode)) return descriptor;
  ::close(descriptor);
  errno = ENOENT;
  return -1;
}

Result<std::vector<StorageFolder::Entry>> StorageFolder::list() const {
  HEDDLE_ASSIGN_OR_RETURN(std::vector<std::string> names, names_in(descriptor_));
  std::vector<Entry> entries;
  for (std::string& name : names) {
    struct stat found{};
    if (name == kLockName ||
        ::fstatat(descriptor_, name.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(found.st_mode)) {
      continue;
    }
    entries.push_back({.name = std::move(name), .num_bytes = found.st_size});
  }
  return entries;
}

bool StorageFolder::exists(const std::string& name) const {
  struct stat found{};
  return ::fstatat(descriptor_, name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0;
}

void StorageFolder::make_private(const std::string& name) const {
  struct stat found{};
  if (::fstatat(descriptor_, name.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0 ||
      (found.st_mode & kOthers) == 0) {
    return;
  }
  const int descriptor = open_file(name, O_RDONLY);
  if (descriptor < 0) return;
  if (::fchmod(descriptor, kPrivateFile) != 0) {
    log_warning(fmt::format("Other users may read {}: {}", (path_ / name).string(),
                            std::generic_category().message(errno)));
  }
  ::close(descriptor);
}

Result<std::unique_ptr<StorageFile>> StorageFolder::create(const std::string& name) {
  if (const int error = before(DiskStep::kCreate, name)) return disk_error("made", error);
  const int descriptor = open_file(name, O_WRONLY | O_APPEND | O_CREAT | O_EXCL);
  if (descriptor < 0) return disk_error("made", errno);
  return std::unique_ptr<StorageFile>(new StorageFile(*this, name, descriptor, 0));
}

Result<std::unique_ptr<StorageFile>> StorageFolder::open_to_append(const std::string& name) {
  const int descriptor = open_file(name, O_WRONLY | O_APPEND);
  struct stat found{};
  if (descriptor < 0 || ::fstat(descriptor, &found) != 0) {
    const int error = errno;
    if (descriptor >= 0) ::close(descriptor);
    return error == ENOENT || error == ELOOP ? not_found(fmt::format("there is no file {}", name))
                                             : disk_error("opened", error);
  }
  return std::unique_ptr<StorageFile>(new StorageFile(*this, name, descriptor, found.st_size));
}

Status StorageFolder::replace(const std::string& name, std::string_view text) {
  const std::string temporary = name + std::string(kTemporarySuffix);
  const auto write_and_rename = [&]() -> Status {
    // The temporary file exists if an earlier replace() was cut short.
    if (exists(temporary)) HEDDLE_RETURN_IF_ERROR(remove(temporary));
    HEDDLE_ASSIGN_OR_RETURN(const auto file, create(temporary));
    HEDDLE_RETURN_IF_ERROR(file->append(text));
    HEDDLE_RETURN_IF_ERROR(file->sync());
    if (const int error = before(DiskStep::kRename, name)) return disk_error("renamed", error);
    if (::renameat(descriptor_, temporary.c_str(), descriptor_, name.c_str()) != 0) {
      return disk_error("renamed", errno);
    }
    return ok_status();
  };
  const Status written = write_and_rename();
  if (!written.ok()) {
    static_cast<void>(remove(temporary));  // the first error is returned, so this one is ignored
    return written;
  }
  return sync_folder();
}

Status StorageFolder::remove(const std::string& name) {
  if (const int error = before(DiskStep::kRemove, name)) return disk_error("removed", error);
  if (::unlinkat(descriptor_, name.c_str(), 0) == 0 || errno == ENOENT) return ok_status();
  return disk_error("removed", errno);
}

std::FILE* StorageFolder::open_for_reading(const std::string& name) const {
  const int descriptor = open_file(name, O_RDONLY);
  if (descriptor < 0) return nullptr;
  std::FILE* const stream = ::fdopen(descriptor, "rb");
  if (stream == nullptr) ::close(descriptor);
  return stream;
}

Result<std::string> StorageFolder::read(const std::string& name) const {
  std::FILE* const stream = open_for_reading(name);
  if (stream == nullptr) return not_found(fmt::format("there is no file {}", name));
  std::string text;
  char buffer[1 << 16];
  size_t count = 0;
  while ((count = std::fread(buffer, 1, sizeof(buffer), stream)) > 0) text.append(buffer, count);
  const bool failed = std::ferror(stream) != 0;
  const int error = errno;
  std::fclose(stream);
  if (failed) return disk_error("read", error);
  return text;
}

Status StorageFolder::sync_folder() {
  if (temporary_) return ok_status();
  if (const int error = before(DiskStep::kSync, ".")) return disk_error("synced", error);
  return ::fsync(descriptor_) == 0 ? ok_status() : disk_error("synced", errno);
}

}  // namespace heddle::server
