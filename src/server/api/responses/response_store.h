// SPDX-License-Identifier: Apache-2.0
// ResponseStore: stores answers of /v1/responses, so that clients can fetch and continue them
// (previous_response_id). Only in memory: a restart forgets them. Each holder of keys has its own
// ids.
//
// Threading: thread-safe.
// Bounds:    kMaxResponses and kMaxBytes, of which one holder may use its share, and an hour after
//            a response's end. If a new response does not fit, the oldest ended ones of its holder
//            are dropped; if all holders together exceed the bounds, those of the holder that uses
//            most. Running responses are never dropped: if too many run, a new one is refused. The
//            newest response is stored beyond the bounds if only running ones are left.
// Cost:      O(1) and a copy of the response found; O(responses) if one must be dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/mutex.h"
#include "server/call/stored_response.h"
#include "server/http/api_error.h"

namespace heddle::server {

// The 404 error for an id that ResponseStore::find() does not find; `param` is the field with the
// id.
[[nodiscard]] ApiError response_not_found(std::string_view id, std::string_view param);

// The id of an item that a response wrote: "msg_HEX_0" for "resp_HEX". `kind`: "msg".
[[nodiscard]] std::string output_item_id(std::string_view kind, std::string_view response_id,
                                         size_t index);

class ResponseStore {
 public:
  static constexpr size_t kMaxResponses = 1000;
  // Limit for all bodies and inputs, as JSON.
  static constexpr size_t kMaxBytes = size_t{256} << 20;
  static constexpr int64_t kMaxAgeSeconds = 3600;

  // `unix_time`: seconds since 1970; thread-safe. `share`: ServerOptions::storage_share().
  explicit ResponseStore(std::function<int64_t()> unix_time, double share = 1)
      : unix_time_(std::move(unix_time)), share_(share) {}

  // Reserves the id of a response that is not stored yet: no other response of its holder gets the
  // id while this object exists.
  class Claim {
   public:
    Claim(std::shared_ptr<ResponseStore> store, std::string key)
        : store_(std::move(store)), key_(std::move(key)) {}

    ~Claim() { store_->release(key_); }

    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;

   private:
    const std::shared_ptr<ResponseStore> store_;
    const std::string key_;
  };

  // Reserves an id. Null if another response of the holder has reserved it or is stored under it.
  [[nodiscard]] static std::unique_ptr<const Claim> claim(
      const std::shared_ptr<ResponseStore>& store, const std::string& id,
      const std::string& holder);

  // Stores an ended response. Ignored if a response with this id is stored already.
  void put(const std::string& id, StoredResponse response) HEDDLE_EXCLUDES(mutex_);

  // Stores a running response, until replace(). Error: 429, and nothing is stored, if as many
  // responses run as fit.
  [[nodiscard]] std::optional<ApiError> put_running(const std::string& id, StoredResponse response)
      HEDDLE_EXCLUDES(mutex_);

  // Replaces a running response by its final version. One that is larger than its holder's share is
  // stored as a failure that says so.
  void replace(const std::string& id, StoredResponse response) HEDDLE_EXCLUDES(mutex_);

  // Deletes a response, even a running one. Returns false if find() finds none.
  bool erase(const std::string& id, const std::string& holder) HEDDLE_EXCLUDES(mutex_);

  // Finds a stored response. Null if there is none, if it ended more than an hour ago, or for other
  // holders.
  [[nodiscard]] std::shared_ptr<const StoredResponse> find(const std::string& id,
                                                           const std::string& holder) const
      HEDDLE_EXCLUDES(mutex_);

  // The item with this id in a stored response of the holder; null if there is none.
  [[nodiscard]] std::shared_ptr<const nlohmann::ordered_json> find_item(
      const std::string& id, const std::string& holder) const HEDDLE_EXCLUDES(mutex_);

  [[nodiscard]] size_t size() const HEDDLE_EXCLUDES(mutex_);

 private:
  struct Entry {
    std::shared_ptr<const StoredResponse> response;
    std::list<std::string>::iterator place;  // position of its key in order_
    int64_t put_at = 0;  // when it was stored; for an ended response, when it ended
  };

  using Entries = std::unordered_map<std::string, Entry>;

  struct Fill {
    size_t num_responses = 0;
    size_t num_bytes = 0;

    void add(size_t bytes);
    void remove(size_t bytes);

    // The larger of two fractions: that of kMaxResponses and that of kMaxBytes.
    [[nodiscard]] double part() const;
    [[nodiscard]] bool exceeds(double share) const;
  };

  struct Fills {
    Fill all;
    Fill running;
  };

  [[nodiscard]] bool try_claim(const std::string& key) HEDDLE_EXCLUDES(mutex_);
  void release(const std::string& key) HEDDLE_EXCLUDES(mutex_);
  [[nodiscard]] bool is_over_age(const Entry& entry) const;
  void add(const std::string& key, StoredResponse response) HEDDLE_REQUIRES(mutex_);
  void drop(Entries::iterator entry) HEDDLE_REQUIRES(mutex_);
  void drop_over_age() HEDDLE_REQUIRES(mutex_);
  void make_room(const std::string& newest) HEDDLE_REQUIRES(mutex_);
  bool drop_oldest_ended(const std::string& holder, const std::string& newest)
      HEDDLE_REQUIRES(mutex_);

  const std::function<int64_t()> unix_time_;
  const double share_;
  mutable Mutex mutex_;
  Entries entries_ HEDDLE_GUARDED_BY(mutex_);  // stored responses, keyed by id and holder
  std::unordered_set<std::string> claimed_ HEDDLE_GUARDED_BY(mutex_);
  std::list<std::string> order_ HEDDLE_GUARDED_BY(mutex_);  // keys of the entries, the oldest first
  Fills total_ HEDDLE_GUARDED_BY(mutex_);
  // Use by each holder that has responses.
  std::map<std::string, Fills> by_holder_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::server
