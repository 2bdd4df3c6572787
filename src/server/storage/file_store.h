// SPDX-License-Identifier: Apache-2.0
// FileStore: the files of /v1/files and the records of batches, in a folder. No name chosen by a
// client becomes part of a path.
//
// In a folder that the operator named, files outlive the server. Without one they are in a
// temporary folder, which is created with the first file and deleted with the store. The folder of
// a server that was killed is deleted when the next one starts.
//
// Names on disk (storage_folder.h says how each step is made safe):
//
//   file-HEX            the bytes of a file
//   file-HEX.json       its description: name, purpose, holder, time
//   batch_HEX.json      the record of a batch (batch_runner.h)
//   *.json.tmp          a description or record that is being written
//   heddle.lock         locked while a server runs on the folder
//
// A file is in the store once its description is on disk. The bytes are written and synced before
// it; when a file is deleted, the description is deleted first. A server that ends at any point
// therefore leaves, besides complete files and complete records, only:
//
//   .tmp files                    deleted at the next start
//   bytes without a description   an upload that was cut short, or a file that was being deleted:
//                                 deleted at the next start (remove_orphans()), unless an
//                                 unfinished batch appends to them: then they stay and count
//   a description without bytes   only if a power failure undid a removal: deleted
//
// Files with names of this scheme that cannot be read are named in the log, stay unchanged and
// count as bytes. Files with other names are ignored.
//
// Threading: thread-safe. add(), FileWriter, read() and all functions that change records wait for
//            the disk: call them on workers.
// Bounds:    kMaxFiles and `max_bytes`, and a share of each for the files of one holder. A file
//            beyond them is refused; no file is deleted to make space for another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/status.h>

#include "core/mutex.h"
#include "server/storage/storage_folder.h"

namespace heddle::server {

struct StoredFile {
  std::string id;  // "file-" and 32 hexadecimal digits
  std::string name;
  std::string purpose;
  std::string holder;  // name of the key that may see the file; "" without one
  int64_t num_bytes = 0;
  int64_t created = 0;  // when the file was created, seconds since 1970
};

class FileStore;

// A file that is being written. It is in the store once finish() has returned.
//
// Threading: thread-compatible.
class FileWriter {
 public:
  // Deletes a file that is not finished, unless it belongs to a batch: resume() finds that again.
  ~FileWriter();

  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  // Appends bytes. When this returns, they survive the end of the process. Error:
  // kResourceExhausted when the store, the holder's share or the disk is full, kInternal when the
  // disk fails; nothing is appended.
  [[nodiscard]] Status append(std::string_view bytes);

  // Cuts the file to `num_bytes`. finish() deletes an empty file.
  [[nodiscard]] Status truncate(int64_t num_bytes);

  [[nodiscard]] int64_t num_bytes() const { return file_.num_bytes; }

  // Syncs the file and writes its description. Error: disk_error(). A batch's file is then in
  // the store anyway, so that its answers can be read, but a later start finds it unfinished: call
  // it again.
  [[nodiscard]] Status finish();

  [[nodiscard]] const StoredFile& file() const { return file_; }

 private:
  friend class FileStore;

  FileWriter(FileStore& store, StoredFile file, std::unique_ptr<StorageFile> stream, bool is_kept)
      : store_(store), file_(std::move(file)), stream_(std::move(stream)), is_kept_(is_kept) {}

  FileStore& store_;
  StoredFile file_;
  const std::unique_ptr<StorageFile> stream_;
  const bool is_kept_;  // true: the destructor keeps an unfinished file, which belongs to a batch
  bool is_stored_ = false;  // true: the file is in the store; the writer no longer owns it
};

class FileStore {
 public:
  static constexpr int64_t kMaxFiles = 10000;
  static constexpr size_t kMaxNameBytes = 255;

  // Opens a folder; `folder` empty: a temporary one. Finds the files and records that other servers
  // left there. `share`: ServerOptions::storage_share(). Errors: those of StorageFolder::open().
  static Result<std::unique_ptr<FileStore>> open(const std::filesystem::path& folder,
                                                 int64_t max_bytes, double share = 1,
                                                 std::shared_ptr<DiskFaults> faults = nullptr);

  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  // A new id for a file that create() will make.
  [[nodiscard]] static std::string new_id();

