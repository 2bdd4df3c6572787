// SPDX-License-Identifier: Apache-2.0
#include "server/api/responses/response_store.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/printable.h"
#include "server/api/responses/responses_answer.h"
#include "server/http/http_message.h"
#include "server/http/key_ring.h"

namespace heddle::server {

namespace {

// Prefix of the ids that the server generates; ids of items do not contain it.
constexpr std::string_view kResponseIdPrefix = "resp_";

size_t num_bytes_of(const StoredResponse& response) {
  return response.body.size() + response.input_bytes +
         response.cuts.size() * sizeof(StoredResponse::Cut);
}

// The key of a response. It is unambiguous because holders contain no slash.
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

std::optional<ApiError> ResponseStore::put_running(const std::string& id, StoredResponse response) {
  const std::string key = key_of_response(id, response.holder);
  const MutexLock lock(mutex_);
  if (const auto entry = entries_.find(key); entry != entries_.end()) {
    // A response with this id exists, so this one is ignored, as in put().
    if (!is_over_age(entry->second)) return std::nullopt;
    drop(entry);
  }
  const auto found = by_holder_.find(response.holder);
  Fill own = found == by_holder_.end() ? Fill() : found->second.running;
  Fill all = total_.running;
  for (Fill* const fill : {&own, &all}) fill->add(num_bytes_of(response));
  if (own.exceeds(share_) || all.exceeds(1)) {
    const bool is_share = share_ < 1 && own.exceeds(share_);
    const Fill& full = is_share ? own : all;
    return ApiError{
        .status = 429,
        .code = "too_many_background_responses",
        .message = fmt::format("With this one {} responses of {} would run in the background, with "
                               "{} MiB; at most {} and {} MiB are kept. Retry when some have "
                               "ended, or cancel some.",
                               full.num_responses, is_share ? "this key" : "the server",
                               full.num_bytes >> 20, share_of(kMaxResponses, is_share ? share_ : 1),
                               share_of(kMaxBytes, is_share ? share_ : 1) >> 20),
        .retry_after_seconds = 4};
  }
  response.is_running = true;
  add(key, std::move(response));
  return std::nullopt;
}

void ResponseStore::replace(const std::string& id, StoredResponse response) {
  const std::string key = key_of_response(id, response.holder);
  const size_t num_bytes = num_bytes_of(response);
  const MutexLock lock(mutex_);
  const auto entry = entries_.find(key);
  if (entry != entries_.end()) {
    if (!entry->second.response->is_running) return;
    if (num_bytes > share_of(kMaxBytes, share_)) {
      StoredResponse failed = *entry->second.response;
      failed.body = with_state(
          failed.body, "failed",
          {{"code", "server_error"},
           {"message", fmt::format("The response has {} bytes, with its input; at most {} are "
                                   "kept. Ask for a shorter one, or without `background`.",
                                   num_bytes, share_of(kMaxBytes, share_))}});
      failed.is_running = false;
      response = std::move(failed);
    }
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

void ResponseStore::Fill::add(size_t bytes) {
  ++num_responses;
  num_bytes += bytes;
}

void ResponseStore::Fill::remove(size_t bytes) {
  --num_responses;
  num_bytes -= bytes;
}

double ResponseStore::Fill::part() const {
  return std::max(static_cast<double>(num_responses) / static_cast<double>(kMaxResponses),
                  static_cast<double>(num_bytes) / static_cast<double>(kMaxBytes));
}

bool ResponseStore::Fill::exceeds(double share) const {
  return num_responses > share_of(kMaxResponses, share) || num_bytes > share_of(kMaxBytes, share);
}

void ResponseStore::add(const std::string& key, StoredResponse response) {
  const size_t num_bytes = num_bytes_of(response);
  if (num_bytes > share_of(kMaxBytes, share_)) return;
  for (Fills* const fills : {&total_, &by_holder_[response.holder]}) {
    fills->all.add(num_bytes);
    if (response.is_running) fills->running.add(num_bytes);
  }
  const auto place = order_.insert(order_.end(), key);
  entries_.emplace(
      key, Entry{std::make_shared<const StoredResponse>(std::move(response)), place, unix_time_()});
  drop_over_age();
  make_room(key);
}

void ResponseStore::drop(Entries::iterator entry) {
  const StoredResponse& response = *entry->second.response;
  const size_t num_bytes = num_bytes_of(response);
  const auto own = by_holder_.find(response.holder);
  for (Fills* const fills : {&total_, &own->second}) {
    fills->all.remove(num_bytes);
    if (response.is_running) fills->running.remove(num_bytes);
  }
  if (own->second.all.num_responses == 0) by_holder_.erase(own);
  order_.erase(entry->second.place);
  entries_.erase(entry);
}

void ResponseStore::drop_over_age() {
  for (auto next = order_.begin(); next != order_.end();) {
    const auto entry = entries_.find(*next++);
    if (entry->second.response->is_running) continue;
    if (!is_over_age(entry->second)) return;  // the entries after this one ended later
    drop(entry);
  }
}

void ResponseStore::make_room(const std::string& newest) {
  const std::string holder = entries_.find(newest)->second.response->holder;
  while (by_holder_[holder].all.exceeds(share_) && drop_oldest_ended(holder, newest)) {
  }
  while (total_.all.exceeds(1)) {
    std::vector<std::pair<double, std::string>> holders;
    for (const auto& [name, fills] : by_holder_) holders.emplace_back(fills.all.part(), name);
    std::ranges::sort(holders, std::greater<>());
    bool dropped = false;
    for (size_t i = 0; i < holders.size() && !dropped; ++i) {
      dropped = drop_oldest_ended(holders[i].second, newest);
    }
    if (!dropped) return;
  }
}

// Drops the holder's oldest ended response. Returns false if all others run or are the newest.
bool ResponseStore::drop_oldest_ended(const std::string& holder, const std::string& newest) {
  for (const std::string& key : order_) {
    const auto entry = entries_.find(key);
    const StoredResponse& response = *entry->second.response;
    if (response.is_running || response.holder != holder || key == newest) continue;
    drop(entry);
    return true;
  }
  return false;
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
