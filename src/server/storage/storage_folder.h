// SPDX-License-Identifier: Apache-2.0
// StorageFolder: the folder in which the server keeps files, and every step by which it changes
// them. All steps go through DiskFaults, so that a test can end the process before any of them.
//
// - One process at a time uses a folder: `heddle.lock` in it is locked with flock() until the
//   process ends, however it ends.
// - Files are readable and writable by this user alone (0600), as are folders that are made here
//   (0700), whatever the umask is.
// - Symbolic links and anything else that is no regular file are not there for it: they are neither
//   listed nor opened.
// - replace() writes a temporary file, syncs it and renames it: a reader finds the old text or the
//   new one. append() leaves all of its bytes or, when the disk fails, none.
// - A folder that is kept is synced to the disk, so that replace() and sync() outlast a power
//   failure. A temporary folder goes with its server and is never synced.
//
// Threading: thread-safe; a StorageFile is thread-compatible. All functions wait for the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <heddle/status.h>

namespace heddle::server {

enum class DiskStep { kCreate, kAppend, kTruncate, kSync, kRename, kRemove };

// Tests derive from it.
//
// Threading: thread-safe.
class DiskFaults {
 public:
  virtual ~DiskFaults() = default;

  // Called before each step. Returns 0 when the step may happen, else the errno with which it
  // fails. `num_bytes` counts those of an append and may be lowered, not to 0: so many are
  // appended, and the others are the next step, as with a write() that is cut short.
  [[nodiscard]] virtual int before(DiskStep step, const std::string& name, size_t& num_bytes) = 0;
};

// kResourceExhausted: "a file cannot be ACTION: REASON", and the remedy where the disk is full.
[[nodiscard]] Status disk_error(std::string_view action, int error);

class StorageFolder;

// A file that is appended to.
class StorageFile {
 public:
  ~StorageFile();

  StorageFile(const StorageFile&) = delete;
  StorageFile& operator=(const StorageFile&) = delete;

  // Error: kResourceExhausted; the file is as long as before.
  [[nodiscard]] Status append(std::string_view bytes);
  [[nodiscard]] Status truncate(int64_t num_bytes);
  [[nodiscard]] Status sync();

  [[nodiscard]] int64_t num_bytes() const { return num_bytes_; }

 private:
  friend class StorageFolder;

  StorageFile(StorageFolder& folder, std::string name, int descriptor, int64_t num_bytes)
      : folder_(folder), name_(std::move(name)), descriptor_(descriptor), num_bytes_(num_bytes) {}

  StorageFolder& folder_;
  const std::string name_;
  const int descriptor_;
  int64_t num_bytes_;
  bool has_remains_ = false;  // of an append that failed and could not be cut off
};

class StorageFolder {
 public:
  // Makes the folder where it is missing. Error: kInvalidArgument, it cannot be made or used;
  // kUnavailable, another server uses it. Both name the path.
  static Result<std::unique_ptr<StorageFolder>> open(const std::filesystem::path& path,
                                                     std::shared_ptr<DiskFaults> faults);

  // A new folder among the system's temporary ones, removed with this object.
  static Result<std::unique_ptr<StorageFolder>> make_temporary(std::shared_ptr<DiskFaults> faults);

  // Removes the temporary folders of this user's servers that were killed.
  static void remove_abandoned();

  ~StorageFolder();

  StorageFolder(const StorageFolder&) = delete;
  StorageFolder& operator=(const StorageFolder&) = delete;

  struct Entry {
    std::string name;
    int64_t num_bytes = 0;
  };

  // The regular files, the lock excepted, in no order.
  [[nodiscard]] Result<std::vector<Entry>> list() const;

  // Whether anything has the name, a symbolic link included.
  [[nodiscard]] bool exists(const std::string& name) const;

  // Takes a file's rights from everyone but this user, where others have some.
  void make_private(const std::string& name) const;

  // Error: kResourceExhausted; a file of this name is there, or the disk fails.
  [[nodiscard]] Result<std::unique_ptr<StorageFile>> create(const std::string& name);

  // Error: kNotFound.
  [[nodiscard]] Result<std::unique_ptr<StorageFile>> open_to_append(const std::string& name);

  // Writes a file whole, in the place of one of this name.
  [[nodiscard]] Status replace(const std::string& name, std::string_view text);

  // A file that is not there is removed.
  [[nodiscard]] Status remove(const std::string& name);

  // Null when it is not there. The caller closes it.
  [[nodiscard]] std::FILE* open_for_reading(const std::string& name) const;

  // Error: kNotFound, or kResourceExhausted when the disk fails.
  [[nodiscard]] Result<std::string> read(const std::string& name) const;

  static constexpr std::string_view kTemporarySuffix = ".tmp";  // of replace()

 private:
  friend class StorageFile;

  StorageFolder(std::filesystem::path path, int descriptor, std::shared_ptr<DiskFaults> faults)
      : path_(std::move(path)), descriptor_(descriptor), faults_(std::move(faults)) {}

  [[nodiscard]] Status lock();
  [[nodiscard]] int before(DiskStep step, const std::string& name, size_t& num_bytes) const;
  [[nodiscard]] int before(DiskStep step, const std::string& name) const;
  [[nodiscard]] int open_file(const std::string& name, int flags) const;
  [[nodiscard]] Status sync_folder();

  const std::filesystem::path path_;
  const int descriptor_;
  const std::shared_ptr<DiskFaults> faults_;  // null: none
  int lock_ = -1;
  bool temporary_ = false;
};

}  // namespace heddle::server
