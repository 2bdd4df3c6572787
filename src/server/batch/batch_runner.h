// SPDX-License-Identifier: Apache-2.0
// BatchRunner: runs the batches of /v1/batches, one at a time, in the order of arrival. The
// requests of a batch are dispatched like all others, but give way to them. A batch uses at most
// half of the engine's batch slots, and it adds a request only while nothing waits in the queue (or
// none of its own requests runs). If the server has priorities (--enable-priority-scheduling), its
// requests have the lowest priority. A request that is refused for overload is sent again later.
//
// A batch survives a restart if the FileStore does. On disk it is a record, a JSON object that is
// replaced as a whole at each change of its state, and up to two files, to which lines are
// appended. They are written in this order:
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
// A client sees a new state only when the record has it, so that a server that starts later finds
// every state that a client saw. Only errors, and the end of a batch that is given up, are shown
// without being in the record.
//
// A cancellation is answered once its record is on disk. For every record that has not ended, a
// server that starts (restore(), resume()) finds one of these cases:
//
//   - The process ended before 2: there are no files. The batch starts.
//   - It ended before 7: the files have complete lines, and the last one may be torn. Lines are
//     read up to the first one that is incomplete, not of this batch or a duplicate (a power
//     failure may cause such lines, a killed process only the torn one); the file is cut off there.
//     The requests of the remaining lines are answered and counted, all others are sent again. If 4
//     was written, the batch continues with 5. A file that 6 finished is unfinished again.
//
// Therefore no request is lost and none has two lines. A request may be sent twice, if its answer
// arrived but its line was not written. Lines are written when answers arrive and synced with the
// file at the end (6): after a power failure, requests of the last seconds may be sent again.
//
// The 24 hours of a batch count from its creation, whether a server runs or not. A restored batch
// finds its key again by name. It ends as `failed` when the server has no such key any more, when
// no model is served by the name that it uses, or when its input file is gone or wrong.
//
// While the server drains, no request of a batch is sent; one that the drain cuts off is not
// counted and is sent again at the next start. The same holds while the engine has failed.
//
// When the disk or the store is full, the batch ends as `failed` with all lines that were counted.
// If the disk has no room for steps 4 to 7 either, they are retried until they succeed, and the
// batches after it wait. A server that starts before that resumes the batch.
//
// If these steps, or reading the files of a restored batch, fail for another reason, they are
// retried. After kMaxAttempts failures the batch is given up: its client sees it as `failed`, the
// next batch starts, and the record on disk stays as it is, so that a later server resumes the
// batch.
//
// Threading: confined to the I/O thread, except restore(); workers read and write the files.
// Bounds:    At most kMaxBatches are remembered. For a further one, the oldest ended batch of the
//            key with the most ended ones is forgotten. At most kMaxUnfinished run or wait, and a
//            holder may have only its share of them. A day after its creation a batch ends with the
//            answers that it has.
// Lifetime:  the host and the store outlive the runner.
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
  // Handles a request like a client's.
  std::function<void(std::shared_ptr<Exchange> exchange)> dispatch;
  std::function<Engine&()> engine;  // the engine; called only once it exists
  std::function<int64_t()> unix_time;
  std::function<bool()> draining;  // returns whether the server drains; thread-safe
  // The names of the served model, the server's own first. Called only once the engine exists.
  std::function<std::vector<std::string>()> model_names;
  // Finds an API key by its name; null: no such key.
  std::function<std::shared_ptr<const ApiKey>(const std::string& name)> find_key;
  double share = 1;  // part of the limits that one holder may use (ServerOptions::storage_share())
};

// The error for what the store or the disk refused: 413 `storage_full` where room is missing, else
// 500 `storage_failed`.
[[nodiscard]] ApiError storage_error(const Status& status, std::string message);

struct BatchOrder {
  std::string input_file_id;
  std::string endpoint;
  nlohmann::ordered_json metadata = nullptr;
  std::string holder;  // name of the key that created the batch; "" without one
};

class BatchRunner {
 public:
  static constexpr size_t kMaxBatches = 1000;
  static constexpr size_t kMaxUnfinished = 64;
  static constexpr int64_t kWindowSeconds = 24 * 3600;
  static constexpr double kRetrySeconds = 1;
  // Files that cannot be read are tried again after this many seconds.
  static constexpr double kRecoverySeconds = 30;
  static constexpr int kMaxAttempts = 20;

  // The batch as JSON for its client, null for an unknown batch or one of another holder, or an
  // error.
  using Shown = std::variant<nlohmann::ordered_json, ApiError>;
  using OnShown = std::function<void(Shown)>;

  BatchRunner(BatchHost host, FileStore& files) : host_(std::move(host)), files_(files) {}

  // Drops changes that are not on disk yet; no callback runs afterwards.
  ~BatchRunner();

  BatchRunner(const BatchRunner&) = delete;
  BatchRunner& operator=(const BatchRunner&) = delete;

  // Reads the records of earlier servers and deletes files that belong to no record. Called before
  // the other functions; waits for the disk.
  void restore();

  // Resumes the restored batches. Called once the engine exists.
  void resume();

  // Accepts a batch once its record is on disk, or refuses it at once. `on_shown` gets the outcome.
  void create(BatchOrder order, OnShown on_shown);

  [[nodiscard]] nlohmann::ordered_json show(const std::string& id, std::string_view holder) const;

  // The batches of a holder as an array, the newest first.
  [[nodiscard]] nlohmann::ordered_json list(std::string_view holder) const;

  // Ends the running requests of a batch and keeps the answers so far. `on_shown`: as for create().
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

  // Runs `on_worker` on a worker, then `then` on the I/O thread with its result.
  void work(std::function<Status()> on_worker, std::function<void(const Status&)> then);

  // Changes the record of a batch, on disk and then here, one change after the other. `then` gets
  // the outcome. If the record cannot be written, it is not changed.
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
  void leave(const BatchPointer& batch);
  [[nodiscard]] static bool may_retry(const BatchPointer& batch, const Status& status);
  void give_up(const BatchPointer& batch, const Status& status);
  void retry_later(const BatchPointer& batch, const Status& status,
                   void (BatchRunner::*step)(const BatchPointer&));

  const BatchHost host_;
  FileStore& files_;
  std::list<BatchPointer> batches_;   // all known batches, the oldest first
  std::deque<BatchPointer> waiting_;  // batches that wait for the active one to end
  BatchPointer active_;
  int64_t next_number_ = 0;
};

}  // namespace heddle::server
