// SPDX-License-Identifier: Apache-2.0
#include "server/response_store.h"

#include <charconv>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "server/http_message.h"

namespace heddle::server {

namespace {

// Of the ids that the server makes up, and no part of those of items.
constexpr std::string_view kResponseIdPrefix = "resp_";

size_t num_bytes_of(const StoredResponse& response) {
  return response.body.size() + response.input_bytes;
}

// Holders have no slash.
std::string key_of_response(const std::string& id, const std::string& holder) {
  return fmt::format("{}/{}", holder, id);
}

}  // namespace

std::string output_item_id(std::string_view kind, std::string_view response_id, size_t index) {
  if (response_id.starts_with(kResponseIdPrefix)) {
    response_id.remove_prefix(kResponseIdPrefix.size());
  }
  return fmt::format("{}_{}_{}", kind, response_id, index);
}

ApiError response_not_found(std::string_view id, std::string_view param) {
  return {.status = 404,
          .code = "response_not_found",
          .message = fmt::format("There is no response `{}`; responses are kept for an hour.",
                                 printable(id, 128)),
          .param = std::string(param)};
}

std::unique_ptr<const ResponseStore::Claim> ResponseStore::claim(
    const std::shared_ptr<ResponseStore>& store, const std::string& id, const std::string& holder) {
  std::string key = key_of_response(id, holder);
  if (!store->try_claim(key)) return nullptr;
  return std::make_unique<const Claim>(store, std::move(key));
}

bool ResponseStore::try_claim(const std::string& key) {
  const MutexLock lock(mutex_);
  const auto entry = entries_.find(key);
  if (entry != entries_.end() && !is_over_age(entry->second)) return false;
  return claimed_.insert(key).second;
}

void ResponseStore::release(const std::string& key) {
  const MutexLock lock(mutex_);
  claimed_.erase(key);
}

void ResponseStore::put(const std::string& id, StoredResponse response) {
  const std::string key = key_of_response(id, response.holder);
  const MutexLock lock(mutex_);
  const auto entry = entries_.find(key);
  if (entry != entries_.end()) {
    if (!is_over_age(entry->second)) return;
    drop(entry);
  }
  add(key, std::move(response));
}

void ResponseStore::replace(const std::string& id, StoredResponse response) {
  const std::string key = key_of_response(id, response.holder);
  const MutexLock lock(mutex_);
  const auto entry = entries_.find(key);
  if (entry != entries_.end()) {
    if (!entry->second.response->is_running) return;
    drop(entry);
  }
  add(key, std::move(response));
}

bool ResponseStore::erase(const std::string& id, const std::string& holder) {
  const MutexLock lock(mutex_);
  const auto entry = entries_.find(key_of_response(id, holder));
  if (entry == entries_.end() || is_over_age(entry->second)) return false;
  drop(entry);
  return true;
}

void ResponseStore::add(const std::string& key, StoredResponse response) {
  const size_t num_bytes = num_bytes_of(response);
  if (num_bytes > kMaxBytes) return;
  num_bytes_ += num_bytes;
  const auto place = order_.insert(order_.end(), key);
  entries_.emplace(
      key, Entry{std::make_shared<const StoredResponse>(std::move(response)), place, unix_time_()});
  while (entries_.size() > kMaxResponses || num_bytes_ > kMaxBytes) {
    drop(entries_.find(order_.front()));
  }
}

void ResponseStore::drop(Entries::iterator entry) {
  num_bytes_ -= num_bytes_of(*entry->second.response);
  order_.erase(entry->second.place);
  entries_.erase(entry);
}

bool ResponseStore::is_over_age(const Entry& entry) const {
  return !entry.response->is_running && unix_time_() - entry.put_at > kMaxAgeSeconds;
}

std::shared_ptr<const StoredResponse> ResponseStore::find(const std::string& id,
                                                          const std::string& holder) const {
  const MutexLock lock(mutex_);
  const auto entry = entries_.find(key_of_response(id, holder));
  if (entry == entries_.end() || is_over_age(entry->second)) return nullptr;
  return entry->second.response;
}

std::shared_ptr<const nlohmann::ordered_json> ResponseStore::find_item(
    const std::string& id, const std::string& holder) const {
  const size_t kind_end = id.find('_');
  const size_t index_begin = id.rfind('_') + 1;
  if (kind_end == std::string::npos || index_begin <= kind_end + 1) return nullptr;
  size_t index = 0;
  const char* const id_end = id.data() + id.size();
  const auto [end, failure] = std::from_chars(id.data() + index_begin, id_end, index);
  if (failure != std::errc() || end != id_end) return nullptr;
  const std::string response_id = id.substr(kind_end + 1, index_begin - kind_end - 2);
  for (const std::string& whole : {std::string(kResponseIdPrefix) + response_id, response_id}) {
    const auto response = find(whole, holder);
    if (response == nullptr || index >= response->output.size()) continue;
    const nlohmann::ordered_json& item = response->output[index];
    if (item["id"] == id) return {response, &item};
  }
  return nullptr;
}

size_t ResponseStore::size() const {
  const MutexLock lock(mutex_);
  return entries_.size();
}

}  // namespace heddle::server
