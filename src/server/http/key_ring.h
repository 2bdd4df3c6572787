// SPDX-License-Identifier: Apache-2.0
// KeyRing: the API keys that the server knows, and what their holders may ask of it. Keys come from
// the options --api-key and --admin-api-key, which have no limits, and from a file of named keys:
//
//   # key            name   limits
//   sk-2f3a9c01...   alice  rpm=60 tpm=100000 max_requests=8 priority=10
//   sk-77b0d41e...   batch  models=small,large weight=0.5 max_running=4 max_queued=100
//
// The name is the tenant of the key's requests. `rpm` and `tpm` are buckets that hold what a minute
// gives: a key that was idle may ask a minute's share at once. Tokens, those of prompts and those
// of answers, are counted when a request has ended, so that `tpm` can be overdrawn by what runs;
// the key then waits longer.
//
// Threading: confined to the I/O thread, except for the free functions.
// Cost:      a look-up compares with every key, whichever fits, so that its time tells nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <heddle/request.h>
#include <heddle/status.h>

#include "server/http/api_error.h"

namespace heddle::server {

inline constexpr size_t kMaxNamedKeys = 4096;

// A named key. A limit of 0 is none.
struct ApiKey {
  std::string secret;
  std::string name;
  double requests_per_minute = 0;
  double tokens_per_minute = 0;
  int64_t max_requests = 0;           // under way at once, waiting ones included
  TenantTerms terms = {};             // in the engine's queue
  std::optional<int64_t> priority;    // of requests that have none
  std::vector<std::string> models{};  // the names it may ask for; empty: all
};

// Whether the holder of a key may ask for a model by this name. Null: a key without limits, or
// none.
[[nodiscard]] bool may_use_model(const ApiKey* key, std::string_view name);

// The name to which files, batches, responses and sessions belong: the key's, "" for null.
[[nodiscard]] std::string holder_of(const std::shared_ptr<const ApiKey>& key);

// How much one holder may fill of a store that has room for `total`, in bytes or entries; at least
// 1. `share`: ServerOptions::storage_share().
[[nodiscard]] size_t share_of(size_t total, double share);

// Reads the lines of a file of keys; blank ones and those that begin with '#' do not count. Error:
// kInvalidArgument, naming the line but never the key.
[[nodiscard]] Result<std::vector<ApiKey>> parse_api_keys(std::string_view text);

// Error: as above, or the file cannot be read. `path` leads the message.
[[nodiscard]] Result<std::vector<ApiKey>> read_api_keys(const std::string& path);

class KeyRing {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Empty: there is no such key.
  KeyRing(std::string api_key, std::string admin_key)
      : api_key_(std::move(api_key)), admin_key_(std::move(admin_key)) {}

  // Takes the place of all named keys. A holder's usage so far still counts for keys of its name.
  void replace_named(std::vector<ApiKey> keys);

  // Without any key everyone may ask, and steer; without an admin key every key may steer.
  [[nodiscard]] bool has_user_keys() const { return !api_key_.empty() || !named_.empty(); }

  [[nodiscard]] bool has_admin_key() const { return !admin_key_.empty(); }

  struct Holder {
    bool known = false;
    bool admin = false;
    std::shared_ptr<const ApiKey> key;  // a named one
  };

  [[nodiscard]] Holder find(std::string_view sent) const;

  // The key of this name; null: there is none any more.
  [[nodiscard]] std::shared_ptr<const ApiKey> find_named(std::string_view name) const;

  // Counts a request of the key. The error, 429 with a Retry-After, when a limit is reached:
  // nothing is counted then. Of every request that was counted, end_request() once.
  [[nodiscard]] std::optional<ApiError> begin_request(const ApiKey& key, Time now);
  void end_request(const ApiKey& key);
  void charge_tokens(const ApiKey& key, int64_t num_tokens, Time now);

 private:
  // Of one name. The buckets hold what may still be asked.
  struct Usage {
    int64_t num_requests = 0;
    double requests_left = 0;
    double tokens_left = 0;
    Time filled_at;
    bool known = false;
  };

  Usage& filled(const ApiKey& key, Time now);

  const std::string api_key_;
  const std::string admin_key_;
  std::vector<std::shared_ptr<const ApiKey>> named_;
  std::unordered_map<std::string, Usage> usage_;
};

}  // namespace heddle::server
