// SPDX-License-Identifier: Apache-2.0
#include "server/batch_runner.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"
#include "core/mutex.h"
#include "server/caller.h"
#include "server/key_ring.h"
#include "server/request_gate.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

// Far below, or above where small values are urgent, all that clients give; differences of
// priorities stay within 64 bits.
constexpr int64_t kLeastUrgent = 1'000'000'000'000;

// Refusals that say nothing of the request itself.
constexpr std::array<std::string_view, 6> kPassing = {
    "queue_full", "queue_timeout", "displaced", "tenant_queue_full", "loading", "shutting_down"};

bool is_passing(int status, const std::string& body) {
  if (status != 503 && status != 429) return false;
  const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("error") || !json["error"].is_object()) return true;
  const Json code = json["error"].value("code", Json());
  return !code.is_string() ||
         std::ranges::find(kPassing, code.get_ref<const std::string&>()) != kPassing.end();
}

BatchError storage_failed(const Status& status) {
  return {.code = "storage_failed", .message = status.message()};
}

}  // namespace

// The two files that a batch writes, made with their first lines.
//
// Threading: thread-safe.
struct BatchRunner::Outputs {
  Outputs(FileStore& store, StoredFile description) : files(store), about(std::move(description)) {}

  Status write(bool succeeded, std::string_view line) HEDDLE_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    std::unique_ptr<FileWriter>& writer = succeeded ? output : errors;
    if (writer == nullptr) {
      StoredFile file = about;
      file.name += succeeded ? "_output.jsonl" : "_error.jsonl";
      HEDDLE_ASSIGN_OR_RETURN(writer, files.create(std::move(file)));
    }
    return writer->append(line);
  }

  struct Ids {
    std::string output;  // "": no such file
    std::string errors;
  };

  Status finish(Ids& ids) HEDDLE_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    for (const auto& [writer, id] : {std::pair{&output, &ids.output}, {&errors, &ids.errors}}) {
      if (*writer == nullptr) continue;
      HEDDLE_ASSIGN_OR_RETURN(const StoredFile file, (*writer)->finish());
      *id = file.id;
      writer->reset();
    }
    return ok_status();
  }

  FileStore& files;
  const StoredFile about;
  Mutex mutex;
  std::unique_ptr<FileWriter> output HEDDLE_GUARDED_BY(mutex);
  std::unique_ptr<FileWriter> errors HEDDLE_GUARDED_BY(mutex);
};

struct BatchRunner::Batch {
  std::string id;
  BatchOrder order;
  std::string status = "validating";
  int64_t created = 0;
  std::vector<std::pair<const char*, int64_t>> times;  // "completed_at" and the like
  std::vector<BatchError> errors;
  std::string output_file_id;
  std::string error_file_id;
  int64_t num_lines = 0;
  int64_t num_completed = 0;
  int64_t num_failed = 0;

  // While it is the active one.
  std::vector<BatchLine> lines;
  std::vector<bool> answered;  // per line
  std::deque<size_t> pending;  // lines to run
  std::map<size_t, std::shared_ptr<CapturedExchange>> live;
  std::shared_ptr<Outputs> outputs;
  size_t num_writing = 0;
  bool resting = false;          // after an overload
  std::string_view cut_short{};  // why lines are left: "batch_cancelled", "batch_expired"
  bool finishing = false;

  void enter(std::string_view next, const char* time_name, int64_t now) {
    status = next;
    times.emplace_back(time_name, now);
  }

  // Ends what runs; its lines stay unanswered.
  void drop_live() {
    pending.clear();
    for (const auto& [index, exchange] : std::exchange(live, {})) exchange->cancel();
  }
};

bool BatchRunner::ended(const Batch& batch) {
  return batch.status == "completed" || batch.status == "failed" || batch.status == "cancelled" ||
         batch.status == "expired";
}

Json BatchRunner::describe(const Batch& batch) {
  Json json = {{"id", batch.id},
               {"object", "batch"},
               {"endpoint", batch.order.endpoint},
               {"input_file_id", batch.order.input_file_id},
               {"completion_window", "24h"},
               {"status", batch.status},
               {"created_at", batch.created},
               {"expires_at", batch.created + kWindowSeconds},
               {"request_counts",
                {{"total", batch.num_lines},
                 {"completed", batch.num_completed},
                 {"failed", batch.num_failed}}},
               {"metadata", batch.order.metadata}};
  for (const auto& [name, time] : batch.times) json[name] = time;
  if (!batch.errors.empty()) json["errors"] = errors_json(batch.errors);
  if (!batch.output_file_id.empty()) json["output_file_id"] = batch.output_file_id;
  if (!batch.error_file_id.empty()) json["error_file_id"] = batch.error_file_id;
  return json;
}

