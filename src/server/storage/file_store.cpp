// SPDX-License-Identifier: Apache-2.0
#include "server/storage/file_store.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/log.h"
#include "core/printable.h"
#include "server/http/caller.h"
#include "server/http/json_text.h"
#include "server/http/key_ring.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFileIdPrefix = "file-";
constexpr std::string_view kRecordIdPrefix = "batch_";
// Suffix of descriptions and records, after the id of a file or a batch.
constexpr std::string_view kDescription = ".json";
constexpr size_t kIdDigits = 32;

std::string description_of(const std::string& id) { return id + std::string(kDescription); }

// Whether `name` is the prefix followed by the digits that new_request_id() writes.
bool is_own_id(std::string_view name, std::string_view prefix) {
  return name.starts_with(prefix) && name.size() == prefix.size() + kIdDigits &&
         name.find_first_not_of("0123456789abcdef", prefix.size()) == std::string_view::npos;
}

// The name without the suffix; none if it does not end so.
std::optional<std::string> without_suffix(std::string_view name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return std::nullopt;
  return std::string(name.substr(0, name.size() - suffix.size()));
}

Json describe(const StoredFile& file) {
  return {{"filename", file.name},
          {"purpose", file.purpose},
          {"holder", file.holder},
          {"created_at", file.created}};
}

// Parses a description; none if the text is not one that FileStore wrote.
std::optional<StoredFile> read_description(const std::string& id, std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  StoredFile file{.id = id};
  for (const auto& [name, target] :
       {std::pair{"filename", &file.name}, {"purpose", &file.purpose}, {"holder", &file.holder}}) {
    const auto value = json.find(name);
    if (value == json.end() || !value->is_string()) return std::nullopt;
    *target = value->get<std::string>();
  }
  const auto created = json.find("created_at");
  if (created == json.end() || !created->is_number_integer()) return std::nullopt;
  file.created = created->get<int64_t>();
  return file;
}

void warn_if_failed(const Status& status, std::string_view name) {
  if (!status.ok()) log_warning(fmt::format("{}: {}", name, status.message()));
}

}  // namespace

FileWriter::~FileWriter() {
  if (is_stored_) return;
  if (is_kept_) {
    store_.put_back(file_);
    return;
  }
  warn_if_failed(store_.folder()->remove(file_.id), file_.id);
  store_.release(file_.holder, file_.num_bytes, 1);
}

Status FileWriter::append(std::string_view bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  HEDDLE_RETURN_IF_ERROR(store_.reserve(file_.holder, size, 0));
  const Status appended = stream_->append(bytes);
  if (appended.ok()) {
    file_.num_bytes += size;
  } else {
    store_.release(file_.holder, size, 0);
  }
  return appended;
}

Status FileWriter::truncate(int64_t num_bytes) {
  HEDDLE_RETURN_IF_ERROR(stream_->truncate(num_bytes));
  store_.release(file_.holder, file_.num_bytes - num_bytes, 0);
  file_.num_bytes = num_bytes;
  return ok_status();
}

Status FileWriter::finish() {
  if (file_.num_bytes == 0) {
    if (is_stored_) return ok_status();
    HEDDLE_RETURN_IF_ERROR(store_.folder()->remove(file_.id));
    store_.release(file_.holder, 0, 1);
    is_stored_ = true;
    return ok_status();
  }
  Status status = stream_->sync();
  if (status.ok()) {
    status = store_.folder()->replace(description_of(file_.id), dump_json(describe(file_)));
  }
  if ((status.ok() || is_kept_) && !std::exchange(is_stored_, true)) store_.put(file_);
  return status;
}

Result<std::unique_ptr<FileStore>> FileStore::open(const std::filesystem::path& folder,
                                                   int64_t max_bytes, double share,
                                                   std::shared_ptr<DiskFaults> faults) {
  std::unique_ptr<FileStore> store(new FileStore(max_bytes, share, faults));
  if (folder.empty()) {
    StorageFolder::remove_abandoned();
  } else {
    HEDDLE_ASSIGN_OR_RETURN(auto opened, StorageFolder::open(folder, std::move(faults)));
    HEDDLE_RETURN_IF_ERROR(store->load(std::move(opened)));
  }
  return store;
}

std::string FileStore::new_id() { return new_request_id(kFileIdPrefix); }

Status FileStore::load(std::unique_ptr<StorageFolder> folder) {
  const MutexLock lock(mutex_);
  folder_ = std::move(folder);
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<StorageFolder::Entry> entries, folder_->list());
  std::vector<std::string> described;
  for (const auto& [name, num_bytes] : entries) {
    const auto temporary = without_suffix(name, StorageFolder::kTemporarySuffix);
    const auto id = without_suffix(temporary.value_or(name), kDescription);
    const bool is_bytes = is_own_id(name, kFileIdPrefix);
    if (!is_bytes && (!id || !(is_own_id(*id, kFileIdPrefix) || is_own_id(*id, kRecordIdPrefix)))) {
      continue;
    }
    if (temporary) {
      warn_if_failed(folder_->remove(name), name);
      continue;
    }
    folder_->make_private(name);
    if (is_bytes) {
      orphans_.emplace(name, num_bytes);
      count("", num_bytes, 0);
    } else if (is_own_id(*id, kFileIdPrefix)) {
      described.push_back(*id);
    }
  }
  for (const std::string& id : described) load_description(id);
  return ok_status();
}

