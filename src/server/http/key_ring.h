// SPDX-License-Identifier: Apache-2.0
// KeyRing: the API keys that the server knows, and the limits of their holders. Keys come from the
// options --api-key and --admin-api-key, which have no limits, and from a file of named keys:
//
//   # key            name   limits
//   sk-2f3a9c01...   alice  rpm=60 tpm=100000 max_requests=8 priority=10
//   sk-77b0d41e...   batch  models=small,large weight=0.5 max_running=4 max_queued=100
//
// The name is the tenant of the key's requests. `rpm` and `tpm` are token buckets with the capacity
// of one minute: a key that was idle may use a minute's share at once. Prompt and output tokens are
// charged when a request has ended, so running requests can overdraw `tpm`; the key then waits
// longer.
//
// Threading: confined to the I/O thread, except the free functions.
// Cost:      a look-up compares the sent key with every key, so that its time reveals nothing.
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

// A named key. A limit of 0 means no limit.
struct ApiKey {
  std::string secret;
  std::string name;
  double requests_per_minute = 0;
  double tokens_per_minute = 0;
  int64_t max_requests = 0;           // most requests at once, including waiting ones
  TenantTerms terms = {};             // the tenant's share and limits in the engine's queue
  std::optional<int64_t> priority;    // priority of requests that name none
  std::vector<std::string> models{};  // model names that the key may use; empty: all
};

// Whether the holder of a key may use a model by this name. A null key has no limits.
[[nodiscard]] bool may_use_model(const ApiKey* key, std::string_view name);

// The owner of files, batches, responses and sessions: the key's name, "" if `key` is null.
[[nodiscard]] std::string holder_of(const std::shared_ptr<const ApiKey>& key);

// How much one holder may use of a store with capacity `total`, in bytes or entries; at least 1.
// `share`: ServerOptions::storage_share().
[[nodiscard]] size_t share_of(size_t total, double share);

// Parses a file of keys; blank lines and lines that begin with '#' are skipped. Error:
// kInvalidArgument, naming the line but never the key.
[[nodiscard]] Result<std::vector<ApiKey>> parse_api_keys(std::string_view text);

// Reads and parses a file of keys. Errors: those of parse_api_keys(), or the file cannot be read;
// the message begins with `path`.
[[nodiscard]] Result<std::vector<ApiKey>> read_api_keys(const std::string& path);

class KeyRing {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Empty texts: no such key exists.
  KeyRing(std::string api_key, std::string admin_key)
      : api_key_(std::move(api_key)), admin_key_(std::move(admin_key)) {}

  // Replaces all named keys. The usage so far stays with keys of the same name.
  void replace_named(std::vector<ApiKey> keys);

  // Without any key everyone may use and control the server; without an admin key every key may
  // control it.
  [[nodiscard]] bool has_user_keys() const { return !api_key_.empty() || !named_.empty(); }

  [[nodiscard]] bool has_admin_key() const { return !admin_key_.empty(); }

  struct Holder {
    bool known = false;
    bool admin = false;
    std::shared_ptr<const ApiKey> key;  // set if a named key was sent
  };

  [[nodiscard]] Holder find(std::string_view sent) const;

  // The key with this name; null: no such key any more.
  [[nodiscard]] std::shared_ptr<const ApiKey> find_named(std::string_view name) const;

  // Counts a request of the key. If a limit is reached, returns a 429 with Retry-After and counts
  // nothing. Every counted request needs one call of end_request().
  [[nodiscard]] std::optional<ApiError> begin_request(const ApiKey& key, Time now);
  void end_request(const ApiKey& key);
  void charge_tokens(const ApiKey& key, int64_t num_tokens, Time now);

 private:
  // Usage of one key name. The buckets hold the requests and tokens that are still allowed.
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
