// SPDX-License-Identifier: Apache-2.0
#include "server/file_store.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/log.h"
#include "server/caller.h"
#include "server/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kDescription = ".json";  // behind the id of a file

std::filesystem::path description_of(const std::filesystem::path& path) {
  return path.string().append(kDescription);
}

Json describe(const StoredFile& file) {
  return {{"filename", file.name},
          {"purpose", file.purpose},
          {"holder", file.holder},
          {"created_at", file.created}};
}

// Nothing where it is not a description of ours.
std::optional<StoredFile> read_description(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  const Json json = Json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  StoredFile file;
  for (const auto& [name, target] :
       {std::pair{"filename", &file.name}, {"purpose", &file.purpose}, {"holder", &file.holder}}) {
    const auto value = json.find(name);
    if (value == json.end() || !value->is_string()) return std::nullopt;
    *target = value->get<std::string>();
  }
  const auto created = json.find("created_at");
  if (created == json.end() || !created->is_number_integer()) return std::nullopt;
  file.created = created->get<int64_t>();
  file.id = path.stem().string();
  return file;
}

Status disk_error(std::string_view action) {
  return resource_exhausted(fmt::format("a file cannot be {}: {}", action, std::strerror(errno)));
}

}  // namespace

FileWriter::~FileWriter() {
  if (stream_ != nullptr) std::fclose(stream_);
  if (!finished_) {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
    store_.release(file_.num_bytes);
  }
  const MutexLock lock(store_.mutex_);
  --store_.num_writers_;
}

Status FileWriter::append(std::string_view bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  HEDDLE_RETURN_IF_ERROR(store_.reserve(size));
  file_.num_bytes += size;
  if (std::fwrite(bytes.data(), 1, bytes.size(), stream_) != bytes.size()) {
    return disk_error("written");
  }
  return ok_status();
}

Result<StoredFile> FileWriter::finish() {
  if (std::fclose(std::exchange(stream_, nullptr)) != 0) return disk_error("closed");
  std::ofstream description(description_of(path_), std::ios::binary);
  description << dump_json(describe(file_));
  description.close();
  if (!description) {
    std::error_code ignored;
    std::filesystem::remove(description_of(path_), ignored);
    return disk_error("described");
  }
  finished_ = true;
  store_.put(file_);
  return file_;
}

Result<std::unique_ptr<FileStore>> FileStore::open(const std::filesystem::path& folder,
                                                   int64_t max_bytes) {
  std::unique_ptr<FileStore> store(new FileStore(folder, max_bytes));
  if (!folder.empty()) HEDDLE_RETURN_IF_ERROR(store->load());
  return store;
}

FileStore::~FileStore() {
  const MutexLock lock(mutex_);
  std::error_code ignored;
  if (temporary_) std::filesystem::remove_all(folder_, ignored);
}

Status FileStore::load() {
  const MutexLock lock(mutex_);
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  std::filesystem::directory_iterator entries(folder_, error);
  if (error) {
    return invalid_argument(
        fmt::format("the folder {} cannot be used: {}", folder_.string(), error.message()));
  }
  for (const auto& entry : entries) {
    if (entry.path().extension() != kDescription) continue;
    auto file = read_description(entry.path());
    if (!file || files_.size() == kMaxFiles) continue;
    const auto size = std::filesystem::file_size(path_of(file->id), error);
    if (error) continue;
    file->num_bytes = static_cast<int64_t>(size);
    num_bytes_ += file->num_bytes;
    files_.emplace(file->id, *std::move(file));
  }
  return ok_status();
}

Status FileStore::make_folder() {
  if (!folder_.empty()) return ok_status();
  std::error_code error;
  std::string name = (std::filesystem::temp_directory_path(error) / "heddle-files-XXXXXX").string();
  if (error || ::mkdtemp(name.data()) == nullptr) return disk_error("stored");
  folder_ = name;
  temporary_ = true;
  return ok_status();
}

Status FileStore::reserve(int64_t num_bytes) {
  const MutexLock lock(mutex_);
  if (num_bytes > max_bytes_ - num_bytes_) {
    return resource_exhausted(
        fmt::format("the server keeps {} bytes of files, {} of them are in use; delete some",
                    max_bytes_, num_bytes_));
  }
  num_bytes_ += num_bytes;
  return ok_status();
}

void FileStore::release(int64_t num_bytes) {
  const MutexLock lock(mutex_);
  num_bytes_ -= num_bytes;
}

void FileStore::put(StoredFile file) {
  const MutexLock lock(mutex_);
  files_.emplace(file.id, std::move(file));
}

std::filesystem::path FileStore::path_of(const std::string& id) const { return folder_ / id; }

Result<std::unique_ptr<FileWriter>> FileStore::create(StoredFile file) {
  const MutexLock lock(mutex_);
  if (files_.size() + num_writers_ >= kMaxFiles) {
    return resource_exhausted(
        fmt::format("the server keeps {} files already; delete some", kMaxFiles));
  }
  HEDDLE_RETURN_IF_ERROR(make_folder());
  file.id = new_request_id("file-");
  file.num_bytes = 0;
  const std::filesystem::path path = path_of(file.id);
  std::FILE* const stream = std::fopen(path.c_str(), "wbx");
  if (stream == nullptr) return disk_error("made");
  ++num_writers_;
  return std::unique_ptr<FileWriter>(new FileWriter(*this, std::move(file), path, stream));
}

Result<StoredFile> FileStore::add(StoredFile file, std::string_view bytes) {
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<FileWriter> writer, create(std::move(file)));
  HEDDLE_RETURN_IF_ERROR(writer->append(bytes));
  return writer->finish();
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
  std::error_code error;
  std::filesystem::remove(description_of(path_of(id)), error);
  std::filesystem::remove(path_of(id), error);
  if (error) log_warning(fmt::format("{} cannot be removed: {}", id, error.message()));
  num_bytes_ -= found->second.num_bytes;
  files_.erase(found);
  return true;
}

std::FILE* FileStore::open_for_reading(const std::string& id) const {
  const MutexLock lock(mutex_);
  return files_.contains(id) ? std::fopen(path_of(id).c_str(), "rb") : nullptr;
}

Result<std::string> FileStore::read(const std::string& id) const {
  std::FILE* const stream = open_for_reading(id);
  if (stream == nullptr) return not_found(fmt::format("there is no file `{}` any more", id));
  std::string text;
  char buffer[1 << 16];
  size_t count = 0;
  while ((count = std::fread(buffer, 1, sizeof(buffer), stream)) > 0) text.append(buffer, count);
  const bool failed = std::ferror(stream) != 0;
  std::fclose(stream);
  if (failed) return disk_error("read");
  return text;
}

}  // namespace heddle::server
