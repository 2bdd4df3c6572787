// SPDX-License-Identifier: Apache-2.0
// StorageFolder: the folder in which the server stores files, and every operation that changes
// them. All operations go through DiskFaults, so that a test can end the process before any of
// them.
//
// - Only one process at a time uses a folder: `heddle.lock` in it is locked with flock() until the
//   process ends, however it ends.
// - Files are readable and writable by this user only (0600), and so are folders that are created
//   here (0700), whatever the umask is.
// - Symbolic links and anything else that is no regular file are ignored: they are neither listed
//   nor opened.
// - replace() writes a temporary file, syncs it and renames it: a reader sees the old text or the
//   new one. append() appends all of its bytes or, when the disk fails, none.
// - A permanent folder is synced to the disk, so that replace() and sync() survive a power failure.
//   A temporary folder is deleted with its server and never synced.
//
// Threading: thread-safe; a StorageFile is thread-compatible. All functions may wait for the disk.
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

// Simulates faults of the disk; tests derive from it.
//
// Threading: thread-safe.
class DiskFaults {
 public:
  virtual ~DiskFaults() = default;

  // Called before each disk operation. Returns 0 if it may happen, else the errno with which it
  // fails. `num_bytes` is the length of an append and may be lowered, but not to 0: only so many
  // bytes are appended, and the rest is the next operation, like a write() that is cut short.
  [[nodiscard]] virtual int before(DiskStep step, const std::string& name, size_t& num_bytes) = 0;
};

// The message "a file cannot be ACTION: REASON". The code is kResourceExhausted, and the message
// ends with the remedy, if the disk is full; it is kInternal for all other errors.
[[nodiscard]] Status disk_error(std::string_view action, int error);

class StorageFolder;

// A file open for appending.
class StorageFile {
 public:
  ~StorageFile();

  StorageFile(const StorageFile&) = delete;
  StorageFile& operator=(const StorageFile&) = delete;

  // Appends bytes. Error: disk_error(); the file is then as long as before.
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
  bool has_remains_ = false;  // bytes of a failed append remain at the end and could not be cut off
};

class StorageFolder {
 public:
  // Opens a folder and creates it if it is missing. Errors, both naming the path: kInvalidArgument
  // if it cannot be created or used; kUnavailable if another server uses it.
  static Result<std::unique_ptr<StorageFolder>> open(const std::filesystem::path& path,
                                                     std::shared_ptr<DiskFaults> faults);

  // Creates a folder among the system's temporary ones; it is deleted with this object.
  static Result<std::unique_ptr<StorageFolder>> make_temporary(std::shared_ptr<DiskFaults> faults);

  // Deletes temporary folders of servers of this user that were killed.
  static void remove_abandoned();

  ~StorageFolder();

  StorageFolder(const StorageFolder&) = delete;
  StorageFolder& operator=(const StorageFolder&) = delete;

  struct Entry {
    std::string name;
    int64_t num_bytes = 0;
  };

  // Lists the regular files, except the lock file, in no order.
  [[nodiscard]] Result<std::vector<Entry>> list() const;

  // Whether any file has this name, including symbolic links.
  [[nodiscard]] bool exists(const std::string& name) const;

  // Removes the permissions of other users from a file.
  void make_private(const std::string& name) const;

  // Creates a file. Error: disk_error(), also if a file of this name exists.
  [[nodiscard]] Result<std::unique_ptr<StorageFile>> create(const std::string& name);

  // Opens an existing file for appending. Error: kNotFound.
  [[nodiscard]] Result<std::unique_ptr<StorageFile>> open_to_append(const std::string& name);

  // Writes a file as a whole; it replaces an existing file of this name.
  [[nodiscard]] Status replace(const std::string& name, std::string_view text);

  // Deletes a file; succeeds if the file does not exist.
  [[nodiscard]] Status remove(const std::string& name);

  // Opens a file for reading; null if it does not exist. The caller closes it.
  [[nodiscard]] std::FILE* open_for_reading(const std::string& name) const;

  // Reads a whole file. Error: kNotFound, or disk_error().
  [[nodiscard]] Result<std::string> read(const std::string& name) const;

  // Suffix of the files that replace() writes first.
  static constexpr std::string_view kTemporarySuffix = ".tmp";

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
  const std::shared_ptr<DiskFaults> faults_;  // null: no simulated faults
  int lock_ = -1;
  bool temporary_ = false;
};

}  // namespace heddle::server
