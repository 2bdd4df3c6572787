// SPDX-License-Identifier: Apache-2.0
// ResponseStore keeps answers of /v1/responses, so that clients can fetch them and go on from them
// (previous_response_id). In memory alone: a restart forgets them. Every holder of keys has ids of
// its own.
//
// Threading: thread-safe.
// Bounds:    kMaxResponses and kMaxBytes, of which one holder fills its share at most; an hour from
//            a response's end. Where a new response does not fit, its holder's oldest ones that
//            have ended make room; where all holders together have too much, those of the holder
//            that has the most. One that runs is never dropped: where too many run, a new one is
//            refused. The newest one is kept beyond the bounds where only running ones are left.
// Cost:      O(1) and a copy of what is found; O(responses) where one has to make room.
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

// The 404 for an id that ResponseStore::find() does not know; `param` is the field that has it.
[[nodiscard]] ApiError response_not_found(std::string_view id, std::string_view param);

// The id of an item that a response wrote: "msg_HEX_0" of "resp_HEX". `kind`: "msg".
[[nodiscard]] std::string output_item_id(std::string_view kind, std::string_view response_id,
                                         size_t index);

class ResponseStore {
 public:
  static constexpr size_t kMaxResponses = 1000;
  static constexpr size_t kMaxBytes = size_t{256} << 20;  // of bodies and inputs, as JSON
  static constexpr int64_t kMaxAgeSeconds = 3600;

  // `unix_time`: seconds since 1970; thread-safe. `share`: ServerOptions::storage_share().
  explicit ResponseStore(std::function<int64_t()> unix_time, double share = 1)
      : unix_time_(std::move(unix_time)), share_(share) {}

  // An id of a response that is not kept yet: no other one of its holder gets it while this lives.
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

  // Null where another response of the holder has the id: it is claimed, or it is kept.
  [[nodiscard]] static std::unique_ptr<const Claim> claim(
      const std::shared_ptr<ResponseStore>& store, const std::string& id,
      const std::string& holder);

  // Ignored where there is a response of that id already.
  void put(const std::string& id, StoredResponse response) HEDDLE_EXCLUDES(mutex_);

  // Keeps a response that runs, until replace(). Error: 429, when as many run as fit; the response
  // is not kept then.
  [[nodiscard]] std::optional<ApiError> put_running(const std::string& id, StoredResponse response)
      HEDDLE_EXCLUDES(mutex_);

  // As put(), but takes the place of a response that runs. One that is larger than its holder's
  // share is kept as a failure that says so.
  void replace(const std::string& id, StoredResponse response) HEDDLE_EXCLUDES(mutex_);

  // Forgets a response, one that runs, too. False where find() finds none.
  bool erase(const std::string& id, const std::string& holder) HEDDLE_EXCLUDES(mutex_);

  // Null when there is none, when it ended more than an hour ago, and for other holders.
  [[nodiscard]] std::shared_ptr<const StoredResponse> find(const std::string& id,
                                                           const std::string& holder) const
      HEDDLE_EXCLUDES(mutex_);

  // The item of this id that a kept response of the holder wrote; null when there is none.
  [[nodiscard]] std::shared_ptr<const nlohmann::ordered_json> find_item(
      const std::string& id, const std::string& holder) const HEDDLE_EXCLUDES(mutex_);

  [[nodiscard]] size_t size() const HEDDLE_EXCLUDES(mutex_);

 private:
  struct Entry {
    std::shared_ptr<const StoredResponse> response;
    std::list<std::string>::iterator place;  // in order_
    int64_t put_at = 0;                      // one that does not run has ended then
  };

  using Entries = std::unordered_map<std::string, Entry>;

  struct Fill {
    size_t num_responses = 0;
    size_t num_bytes = 0;

    void add(size_t bytes);
    void remove(size_t bytes);

    // By the larger of two: its part of kMaxResponses, its part of kMaxBytes.
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
  Entries entries_ HEDDLE_GUARDED_BY(mutex_);  // by ids and holders
  std::unordered_set<std::string> claimed_ HEDDLE_GUARDED_BY(mutex_);
  std::list<std::string> order_ HEDDLE_GUARDED_BY(mutex_);  // the oldest first
  Fills total_ HEDDLE_GUARDED_BY(mutex_);
  std::map<std::string, Fills> by_holder_ HEDDLE_GUARDED_BY(mutex_);  // of those that have some
};

}  // namespace heddle::server