std::variant<Json, ApiError> BatchRunner::create(BatchOrder order) {
  const auto num_unfinished =
      std::ranges::count_if(batches_, [](const BatchPointer& batch) { return !ended(*batch); });
  if (static_cast<size_t>(num_unfinished) >= kMaxUnfinished) {
    return ApiError{.status = 429,
                    .code = "batch_queue_full",
                    .message = fmt::format("{} batches run or wait. Retry later.", num_unfinished),
                    .retry_after_seconds = 60};
  }
  const auto batch = std::make_shared<Batch>();
  batch->id = new_request_id("batch_");
  batch->order = std::move(order);
  batch->created = host_.unix_time();
  if (batches_.size() >= kMaxBatches) forget_oldest();
  batches_.push_back(batch);
  waiting_.push_back(batch);
  Json shown = describe(*batch);
  start_next();
  return shown;
}

void BatchRunner::forget_oldest() {
  const auto oldest =
      std::ranges::find_if(batches_, [](const BatchPointer& batch) { return ended(*batch); });
  if (oldest != batches_.end()) batches_.erase(oldest);
}

BatchRunner::BatchPointer BatchRunner::find(const std::string& id, std::string_view holder) const {
  const auto found = std::ranges::find_if(batches_, [&](const BatchPointer& batch) {
    return batch->id == id && holder_of(batch->order.key) == holder;
  });
  return found == batches_.end() ? nullptr : *found;
}

Json BatchRunner::show(const std::string& id, std::string_view holder) const {
  const BatchPointer batch = find(id, holder);
  return batch == nullptr ? Json() : describe(*batch);
}

Json BatchRunner::list(std::string_view holder) const {
  Json shown = Json::array();
  for (auto batch = batches_.rbegin(); batch != batches_.rend(); ++batch) {
    if (holder_of((*batch)->order.key) == holder) shown.push_back(describe(**batch));
  }
  return shown;
}

Json BatchRunner::cancel(const std::string& id, std::string_view holder) {
  const BatchPointer batch = find(id, holder);
  if (batch == nullptr) return {};
  if (!ended(*batch) && !batch->finishing && batch->cut_short.empty()) {
    batch->cut_short = "batch_cancelled";
    batch->enter("cancelling", "cancelling_at", host_.unix_time());
    if (batch == active_) {
      batch->drop_live();
      pump(batch);
    } else {
      std::erase(waiting_, batch);
      batch->enter("cancelled", "cancelled_at", host_.unix_time());
    }
  }
  return describe(*batch);
}

void BatchRunner::work(std::function<Status()> on_worker, std::function<void(const Status&)> then) {
  const auto both = [this, on_worker, then] {
    Status status;
    try {
      status = on_worker();
    } catch (const std::exception& failure) {  // out of memory
      status = internal_error(failure.what());
    }
    host_.threads.post([then, status] { then(status); });
  };
  if (!host_.threads.run_on_worker(both)) {
    host_.post_after(kRetrySeconds, [this, on_worker, then] { work(on_worker, then); });
  }
}

void BatchRunner::start_next() {
  if (active_ != nullptr || waiting_.empty()) return;
  active_ = waiting_.front();
  waiting_.pop_front();
  start(active_);
}

void BatchRunner::start(const BatchPointer& batch) {
  using Input = std::variant<std::vector<BatchLine>, std::vector<BatchError>>;
  const auto input = std::make_shared<Input>();
  work(
      [this, input, file = batch->order.input_file_id, endpoint = batch->order.endpoint] {
        HEDDLE_ASSIGN_OR_RETURN(const std::string text, files_.read(file));
        *input = read_batch_input(text, endpoint);
        return ok_status();
      },
      [this, input, batch](const Status& status) {
        auto* const errors = std::get_if<std::vector<BatchError>>(input.get());
        if (!status.ok() || errors != nullptr) {
          fail(batch, status.ok() ? std::move(*errors) : std::vector{storage_failed(status)});
          return;
        }
        batch->lines = std::get<std::vector<BatchLine>>(std::move(*input));
        batch->num_lines = std::ssize(batch->lines);
        batch->answered.resize(batch->lines.size());
        batch->outputs =
            std::make_shared<Outputs>(files_, StoredFile{.name = batch->id,
                                                         .purpose = "batch_output",
                                                         .holder = holder_of(batch->order.key),
                                                         .created = host_.unix_time()});
        if (batch->cut_short.empty()) {
          batch->enter("in_progress", "in_progress_at", host_.unix_time());
          for (size_t i = 0; i < batch->lines.size(); ++i) batch->pending.push_back(i);
        }
        pump(batch);
      });
}

// Before anything of it ran.
void BatchRunner::fail(const BatchPointer& batch, std::vector<BatchError> errors) {
  batch->errors = std::move(errors);
  batch->enter("failed", "failed_at", host_.unix_time());
  active_ = nullptr;
  start_next();
}

bool BatchRunner::has_room() const {
  const Engine& engine = host_.engine();
  const auto num_running = static_cast<int64_t>(active_->live.size() + active_->num_writing);
  if (num_running == 0) return true;
  return num_running < engine.memory_plan().max_running_requests / 2 &&
         engine.stats().num_waiting == 0;
}

