// SPDX-License-Identifier: Apache-2.0
// BatchRunner: runs the batches of /v1/batches, one at a time, in the order they came. The requests
// of a batch go the way of every other request, behind them: only half of the engine's places are
// for a batch, it adds a request only while nothing waits in the queue (or none of its own runs),
// and where the server has priorities (--enable-priority-scheduling) its requests have the least
// urgent one. A request that finds the server overloaded is made again later.
//
// A batch outlives the process where the FileStore does. On disk it is a record, a JSON object that
// is replaced whole at each change of its state, and up to two files, to which lines are appended.
// They are written in this order:
//
//   1. The record, `validating`. Then the client is told that the batch is accepted.
//   2. The record, `in_progress`, with the number of requests. Then requests are made.
//   3. Per answer: its line, to the output or the error file. Then the answer is counted.
//   4. The record, `finalizing`, or with the reason why the batch is cut short (`cancelling`,
//      expired, failed) and its errors. From here on no request is made.
//   5. Where it is cut short: a line in the error file per request that has no answer.
//   6. Both files are synced and described, and so become files of the store.
//   7. The record, `completed`, `failed`, `expired` or `cancelled`, with the counts.
//
// A client is shown a state once the record says it: what it saw is what a server finds that starts
// later. Errors alone are shown before.
//
// A cancellation is answered once its record is on disk. A server that starts (restore(), resume())
// finds for every record that has not ended:
//
//   - the process ended before 2: there are no files. The batch starts.
//   - before 7: the files have whole lines, and the last one may be torn. Lines are read up to the
//     first one that is not whole, not of this batch or there twice (a power failure may leave
//     such, a killed process only the torn one); the file is cut off there. The requests of the
//     lines that stay are answered and counted, all others are made again. If 4 was written, the
//     batch goes on with 5. A file that 6 finished is an unfinished one again.
//
// Therefore no request is lost and none has two lines. A request may be made twice: its answer came
// and its line was not written. Lines are written when they come and synced with the file at the
// end (6): after a power failure, requests of the last seconds may be made again.
//
// A batch waits its 24 hours from its creation on, whether a server runs or not. A restored batch
// has its key again, by name: it ends as `failed` when the server has no such key any more, when
// its model is not served by that name, and when its input file is gone or wrong.
//
// While the server drains, no request of a batch is made; one that the drain cuts off is not
// counted and is made again at the next start. The same holds while the engine is out of order.
//
// When the disk or the store is full, the batch ends as `failed` with all lines that were counted.
// If the disk has no room for steps 4 to 7 either, these are repeated until they are done, and
// the batches after it wait; a server that starts before that goes on with the batch.
//
// Threading: confined to the I/O thread, except for restore(); files are read and written on
//            workers.
// Bounds:    kMaxBatches are remembered, those that ended make room, the oldest of the key that has
//            most; kMaxUnfinished run or wait, and of them a share for one holder. A day after it
//            was made, a batch ends with what it has.
// Lifetime:  the host and the store outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include <heddle/engine.h>

#include "server/batch/batch_input.h"
#include "server/http/api_error.h"
#include "server/http/body_sender.h"
#include "server/http/captured_exchange.h"
#include "server/storage/file_store.h"

namespace heddle::server {

struct BatchHost {
  BodyThreads threads;
  std::function<void(double seconds, std::function<void()> work)> post_after;
  std::function<void(std::shared_ptr<Exchange> exchange)> dispatch;  // as a client's request
  std::function<Engine&()> engine;                                   // called once it is there
  std::function<int64_t()> unix_time;
  std::function<bool()> draining;  // thread-safe
  // Of the server, once the engine is there; the first one is its own.
  std::function<std::vector<std::string>()> model_names;
  std::function<std::shared_ptr<const ApiKey>(const std::string& name)> find_key;  // null: none
  double share = 1;  // ServerOptions::storage_share()
};

struct BatchOrder {
  std::string input_file_id;
  std::string endpoint;
  nlohmann::ordered_json metadata = nullptr;
  std::string holder;  // name of the key that made it; "" without one
};

class BatchRunner {
 public:
  static constexpr size_t kMaxBatches = 1000;
  static constexpr size_t kMaxUnfinished = 64;
  static constexpr int64_t kWindowSeconds = 24 * 3600;
  static constexpr double kRetrySeconds = 1;
  static constexpr double kRecoverySeconds = 30;  // until files are tried again that cannot be read