// Reads a description and adds the file with its bytes to the store.
void FileStore::load_description(const std::string& id) {
  const std::string name = description_of(id);
  const auto bytes = orphans_.find(id);
  if (bytes == orphans_.end()) {
    // The name exists but is a link or a folder, which this store did not create: it is left alone.
    if (folder_->exists(id)) return;
    warn_if_failed(folder_->remove(name), name);
    return;
  }
  const Result<std::string> text = folder_->read(name);
  auto file = text.ok() ? read_description(id, *text) : std::nullopt;
  if (file) {
    file->num_bytes = bytes->second;
    count("", -bytes->second, 0);
    count(file->holder, bytes->second, 1);
    files_.emplace(id, *std::move(file));
  } else {
    log_warning(
        fmt::format("{} in the storage folder cannot be read: {} is kept and not shown", name, id));
  }
  orphans_.erase(bytes);
}

Status FileStore::make_folder() {
  if (folder_ != nullptr) return ok_status();
  HEDDLE_ASSIGN_OR_RETURN(folder_, StorageFolder::make_temporary(faults_));
  return ok_status();
}

StorageFolder* FileStore::folder() const {
  const MutexLock lock(mutex_);
  return folder_.get();
}

void FileStore::count(const std::string& holder, int64_t num_bytes, int64_t num_files) {
  for (Usage* const usage : {&total_, &usage_[holder]}) {
    usage->num_bytes += num_bytes;
    usage->num_files += num_files;
  }
}

Status FileStore::reserve(const std::string& holder, int64_t num_bytes, int64_t num_files) {
  const MutexLock lock(mutex_);
  if (total_.num_files + num_files > kMaxFiles) {
    return resource_exhausted(
        fmt::format("the server keeps {} files already; delete some", kMaxFiles));
  }
  if (num_bytes > max_bytes_ - total_.num_bytes) {
    return resource_exhausted(
        fmt::format("the server keeps {} bytes of files, {} of them are in use; delete some",
                    max_bytes_, total_.num_bytes));
  }
  const Usage& own = usage_[holder];
  const auto max_files = static_cast<int64_t>(share_of(kMaxFiles, share_));
  if (own.num_files + num_files > max_files) {
    return resource_exhausted(
        fmt::format("{} files are the share of a key, and yours has {}; delete some", max_files,
                    own.num_files));
  }
  const auto max_bytes = static_cast<int64_t>(share_of(static_cast<size_t>(max_bytes_), share_));
  if (num_bytes > max_bytes - own.num_bytes) {
    return resource_exhausted(
        fmt::format("{} bytes of files are the share of a key, and yours has {}; delete some",
                    max_bytes, own.num_bytes));
  }
  count(holder, num_bytes, num_files);
  return ok_status();
}

void FileStore::release(const std::string& holder, int64_t num_bytes, int64_t num_files) {
  const MutexLock lock(mutex_);
  count(holder, -num_bytes, -num_files);
}

void FileStore::put(StoredFile file) {
  const MutexLock lock(mutex_);
  files_.emplace(file.id, std::move(file));
}

void FileStore::put_back(const StoredFile& file) {
  const MutexLock lock(mutex_);
  count(file.holder, -file.num_bytes, -1);
  count("", file.num_bytes, 0);
  orphans_.emplace(file.id, file.num_bytes);
}

Result<std::unique_ptr<FileWriter>> FileStore::create(StoredFile file) {
  {
    const MutexLock lock(mutex_);
    HEDDLE_RETURN_IF_ERROR(make_folder());
  }
  HEDDLE_RETURN_IF_ERROR(reserve(file.holder, 0, 1));
  const bool is_kept = !file.id.empty();
  if (!is_kept) file.id = new_id();
  file.num_bytes = 0;
  auto stream = folder()->create(file.id);
  if (!stream.ok()) {
    release(file.holder, 0, 1);
    return stream.status();
  }
  return std::unique_ptr<FileWriter>(
      new FileWriter(*this, std::move(file), std::move(stream).value(), is_kept));
}

Result<StoredFile> FileStore::add(StoredFile file, std::string_view bytes) {
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<FileWriter> writer, create(std::move(file)));
  HEDDLE_RETURN_IF_ERROR(writer->append(bytes));
  HEDDLE_RETURN_IF_ERROR(writer->finish());
  return writer->file();
}

