// SPDX-License-Identifier: Apache-2.0
#include "server/response_store.h"

#include <utility>

#include <fmt/format.h>

#include "server/http_message.h"

namespace heddle::server {

namespace {

size_t num_bytes_of(const StoredResponse& response) {
  return response.body.size() + response.input_bytes;
}

// Holders have no slash.
std::string key_of_response(const std::string& id, const std::string& holder) {
  return fmt::format("{}/{}", holder, id);
}

}  // namespace

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

size_t ResponseStore::size() const {
  const MutexLock lock(mutex_);
  return entries_.size();
}

}  // namespace heddle::server
