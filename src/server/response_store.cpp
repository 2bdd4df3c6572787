// SPDX-License-Identifier: Apache-2.0
#include "server/response_store.h"

#include <utility>

#include <fmt/format.h>

#include "server/http_message.h"

namespace heddle::server {

ApiError response_not_found(std::string_view id, std::string_view param) {
  return {.status = 404,
          .code = "response_not_found",
          .message = fmt::format("There is no response `{}`; responses are kept for an hour.",
                                 printable(id, 128)),
          .param = std::string(param)};
}

void ResponseStore::put(const std::string& id, StoredResponse response) {
  const MutexLock lock(mutex_);
  const auto entry = entries_.find(id);
  if (entry != entries_.end()) {
    if (!is_over_age(entry->second)) return;
    drop(entry);
  }
  add(id, std::move(response));
}

void ResponseStore::replace(const std::string& id, StoredResponse response) {
  const MutexLock lock(mutex_);
  const auto entry = entries_.find(id);
  if (entry != entries_.end()) {
    const StoredResponse& old = *entry->second.response;
    if (!old.is_running || old.holder != response.holder) return;
    drop(entry);
  }
  add(id, std::move(response));
}

bool ResponseStore::erase(const std::string& id, const std::string& holder) {
  const MutexLock lock(mutex_);
  const auto entry = entries_.find(id);
  if (entry == entries_.end() || is_over_age(entry->second)) return false;
  if (entry->second.response->holder != holder) return false;
  drop(entry);
  return true;
}

void ResponseStore::add(const std::string& id, StoredResponse response) {
  if (response.body.size() > kMaxBytes) return;
  num_bytes_ += response.body.size();
  const auto place = order_.insert(order_.end(), id);
  entries_.emplace(
      id, Entry{std::make_shared<const StoredResponse>(std::move(response)), place, unix_time_()});
  while (entries_.size() > kMaxResponses || num_bytes_ > kMaxBytes) {
    drop(entries_.find(order_.front()));
  }
}

void ResponseStore::drop(Entries::iterator entry) {
  num_bytes_ -= entry->second.response->body.size();
  order_.erase(entry->second.place);
  entries_.erase(entry);
}

bool ResponseStore::is_over_age(const Entry& entry) const {
  return !entry.response->is_running && unix_time_() - entry.put_at > kMaxAgeSeconds;
}

bool ResponseStore::contains(const std::string& id) const {
  const MutexLock lock(mutex_);
  const auto entry = entries_.find(id);
  return entry != entries_.end() && !is_over_age(entry->second);
}

std::shared_ptr<const StoredResponse> ResponseStore::find(const std::string& id,
                                                          const std::string& holder) const {
  const MutexLock lock(mutex_);
  const auto entry = entries_.find(id);
  if (entry == entries_.end() || is_over_age(entry->second)) return nullptr;
  const std::shared_ptr<const StoredResponse>& found = entry->second.response;
  return found->holder == holder ? found : nullptr;
}

size_t ResponseStore::size() const {
  const MutexLock lock(mutex_);
  return entries_.size();
}

}  // namespace heddle::server