  // Begins a file. `file` contains name, purpose, holder and time. If it contains an id too, it
  // belongs to a batch and outlives its writer. Errors: those of FileWriter::append().
  [[nodiscard]] Result<std::unique_ptr<FileWriter>> create(StoredFile file) HEDDLE_EXCLUDES(mutex_);
  [[nodiscard]] Result<StoredFile> add(StoredFile file, std::string_view bytes);

  // Continues a batch's file that an earlier server left; a finished one becomes unfinished again.
  // Error: kNotFound.
  [[nodiscard]] Result<std::unique_ptr<FileWriter>> resume(StoredFile file) HEDDLE_EXCLUDES(mutex_);

  [[nodiscard]] std::optional<StoredFile> find(const std::string& id, std::string_view holder) const
      HEDDLE_EXCLUDES(mutex_);

  // The files of a holder, the oldest first.
  [[nodiscard]] std::vector<StoredFile> list(std::string_view holder) const HEDDLE_EXCLUDES(mutex_);

  // Deletes a file; readers that have it open can read on. Returns false if there is no such file.
  [[nodiscard]] bool remove(const std::string& id, std::string_view holder) HEDDLE_EXCLUDES(mutex_);

  // Opens a file for reading, even while it is still written. Null if it was deleted. The caller
  // closes it.
  [[nodiscard]] std::FILE* open_for_reading(const std::string& id) const HEDDLE_EXCLUDES(mutex_);

  [[nodiscard]] Result<std::string> read(const std::string& id) const;

  // The records of batches, by the ids of their batches.
  [[nodiscard]] Status save_record(const std::string& id, std::string_view text)
      HEDDLE_EXCLUDES(mutex_);
  void remove_record(const std::string& id) HEDDLE_EXCLUDES(mutex_);
  // Reads all records; the text of a record that cannot be read is empty.
  [[nodiscard]] Result<std::map<std::string, std::string>> read_records() const
      HEDDLE_EXCLUDES(mutex_);

  // Deletes bytes without a description, except the files in `kept`. Called once, at the start.
  void remove_orphans(const std::set<std::string>& kept) HEDDLE_EXCLUDES(mutex_);

  [[nodiscard]] int64_t num_bytes() const HEDDLE_EXCLUDES(mutex_);

 private:
  friend class FileWriter;

  struct Usage {
    int64_t num_bytes = 0;  // includes unfinished files, as num_files does
    int64_t num_files = 0;
  };

  FileStore(int64_t max_bytes, double share, std::shared_ptr<DiskFaults> faults)
      : max_bytes_(max_bytes), share_(share), faults_(std::move(faults)) {}

  Status load(std::unique_ptr<StorageFolder> folder) HEDDLE_EXCLUDES(mutex_);
  void load_description(const std::string& id) HEDDLE_REQUIRES(mutex_);
  Status make_folder() HEDDLE_REQUIRES(mutex_);
  [[nodiscard]] StorageFolder* folder() const HEDDLE_EXCLUDES(mutex_);
  Status reserve(const std::string& holder, int64_t num_bytes, int64_t num_files)
      HEDDLE_EXCLUDES(mutex_);
  void release(const std::string& holder, int64_t num_bytes, int64_t num_files)
      HEDDLE_EXCLUDES(mutex_);
  void count(const std::string& holder, int64_t num_bytes, int64_t num_files)
      HEDDLE_REQUIRES(mutex_);
  void put(StoredFile file) HEDDLE_EXCLUDES(mutex_);
  void put_back(const StoredFile& file) HEDDLE_EXCLUDES(mutex_);

  const int64_t max_bytes_;
  const double share_;
  const std::shared_ptr<DiskFaults> faults_;
  mutable Mutex mutex_;
  // Null: the folder is not created yet.
  std::unique_ptr<StorageFolder> folder_ HEDDLE_GUARDED_BY(mutex_);
  Usage total_ HEDDLE_GUARDED_BY(mutex_);
  // Usage of each holder.
  std::map<std::string, Usage, std::less<>> usage_ HEDDLE_GUARDED_BY(mutex_);
  std::map<std::string, StoredFile> files_ HEDDLE_GUARDED_BY(mutex_);
  // Bytes of each file without a description, by its id.
  std::map<std::string, int64_t> orphans_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::server
