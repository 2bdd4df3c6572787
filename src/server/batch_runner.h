// SPDX-License-Identifier: Apache-2.0
// BatchRunner: runs the batches of /v1/batches, one at a time, in the order they came. The requests
// of a batch go the way of every other request, behind them: only half of the engine's places are
// for a batch, it adds a request only while nothing waits in the queue (or none of its own runs),
// and where the server has priorities (--enable-priority-scheduling) its requests have the least
// urgent one. A request that finds the server overloaded is made again later.
//
// Threading: confined to the I/O thread; files are read and written on workers.
// Bounds:    kMaxBatches are remembered, the oldest that ended make room; kMaxUnfinished run or
//            wait. A day after it was made, a batch ends with what it has.
// Lifetime:  the host and the store outlive it; a stopped server forgets its batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include <heddle/engine.h>

#include "server/api_error.h"
#include "server/batch_input.h"
#include "server/body_sender.h"
#include "server/captured_exchange.h"
#include "server/file_store.h"

namespace heddle::server {

struct BatchHost {
  BodyThreads threads;
  std::function<void(double seconds, std::function<void()> work)> post_after;
  std::function<void(std::shared_ptr<Exchange> exchange)> dispatch;  // as a client's request
  std::function<Engine&()> engine;                                   // called once it is there
  std::function<int64_t()> unix_time;
};

struct BatchOrder {
  std::string input_file_id;
  std::string endpoint;
  nlohmann::ordered_json metadata = nullptr;
  std::shared_ptr<const ApiKey> key;  // whose it is; may be null
};

class BatchRunner {
 public:
  static constexpr size_t kMaxBatches = 1000;
  static constexpr size_t kMaxUnfinished = 64;
  static constexpr int64_t kWindowSeconds = 24 * 3600;
  static constexpr double kRetrySeconds = 1;

  BatchRunner(BatchHost host, FileStore& files) : host_(std::move(host)), files_(files) {}

  // The batch as its client is shown it.
  std::variant<nlohmann::ordered_json, ApiError> create(BatchOrder order);

  // Null for an unknown one and one of another holder.
  [[nodiscard]] nlohmann::ordered_json show(const std::string& id, std::string_view holder) const;

  // An array, the newest first.
  [[nodiscard]] nlohmann::ordered_json list(std::string_view holder) const;

  // Ends the requests that run, and keeps the answers there are. Null as show().
  nlohmann::ordered_json cancel(const std::string& id, std::string_view holder);

 private:
  struct Outputs;
  struct Batch;
  using BatchPointer = std::shared_ptr<Batch>;

  [[nodiscard]] BatchPointer find(const std::string& id, std::string_view holder) const;
  [[nodiscard]] static nlohmann::ordered_json describe(const Batch& batch);
  [[nodiscard]] static bool ended(const Batch& batch);
  void forget_oldest();

  // Runs one function on a worker, then the other on the I/O thread with its outcome.
  void work(std::function<Status()> on_worker, std::function<void(const Status&)> then);
  void start_next();
  void start(const BatchPointer& batch);
  void fail(const BatchPointer& batch, std::vector<BatchError> errors);
  void pump(const BatchPointer& batch);
  [[nodiscard]] bool has_room() const;
  void start_line(const BatchPointer& batch, size_t index);
  void on_answer(const BatchPointer& batch, size_t index, const std::string& request_id, int status,
                 const std::string& body);
  void write(const BatchPointer& batch, bool succeeded, std::string line);
  void finish(const BatchPointer& batch);

  const BatchHost host_;
  FileStore& files_;
  std::list<BatchPointer> batches_;   // the oldest first
  std::deque<BatchPointer> waiting_;  // for the active one to end
  BatchPointer active_;
};

}  // namespace heddle::server
