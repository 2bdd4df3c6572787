// SPDX-License-Identifier: Apache-2.0
// FileStore: the files of /v1/files in a folder: each under an id that we made, with its
// description beside it. No name that a client chose becomes part of a path.
//
// With a folder of the operator's, files outlive the server. Without one they are in a temporary
// folder, made with the first file and removed with the store.
//
// Threading: thread-safe. add(), FileWriter and read() wait for the disk: call them on workers.
// Bounds:    kMaxFiles and `max_bytes`; a file beyond them is refused, none is removed for another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/status.h>

#include "core/mutex.h"

namespace heddle::server {

struct StoredFile {
  std::string id;  // "file-" and 32 digits
  std::string name;
  std::string purpose;
  std::string holder;  // name of the key that may see it; "" without one
  int64_t num_bytes = 0;
  int64_t created = 0;  // seconds since 1970
};

class FileStore;

// A file that is being written. It is in the store once finish() has returned, and leaves nothing
// behind otherwise.
//
// Threading: thread-compatible.
class FileWriter {
 public:
  ~FileWriter();

  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  // Error: kResourceExhausted when the store or the disk is full.
  [[nodiscard]] Status append(std::string_view bytes);
  [[nodiscard]] Result<StoredFile> finish();

 private:
  friend class FileStore;

  FileWriter(FileStore& store, StoredFile file, std::filesystem::path path, std::FILE* stream)
      : store_(store), file_(std::move(file)), path_(std::move(path)), stream_(stream) {}

  FileStore& store_;
  StoredFile file_;
  const std::filesystem::path path_;
  std::FILE* stream_;  // null once it is closed
  bool finished_ = false;
};

class FileStore {
 public:
  static constexpr size_t kMaxFiles = 10000;
  static constexpr size_t kMaxNameBytes = 255;

  // `folder` empty: a temporary one. Files that other servers left there are found again; those
  // that lack their description are not ours and stay as they are. Error: the folder cannot be made
  // or read.
  static Result<std::unique_ptr<FileStore>> open(const std::filesystem::path& folder,
                                                 int64_t max_bytes);
  ~FileStore();

  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  // `file` has name, purpose, holder and time. Error: as FileWriter::append().
  [[nodiscard]] Result<std::unique_ptr<FileWriter>> create(StoredFile file) HEDDLE_EXCLUDES(mutex_);
  [[nodiscard]] Result<StoredFile> add(StoredFile file, std::string_view bytes);

  [[nodiscard]] std::optional<StoredFile> find(const std::string& id, std::string_view holder) const
      HEDDLE_EXCLUDES(mutex_);

  // The oldest first.
  [[nodiscard]] std::vector<StoredFile> list(std::string_view holder) const HEDDLE_EXCLUDES(mutex_);

  // False: there is none. Readers that have it open read on.
  [[nodiscard]] bool remove(const std::string& id, std::string_view holder) HEDDLE_EXCLUDES(mutex_);

  // Null when it is gone. The caller closes it.
  [[nodiscard]] std::FILE* open_for_reading(const std::string& id) const HEDDLE_EXCLUDES(mutex_);

  [[nodiscard]] Result<std::string> read(const std::string& id) const;

 private:
  friend class FileWriter;

  FileStore(std::filesystem::path folder, int64_t max_bytes)
      : folder_(std::move(folder)), max_bytes_(max_bytes) {}

  Status load() HEDDLE_EXCLUDES(mutex_);
  Status make_folder() HEDDLE_REQUIRES(mutex_);
  Status reserve(int64_t num_bytes) HEDDLE_EXCLUDES(mutex_);
  void release(int64_t num_bytes) HEDDLE_EXCLUDES(mutex_);
  void put(StoredFile file) HEDDLE_EXCLUDES(mutex_);
  [[nodiscard]] std::filesystem::path path_of(const std::string& id) const HEDDLE_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::filesystem::path folder_ HEDDLE_GUARDED_BY(mutex_);  // empty: not made yet
  bool temporary_ HEDDLE_GUARDED_BY(mutex_) = false;
  const int64_t max_bytes_;
  int64_t num_bytes_ HEDDLE_GUARDED_BY(mutex_) = 0;  // of files, those in the making included
  size_t num_writers_ HEDDLE_GUARDED_BY(mutex_) = 0;
  std::map<std::string, StoredFile> files_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::server