Result<std::unique_ptr<FileWriter>> FileStore::resume(StoredFile file) {
  StorageFolder* const opened = folder();
  if (opened == nullptr) return not_found(fmt::format("there is no file `{}`", file.id));
  HEDDLE_RETURN_IF_ERROR(opened->remove(description_of(file.id)));
  HEDDLE_ASSIGN_OR_RETURN(auto stream, opened->open_to_append(file.id));
  file.num_bytes = stream->num_bytes();
  const MutexLock lock(mutex_);
  if (const auto finished = files_.find(file.id); finished != files_.end()) {
    count(finished->second.holder, -finished->second.num_bytes, -1);
    files_.erase(finished);
  } else if (const auto orphan = orphans_.find(file.id); orphan != orphans_.end()) {
    count("", -orphan->second, 0);
    orphans_.erase(orphan);
  }
  count(file.holder, file.num_bytes, 1);
  return std::unique_ptr<FileWriter>(
      new FileWriter(*this, std::move(file), std::move(stream), /*is_kept=*/true));
}

std::optional<StoredFile> FileStore::find(const std::string& id, std::string_view holder) const {
  const MutexLock lock(mutex_);
  const auto found = files_.find(id);
  if (found == files_.end() || found->second.holder != holder) return std::nullopt;
  return found->second;
}

std::vector<StoredFile> FileStore::list(std::string_view holder) const {
  const MutexLock lock(mutex_);
  std::vector<StoredFile> files;
  for (const auto& [id, file] : files_) {
    if (file.holder == holder) files.push_back(file);
  }
  std::stable_sort(files.begin(), files.end(),
                   [](const StoredFile& a, const StoredFile& b) { return a.created < b.created; });
  return files;
}

bool FileStore::remove(const std::string& id, std::string_view holder) {
  const MutexLock lock(mutex_);
  const auto found = files_.find(id);
  if (found == files_.end() || found->second.holder != holder) return false;
  const Status described = folder_->remove(description_of(id));
  warn_if_failed(described, id);
  // The bytes are only deleted after the description. If the server ends in between, the next start
  // deletes bytes without a description.
  if (described.ok()) warn_if_failed(folder_->remove(id), id);
  count(found->second.holder, -found->second.num_bytes, -1);
  files_.erase(found);
  return true;
}

std::FILE* FileStore::open_for_reading(const std::string& id) const {
  const StorageFolder* const opened = folder();
  if (opened == nullptr || !is_own_id(id, kFileIdPrefix)) return nullptr;
  return opened->open_for_reading(id);
}

Result<std::string> FileStore::read(const std::string& id) const {
  const StorageFolder* const opened = folder();
  if (opened == nullptr || !is_own_id(id, kFileIdPrefix)) {
    return not_found(fmt::format("there is no file `{}` any more", printable(id, 128)));
  }
  auto text = opened->read(id);
  if (!text.ok() && text.status().code() == StatusCode::kNotFound) {
    return not_found(fmt::format("there is no file `{}` any more", id));
  }
  return text;
}

Status FileStore::save_record(const std::string& id, std::string_view text) {
  {
    const MutexLock lock(mutex_);
    HEDDLE_RETURN_IF_ERROR(make_folder());
  }
  return folder()->replace(description_of(id), text);
}

void FileStore::remove_record(const std::string& id) {
  if (StorageFolder* const opened = folder()) {
    warn_if_failed(opened->remove(description_of(id)), id);
  }
}

Result<std::map<std::string, std::string>> FileStore::read_records() const {
  std::map<std::string, std::string> records;
  const StorageFolder* const opened = folder();
  if (opened == nullptr) return records;
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<StorageFolder::Entry> entries, opened->list());
  for (const StorageFolder::Entry& entry : entries) {
    const auto id = without_suffix(entry.name, kDescription);
    if (!id || !is_own_id(*id, kRecordIdPrefix)) continue;
    const Result<std::string> text = opened->read(entry.name);
    records[*id] = text.ok() ? *text : "";
  }
  return records;
}

void FileStore::remove_orphans(const std::set<std::string>& kept) {
  const MutexLock lock(mutex_);
  size_t num_removed = 0;
  int64_t num_bytes = 0;
  for (auto orphan = orphans_.begin(); orphan != orphans_.end();) {
    const auto& [id, size] = *orphan;
    const Status removed = kept.contains(id) ? ok_status() : folder_->remove(id);
    warn_if_failed(removed, id);
    if (kept.contains(id) || !removed.ok()) {
      ++orphan;
      continue;
    }
    ++num_removed;
    num_bytes += size;
    count("", -size, 0);
    orphan = orphans_.erase(orphan);
  }
  if (num_removed > 0) {
    log_info(
        fmt::format("{} files with {} bytes were removed: they were being written when an "
                    "earlier server ended",
                    num_removed, num_bytes));
  }
}

int64_t FileStore::num_bytes() const {
  const MutexLock lock(mutex_);
  return total_.num_bytes;
}

}  // namespace heddle::server