void BatchRunner::pump(const BatchPointer& batch) {
  if (batch != active_ || batch->finishing || batch->outputs == nullptr) return;
  if (batch->cut_short.empty() && host_.unix_time() >= batch->created + kWindowSeconds) {
    batch->cut_short = "batch_expired";
    batch->drop_live();
  }
  while (!batch->pending.empty() && !batch->resting && has_room()) {
    const size_t index = batch->pending.front();
    batch->pending.pop_front();
    start_line(batch, index);
  }
  if (batch->pending.empty() && batch->live.empty() && batch->num_writing == 0) finish(batch);
}

void BatchRunner::start_line(const BatchPointer& batch, size_t index) {
  const std::string& path = batch->order.endpoint;
  HttpRequest request{.method = "POST",
                      .path = path,
                      .query = {},
                      .headers = {{"content-type", "application/json"}},
                      .body = batch->lines[index].body,
                      .id = new_request_id(request_id_prefix(path)),
                      .arrived_at = std::chrono::steady_clock::now(),
                      .key = batch->order.key};
  const SchedulingOptions& scheduling = host_.engine().options().scheduling;
  if (scheduling.enable_priority) {
    request.headers.emplace_back(
        "x-priority", std::to_string(scheduling.low_values_first ? kLeastUrgent : -kLeastUrgent));
  }
  const std::string id = request.id;
  // The batch has its exchanges, which do not have it: a server that stops forgets both.
  const auto exchange = std::make_shared<CapturedExchange>(
      std::move(request),
      [this, weak = std::weak_ptr(batch), index, id](const HttpResponse& answer) {
        if (const BatchPointer here = weak.lock()) {
          on_answer(here, index, id, answer.status, answer.body);
        }
      });
  batch->live.emplace(index, exchange);
  host_.dispatch(exchange);
}

void BatchRunner::on_answer(const BatchPointer& batch, size_t index, const std::string& request_id,
                            int status, const std::string& body) {
  batch->live.erase(index);
  if (is_passing(status, body)) {
    batch->pending.push_front(index);
    if (!std::exchange(batch->resting, true)) {
      host_.post_after(kRetrySeconds, [this, batch] {
        batch->resting = false;
        pump(batch);
      });
    }
    return;
  }
  batch->answered[index] = true;
  const bool succeeded = status == 200;
  ++(succeeded ? batch->num_completed : batch->num_failed);
  const std::string& custom_id = batch->lines[index].custom_id;
  write(batch, succeeded,
        status != 0 ? batch_output_line(custom_id, request_id, status, body)
                    : batch_error_line(
                          custom_id, "answer_too_long",
                          fmt::format("The answer has more than {} bytes.", kMaxCapturedBytes)));
}

void BatchRunner::write(const BatchPointer& batch, bool succeeded, std::string line) {
  ++batch->num_writing;
  work([outputs = batch->outputs, succeeded,
        line = std::move(line)] { return outputs->write(succeeded, line); },
       [this, batch](const Status& status) {
         --batch->num_writing;
         if (!status.ok() && batch->errors.empty()) {
           batch->errors.push_back(storage_failed(status));
           batch->cut_short = "batch_failed";
           batch->drop_live();
         }
         pump(batch);
       });
}

// Lines that were not answered go to the error file.
void BatchRunner::finish(const BatchPointer& batch) {
  batch->finishing = true;
  if (batch->cut_short.empty()) {
    batch->enter("finalizing", "finalizing_at", host_.unix_time());
  }
  const auto ids = std::make_shared<Outputs::Ids>();
  work(
      [batch, ids, outputs = batch->outputs, reason = std::string(batch->cut_short)] {
        for (size_t i = 0; i < batch->lines.size() && !reason.empty(); ++i) {
          if (batch->answered[i]) continue;
          const Status written = outputs->write(
              false, batch_error_line(batch->lines[i].custom_id, reason,
                                      "The batch ended before this request was answered."));
          if (!written.ok()) break;  // the store is full: what is written stays
        }
        return outputs->finish(*ids);
      },
      [this, batch, ids](const Status& status) {
        const int64_t now = host_.unix_time();
        batch->output_file_id = ids->output;
        batch->error_file_id = ids->errors;
        if (!status.ok() && batch->errors.empty()) {
          batch->errors.push_back(storage_failed(status));
        }
        if (!batch->errors.empty()) {
          batch->enter("failed", "failed_at", now);
        } else if (batch->cut_short == "batch_cancelled") {
          batch->enter("cancelled", "cancelled_at", now);
        } else if (batch->cut_short == "batch_expired") {
          batch->enter("expired", "expired_at", now);
        } else {
          batch->enter("completed", "completed_at", now);
        }
        log_info(fmt::format("Batch {} {}: {} of {} requests completed, {} failed", batch->id,
                             batch->status, batch->num_completed, batch->num_lines,
                             batch->num_failed));
        batch->outputs = nullptr;
        batch->lines = {};
        batch->answered = {};
        active_ = nullptr;
        start_next();
      });
}

}  // namespace heddle::server