  // The batch as its client is shown it, null for an unknown one and one of another holder; or why
  // not.
  using Shown = std::variant<nlohmann::ordered_json, ApiError>;
  using OnShown = std::function<void(Shown)>;

  BatchRunner(BatchHost host, FileStore& files) : host_(std::move(host)), files_(files) {}

  // Changes that are not on disk yet are dropped; nothing calls back from then on.
  ~BatchRunner();

  BatchRunner(const BatchRunner&) = delete;
  BatchRunner& operator=(const BatchRunner&) = delete;

  // Reads the records of earlier servers and removes the files that belong to nothing. Before the
  // first other call; waits for the disk.
  void restore();

  // Goes on with the batches that were restored. The engine is there.
  void resume();

  // Accepts a batch, once it is on disk. `on_shown` is called by then or at once.
  void create(BatchOrder order, OnShown on_shown);

  [[nodiscard]] nlohmann::ordered_json show(const std::string& id, std::string_view holder) const;

  // An array, the newest first.
  [[nodiscard]] nlohmann::ordered_json list(std::string_view holder) const;

  // Ends the requests that run, and keeps the answers there are. Answers as create().
  void cancel(const std::string& id, std::string_view holder, OnShown on_shown);

 private:
  struct Record;
  struct Outputs;
  struct Batch;
  using BatchPointer = std::shared_ptr<Batch>;

  [[nodiscard]] BatchPointer find(const std::string& id, std::string_view holder) const;
  [[nodiscard]] static nlohmann::ordered_json describe(const Batch& batch);
  [[nodiscard]] std::optional<ApiError> no_room_for(const std::string& holder) const;
  void forget_oldest();
  void restore_one(const std::string& id, Record record);

  // Runs one function on a worker, then the other on the I/O thread with its outcome.
  void work(std::function<Status()> on_worker, std::function<void(const Status&)> then);

  // Changes the record of a batch, on disk and then here, one change after the other. `then` gets
  // the outcome; a record that could not be written is as before.
  void change(const BatchPointer& batch, std::function<void(Record&)> edit,
              std::function<void(const Status&)> then);
  void write_next_change(const BatchPointer& batch);

  void start_next();
  void start(const BatchPointer& batch);
  [[nodiscard]] std::optional<BatchError> refusal_of(const Record& record) const;
  void run(const BatchPointer& batch);
  void pump(const BatchPointer& batch);
  [[nodiscard]] bool may_run() const;
  [[nodiscard]] bool has_room() const;
  void start_line(const BatchPointer& batch, size_t index, std::shared_ptr<const ApiKey> key);
  void on_answer(const BatchPointer& batch, size_t index, const std::string& request_id, int status,
                 const std::string& body);
  void write(const BatchPointer& batch, size_t index, bool succeeded, std::string line);
  void rest(const BatchPointer& batch);
  void cut_short(const BatchPointer& batch, std::string_view reason,
                 std::optional<BatchError> error);
  void finish(const BatchPointer& batch);
  void write_unanswered(const BatchPointer& batch);
  void finish_files(const BatchPointer& batch);
  void end(const BatchPointer& batch);
  void retry_later(const BatchPointer& batch, const Status& status,
                   void (BatchRunner::*step)(const BatchPointer&));

  const BatchHost host_;
  FileStore& files_;
  std::list<BatchPointer> batches_;   // the oldest first
  std::deque<BatchPointer> waiting_;  // for the active one to end
  BatchPointer active_;
  int64_t next_number_ = 0;
};

}  // namespace heddle::server
