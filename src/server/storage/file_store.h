// SPDX-License-Identifier: Apache-2.0
// FileStore: the files of /v1/files and the records of batches, in a folder. No name that a client
// chose becomes part of a path.
//
// With a folder of the operator's, files outlive the server. Without one they are in a temporary
// folder, made with the first file and removed with the store; that of a server that was killed is
// removed when the next one starts.
//
// On disk (storage_folder.h says how each step is made safe):
//
//   file-HEX            the bytes of a file
//   file-HEX.json       its description: name, purpose, holder, time
//   batch_HEX.json      the record of a batch (batch_runner.h)
//   *.json.tmp          a description or record that is being written
//   heddle.lock         locked while a server runs on the folder
//
// A file is in the store once its description is on disk. The bytes are written and synced first;
// the description goes first when a file is deleted. Therefore a server that is ended at any point
// leaves, beside whole files and whole records:
//
//   .tmp files                    removed at the next start
//   bytes without a description   an upload that was cut short, or a file that was being deleted:
//                                 removed at the next start (remove_orphans()), unless a batch that
//                                 has not ended appends to them: they stay as they are, and count
//   a description without bytes   only where a power failure undid a removal: removed
//
// Files under names of ours that cannot be read as such are named in the log, stay where they are
// and count as bytes; files with other names are not touched.
//
// Threading: thread-safe. add(), FileWriter, read() and all that changes records wait for the disk:
//            call them on workers.
// Bounds:    kMaxFiles and `max_bytes`, and of each a share for the files of one holder; a file
//            beyond them is refused, none is removed for another.
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
  std::string id;  // "file-" and 32 digits
  std::string name;
  std::string purpose;
  std::string holder;  // name of the key that may see it; "" without one
  int64_t num_bytes = 0;
  int64_t created = 0;  // seconds since 1970
};

class FileStore;

// A file that is being written. It is in the store once finish() has returned.
//
// Threading: thread-compatible.
class FileWriter {
 public:
  // Removes a file that is not finished, unless it is a batch's: resume() finds that again.
  ~FileWriter();

  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  // The bytes are the file's when this returns, whatever becomes of the process. Error:
  // kResourceExhausted when the store, the holder's share or the disk is full; nothing is appended.
  [[nodiscard]] Status append(std::string_view bytes);

  // Cuts the file. An empty one is removed by finish().
  [[nodiscard]] Status truncate(int64_t num_bytes);

  [[nodiscard]] int64_t num_bytes() const { return file_.num_bytes; }

  // Syncs the file and describes it. Error: kResourceExhausted; a batch's file is in the store all
  // the same, so that its answers can be read, but a later start finds it unfinished: call it
  // again.
  [[nodiscard]] Status finish();

  [[nodiscard]] const StoredFile& file() const { return file_; }

 private:
  friend class FileStore;

  FileWriter(FileStore& store, StoredFile file, std::unique_ptr<StorageFile> stream, bool is_kept)
      : store_(store), file_(std::move(file)), stream_(std::move(stream)), is_kept_(is_kept) {}

  FileStore& store_;
  StoredFile file_;
  const std::unique_ptr<StorageFile> stream_;
  const bool is_kept_;      // by the destructor
  bool is_stored_ = false;  // the store's, no longer this writer's
};

class FileStore {
 public:
  static constexpr int64_t kMaxFiles = 10000;
  static constexpr size_t kMaxNameBytes = 255;

  // `folder` empty: a temporary one. Files and records that other servers left there are found
  // again. `share`: ServerOptions::storage_share(). Error: as StorageFolder::open().
  static Result<std::unique_ptr<FileStore>> open(const std::filesystem::path& folder,
                                                 int64_t max_bytes, double share = 1,
                                                 std::shared_ptr<DiskFaults> faults = nullptr);

  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  // An id for a file that create() will make.
  [[nodiscard]] static std::string new_id();

  // `file` has name, purpose, holder and time. With an id it is a batch's: the file outlives its
  // writer. Error: as FileWriter::append().
  [[nodiscard]] Result<std::unique_ptr<FileWriter>> create(StoredFile file) HEDDLE_EXCLUDES(mutex_);
  [[nodiscard]] Result<StoredFile> add(StoredFile file, std::string_view bytes);

  // Appends to a batch's file that an earlier server left; a finished one is unfinished again.
  // Error: kNotFound.
  [[nodiscard]] Result<std::unique_ptr<FileWriter>> resume(StoredFile file) HEDDLE_EXCLUDES(mutex_);

  [[nodiscard]] std::optional<StoredFile> find(const std::string& id, std::string_view holder) const
      HEDDLE_EXCLUDES(mutex_);

  // The oldest first.
  [[nodiscard]] std::vector<StoredFile> list(std::string_view holder) const HEDDLE_EXCLUDES(mutex_);

  // False: there is none. Readers that have it open read on.
  [[nodiscard]] bool remove(const std::string& id, std::string_view holder) HEDDLE_EXCLUDES(mutex_);

  // Also a file that is still written. Null when it is gone. The caller closes it.
  [[nodiscard]] std::FILE* open_for_reading(const std::string& id) const HEDDLE_EXCLUDES(mutex_);

  [[nodiscard]] Result<std::string> read(const std::string& id) const;

  // Records, by the ids of their batches.
  [[nodiscard]] Status save_record(const std::string& id, std::string_view text)
      HEDDLE_EXCLUDES(mutex_);
  void remove_record(const std::string& id) HEDDLE_EXCLUDES(mutex_);
  // The text of a record that cannot be read is empty.
  [[nodiscard]] Result<std::map<std::string, std::string>> read_records() const
      HEDDLE_EXCLUDES(mutex_);

  // Removes the bytes without a description, but for the files in `kept`. Once, at the start.
  void remove_orphans(const std::set<std::string>& kept) HEDDLE_EXCLUDES(mutex_);

  [[nodiscard]] int64_t num_bytes() const HEDDLE_EXCLUDES(mutex_);

 private:
  friend class FileWriter;

  struct Usage {
    int64_t num_bytes = 0;  // files in the making included, as in num_files
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
  std::unique_ptr<StorageFolder> folder_ HEDDLE_GUARDED_BY(mutex_);  // null: not made yet
  Usage total_ HEDDLE_GUARDED_BY(mutex_);
  std::map<std::string, Usage, std::less<>> usage_ HEDDLE_GUARDED_BY(mutex_);  // by holders
  std::map<std::string, StoredFile> files_ HEDDLE_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> orphans_ HEDDLE_GUARDED_BY(mutex_);  // bytes, by ids
};

}  // namespace heddle::server
