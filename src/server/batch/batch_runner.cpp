// SPDX-License-Identifier: Apache-2.0
#include "server/batch/batch_runner.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/log.h"
#include "core/mutex.h"
#include "server/http/caller.h"
#include "server/http/json_text.h"
#include "server/http/key_ring.h"
#include "server/http/request_gate.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

// Priority for batches: far less urgent than any that clients use (negated if larger values are
// more urgent). Differences of priorities still fit into 64 bits.
constexpr int64_t kLeastUrgent = 1'000'000'000'000;

constexpr int kRecordVersion = 1;

// Error codes that say nothing about the request itself, so that it is sent again.
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

bool has_ended(std::string_view status) {
  return status == "completed" || status == "failed" || status == "cancelled" ||
         status == "expired";
}

// Frees the buffer that getline() allocates.
struct LineBuffer {
  ~LineBuffer() { std::free(text); }

  char* text = nullptr;
  size_t capacity = 0;
};

// Calls `on_line` with each complete line of a file, including its line break, until it returns
// false. Closes the file. Error: the file cannot be read.
template <typename OnLine>
Status for_each_line(std::FILE* stream, OnLine on_line) {
  LineBuffer line;
  ssize_t size = 0;
  while ((size = ::getline(&line.text, &line.capacity, stream)) > 0) {
    const std::string_view text(line.text, static_cast<size_t>(size));
    if (!text.ends_with('\n') || !on_line(text)) break;
  }
  const int error = std::ferror(stream) != 0 ? errno : 0;
  std::fclose(stream);
  return error == 0 ? ok_status() : disk_error("read", error);
}

}  // namespace

// The part of a batch that is stored on disk.
struct BatchRunner::Record {
  int64_t number = 0;  // number of the batch, in order of creation
  BatchOrder order;
  std::string model;  // the server's name of the model that the batch uses
  std::string status = "validating";
  int64_t created = 0;
  // Times of changes of the status, by name, as "completed_at".
  std::vector<std::pair<std::string, int64_t>> times;
  // Error code for the lines without answers; "": the batch is not cut short.
  std::string cut_short;
  std::vector<BatchError> errors;
  std::string output_file_id;  // id of the output file, which may not exist yet
  std::string error_file_id;
  bool has_output = false;  // the output file is in the store
  bool has_errors = false;
  int64_t num_lines = 0;
  int64_t num_completed = 0;
  int64_t num_failed = 0;

  [[nodiscard]] bool ended() const { return has_ended(status); }

  void enter(std::string_view next, int64_t now) {
    status = next;
    const std::string name = status + "_at";
    const auto known = std::ranges::find(times, name, &std::pair<std::string, int64_t>::first);
    if (known == times.end()) times.emplace_back(name, now);
  }

  // Notes that the batch ends; `reason` and `problems` as in Batch.
  void enter_end(const std::string& reason, const std::vector<BatchError>& problems, int64_t now) {
    if (ended()) return;
    cut_short = reason;
    errors = problems;
    if (reason.empty()) enter("finalizing", now);
    if (reason == kBatchCancelled) enter("cancelling", now);
  }

  [[nodiscard]] std::string to_text() const {
    Json json = {{"version", kRecordVersion},
                 {"number", number},
                 {"input_file_id", order.input_file_id},
                 {"endpoint", order.endpoint},
                 {"metadata", order.metadata},
                 {"holder", order.holder},
                 {"model", model},
                 {"status", status},
                 {"created_at", created},
                 {"times", times},
                 {"cut_short", cut_short},
                 {"errors", Json::array()},
                 {"output_file_id", output_file_id},
                 {"error_file_id", error_file_id},
                 {"has_output", has_output},
                 {"has_errors", has_errors},
                 {"total", num_lines},
                 {"completed", num_completed},
                 {"failed", num_failed}};
    for (const BatchError& error : errors) {
      json["errors"].push_back({{"code", error.code},
                                {"message", error.message},
                                {"param", error.param},
                                {"line", error.line}});
    }
    return dump_json(json) + "\n";
  }

  // Parses a record; none if the text is not a record of this version.
  static std::optional<Record> from_text(std::string_view text) {
    try {
      const Json json = Json::parse(text);
      if (json.at("version") != kRecordVersion) return std::nullopt;
      Record record;
      json.at("number").get_to(record.number);
      json.at("input_file_id").get_to(record.order.input_file_id);
      json.at("endpoint").get_to(record.order.endpoint);
      record.order.metadata = json.at("metadata");
      json.at("holder").get_to(record.order.holder);
      json.at("model").get_to(record.model);
      json.at("status").get_to(record.status);
      json.at("created_at").get_to(record.created);
      json.at("times").get_to(record.times);
      json.at("cut_short").get_to(record.cut_short);
      for (const Json& error : json.at("errors")) {
        record.errors.push_back({.code = error.at("code"),
                                 .message = error.at("message"),
                                 .param = error.at("param"),
                                 .line = error.at("line")});
      }
      json.at("output_file_id").get_to(record.output_file_id);
      json.at("error_file_id").get_to(record.error_file_id);
      json.at("has_output").get_to(record.has_output);
      json.at("has_errors").get_to(record.has_errors);
      json.at("total").get_to(record.num_lines);
      json.at("completed").get_to(record.num_completed);
      json.at("failed").get_to(record.num_failed);
      return record;
    } catch (const Json::exception&) {
      return std::nullopt;
    }
  }
};

// The output and the error file of a batch, each created with its first line.
//
// Threading: thread-safe.
struct BatchRunner::Outputs {
  Outputs(FileStore& store, const std::string& batch_id, const Record& record, int64_t now)
      : files(store),
        output{.file = {.id = record.output_file_id,
                        .name = batch_id + "_output.jsonl",
                        .purpose = "batch_output",
                        .holder = record.order.holder,
                        .created = now}},
        errors{.file = output.file} {
    errors.file.id = record.error_file_id;
    errors.file.name = batch_id + "_error.jsonl";
  }

  Status write(bool succeeded, std::string_view line) HEDDLE_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    Part& part = succeeded ? output : errors;
    if (part.writer == nullptr) {
      HEDDLE_ASSIGN_OR_RETURN(part.writer, files.create(part.file));
    }
    return part.writer->append(line);
  }

  // The content of files that earlier servers wrote.
  struct Recovered {
    std::vector<bool> answered;  // for each line of the input: it has an answer
    int64_t num_completed = 0;
    int64_t num_failed = 0;
  };

  // Reads the files that exist and continues them. If `lines` is empty, because the input cannot be
  // read, all complete lines are kept.
  Status recover(const std::vector<BatchLine>& lines, Recovered& recovered) HEDDLE_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    std::unordered_map<std::string_view, size_t> indices;
    for (size_t i = 0; i < lines.size(); ++i) indices.emplace(lines[i].custom_id, i);
    recovered.answered.assign(lines.size(), false);
    std::unordered_set<std::string> unknown;  // ids in the files, used if `lines` is empty
    const auto is_first = [&](const WrittenLine& line) {
      if (lines.empty()) return unknown.insert(line.custom_id).second;
      const auto found = indices.find(line.custom_id);
      if (found == indices.end() || recovered.answered[found->second]) return false;
      recovered.answered[found->second] = true;
      return true;
    };
    for (Part* const part : {&output, &errors}) {
      int64_t& count = part == &output ? recovered.num_completed : recovered.num_failed;
      auto writer = files.resume(part->file);
      if (!writer.ok() && writer.status().code() == StatusCode::kNotFound) continue;
      HEDDLE_RETURN_IF_ERROR(writer.status());
      std::FILE* const stream = files.open_for_reading(part->file.id);
      if (stream == nullptr) return not_found("an output file is gone");
      int64_t num_whole = 0;  // bytes of complete lines
      HEDDLE_RETURN_IF_ERROR(for_each_line(stream, [&](std::string_view text) {
        const auto line = read_written_line(text);
        if (!line || !is_first(*line)) return false;
        if (line->is_answered) ++count;
        num_whole += std::ssize(text);
        return true;
      }));
      if (num_whole < (*writer)->num_bytes()) {
        HEDDLE_RETURN_IF_ERROR((*writer)->truncate(num_whole));
      }
      if (num_whole == 0) {
        HEDDLE_RETURN_IF_ERROR((*writer)->finish());  // finish() deletes an empty file
      } else {
        part->writer = std::move(writer).value();
      }
    }
    return ok_status();
  }

  // Finishes those of the two files that exist, which puts them into the store.
  Status finish() HEDDLE_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    Status status;
    for (Part* const part : {&output, &errors}) {
      if (part->writer == nullptr) continue;
      const Status finished = part->writer->finish();
      if (status.ok()) status = finished;
    }
    return status;
  }

  [[nodiscard]] bool has(bool succeeded) HEDDLE_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    const Part& part = succeeded ? output : errors;
    return part.writer != nullptr && part.writer->num_bytes() > 0;
  }

  struct Part {
    StoredFile file;
    std::unique_ptr<FileWriter> writer;  // null: no line was written yet
  };

  FileStore& files;
  Mutex mutex;
  Part output HEDDLE_GUARDED_BY(mutex);
  Part errors HEDDLE_GUARDED_BY(mutex);
};

struct BatchRunner::Batch {
  std::string id;
  Record record;  // as it is on disk
  bool accepted = false;
  bool forgotten = false;
  bool given_up = false;  // its record on disk stays as it is, for a server that starts later
  int64_t num_lines = 0;
  int64_t num_completed = 0;
  int64_t num_failed = 0;

  struct Change {
    std::function<void(Record&)> edit;
    std::function<void(const Status&)> then;
  };

  std::deque<Change> changes;  // the first one is being written

  // The members below are used while this batch is the active one.
  std::vector<BatchLine> lines;
  std::vector<bool> answered;  // for each line: its answer is in a file
  std::deque<size_t> pending;  // indices of lines whose requests are not sent yet
  std::map<size_t, std::shared_ptr<CapturedExchange>> live;
  std::shared_ptr<Outputs> outputs;
  size_t num_writing = 0;
  bool loaded = false;   // the input was read
  bool running = false;  // requests may be sent
  bool resting = false;  // no requests are sent for a while after an overload
  std::string reason;    // the value for the record's `cut_short`; "": the batch is not cut short
  std::vector<BatchError> errors;  // the errors for the record if the batch is cut short
  bool finishing = false;
  bool waits_for_disk = false;  // a step of ending the batch failed and is retried
  int num_failures = 0;         // failures of such steps that more room on the disk does not cure

  // Cancels the running requests; their lines stay without answers.
  void drop_live() {
    pending.clear();
    for (const auto& [index, exchange] : std::exchange(live, {})) exchange->cancel();
  }
};

ApiError storage_error(const Status& status, std::string message) {
  const bool is_full = status.code() == StatusCode::kResourceExhausted;
  return {.status = is_full ? 413 : 500,
          .code = is_full ? "storage_full" : "storage_failed",
          .message = std::move(message)};
}

// Callbacks of changes and requests hold their batch; clearing them breaks that cycle.
BatchRunner::~BatchRunner() {
  for (const BatchPointer& batch : batches_) {
    std::exchange(batch->changes, {});
    std::exchange(batch->live, {});
  }
}

Json BatchRunner::describe(const Batch& batch) {
  const Record& record = batch.record;
  Json json = {{"id", batch.id},
               {"object", "batch"},
               {"endpoint", record.order.endpoint},
               {"input_file_id", record.order.input_file_id},
               {"completion_window", "24h"},
               {"status", record.status},
               {"created_at", record.created},
               {"expires_at", record.created + kWindowSeconds},
               {"request_counts",
                {{"total", batch.num_lines},
                 {"completed", batch.num_completed},
                 {"failed", batch.num_failed}}},
               {"metadata", record.order.metadata}};
  for (const auto& [name, time] : record.times) json[name] = time;
  // Errors are shown even before they are on disk, so that a client learns that the disk is full.
  const auto& errors = record.errors.empty() ? batch.errors : record.errors;
  if (!errors.empty()) json["errors"] = errors_json(errors);
  if (record.has_output) json["output_file_id"] = record.output_file_id;
  if (record.has_errors) json["error_file_id"] = record.error_file_id;
  return json;
}

void BatchRunner::restore() {
  const auto texts = files_.read_records();
  bool is_complete = texts.ok();
  std::vector<std::pair<std::string, Record>> records;
  for (const auto& [id, text] : texts.ok() ? *texts : std::map<std::string, std::string>()) {
    if (auto record = Record::from_text(text)) {
      records.emplace_back(id, *std::move(record));
    } else {
      log_warning(
          fmt::format("The record of {} in the storage folder cannot be read: this server "
                      "leaves it and its files as they are",
                      id));
      is_complete = false;
    }
  }
  std::ranges::sort(records, {}, [](const auto& entry) { return entry.second.number; });
  std::set<std::string> unfinished;
  for (auto& [id, record] : records) {
    if (!record.ended()) unfinished.insert({record.output_file_id, record.error_file_id});
    restore_one(id, std::move(record));
  }
  if (is_complete) files_.remove_orphans(unfinished);
  if (!waiting_.empty()) log_info(fmt::format("{} batches go on where they were", waiting_.size()));
}

// Counts the lines from the record for clients that ask before recover() has read them.
void BatchRunner::restore_one(const std::string& id, Record record) {
  const auto batch = std::make_shared<Batch>();
  batch->id = id;
  batch->record = std::move(record);
  batch->accepted = true;
  const Record& known = batch->record;
  batch->num_lines = known.num_lines;
  batch->num_completed = known.num_completed;
  batch->num_failed = known.num_failed;
  if (!known.ended()) {
    const auto count_lines = [this](const std::string& file) {
      int64_t count = 0;
      std::FILE* const stream = files_.open_for_reading(file);
      if (stream == nullptr) return count;
      static_cast<void>(for_each_line(stream, [&count](std::string_view) { return ++count > 0; }));
      return count;
    };
    batch->num_completed = count_lines(known.output_file_id);
    if (known.cut_short.empty()) batch->num_failed = count_lines(known.error_file_id);
    waiting_.push_back(batch);
  }
  next_number_ = std::max(next_number_, known.number + 1);
  if (batches_.size() >= kMaxBatches) forget_oldest();
  batches_.push_back(batch);
}

void BatchRunner::resume() { start_next(); }

std::optional<ApiError> BatchRunner::no_room_for(const std::string& holder) const {
  size_t num_unfinished = 0;
  size_t num_own = 0;
  for (const BatchPointer& batch : batches_) {
    if (batch->record.ended()) continue;
    ++num_unfinished;
    if (batch->record.order.holder == holder) ++num_own;
  }
  const bool share_is_used = num_own >= share_of(kMaxUnfinished, host_.share);
  if (num_unfinished < kMaxUnfinished && !share_is_used) return std::nullopt;
  return ApiError{
      .status = 429,
      .code = "batch_queue_full",
      .message =
          num_unfinished < kMaxUnfinished
              ? fmt::format("{} of your batches run or wait, the share of a key. Retry later.",
                            num_own)
              : fmt::format("{} batches run or wait. Retry later.", num_unfinished),
      .retry_after_seconds = 60};
}

void BatchRunner::create(BatchOrder order, OnShown on_shown) {
  if (auto error = no_room_for(order.holder)) return on_shown(*std::move(error));
  const auto batch = std::make_shared<Batch>();
  batch->id = new_request_id("batch_");
  Record& record = batch->record;
  record.number = next_number_++;
  record.order = std::move(order);
  record.model = host_.model_names().front();
  record.created = host_.unix_time();
  record.output_file_id = FileStore::new_id();
  record.error_file_id = FileStore::new_id();
  if (batches_.size() >= kMaxBatches) forget_oldest();
  batches_.push_back(batch);
  work(
      [this, id = batch->id, text = record.to_text()] {
        const Status saved = files_.save_record(id, text);
        if (!saved.ok()) files_.remove_record(id);  // it exists if only its sync failed
        return saved;
      },
      [this, batch, on_shown = std::move(on_shown)](const Status& status) {
        if (!status.ok()) {
          batches_.remove(batch);
          return on_shown(storage_error(
              status, fmt::format("The batch was not accepted: {}.", status.message())));
        }
        batch->accepted = true;
        waiting_.push_back(batch);
        on_shown(describe(*batch));
        start_next();
      });
}

// Forgets the oldest ended batch of the key that has most batches. Those that were given up stay,
// since their records on disk are for a later server.
void BatchRunner::forget_oldest() {
  const auto may_go = [](const BatchPointer& batch) {
    return batch->record.ended() && !batch->given_up;
  };
  std::map<std::string_view, size_t> num_ended;
  for (const BatchPointer& batch : batches_) {
    if (may_go(batch)) ++num_ended[batch->record.order.holder];
  }
  const auto most =
      std::ranges::max_element(num_ended, {}, [](const auto& entry) { return entry.second; });
  if (most == num_ended.end()) return;
  const auto oldest = std::ranges::find_if(batches_, [&](const BatchPointer& batch) {
    return may_go(batch) && batch->record.order.holder == most->first;
  });
  (*oldest)->forgotten = true;
  work(
      [this, id = (*oldest)->id] {
        files_.remove_record(id);
        return ok_status();
      },
      [](const Status&) {});
  batches_.erase(oldest);
}

BatchRunner::BatchPointer BatchRunner::find(const std::string& id, std::string_view holder) const {
  const auto found = std::ranges::find_if(batches_, [&](const BatchPointer& batch) {
    return batch->id == id && batch->accepted && batch->record.order.holder == holder;
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
    if ((*batch)->accepted && (*batch)->record.order.holder == holder) {
      shown.push_back(describe(**batch));
    }
  }
  return shown;
}

void BatchRunner::cancel(const std::string& id, std::string_view holder, OnShown on_shown) {
  const BatchPointer batch = find(id, holder);
  if (batch == nullptr) return on_shown(Json());
  const Record& stored = batch->record;
  if (stored.ended() || !stored.cut_short.empty() || stored.status == "finalizing") {
    return on_shown(describe(*batch));
  }
  const bool is_first = batch->reason.empty() && !batch->finishing;
  if (is_first) {
    batch->reason = kBatchCancelled;
    batch->drop_live();
  }
  // A batch that has begun ends as the active one, so that its unanswered requests get their error
  // lines.
  const bool ends_here = is_first && batch != active_ && stored.status == "validating";
  if (ends_here) std::erase(waiting_, batch);
  change(
      batch,
      [batch, ends_here, now = host_.unix_time()](Record& record) {
        record.enter_end(batch->reason, batch->errors, now);
        if (ends_here) record.enter("cancelled", now);
      },
      [this, batch, ends_here, on_shown = std::move(on_shown)](const Status& status) {
        if (status.ok()) {
          on_shown(describe(*batch));
        } else {
          on_shown(storage_error(
              status, fmt::format("The batch stops, but a server that starts now goes on with it, "
                                  "since its cancellation could not be stored: {}. That is tried "
                                  "again.",
                                  status.message())));
          // The batch becomes the active one, which tries to end on disk.
          if (ends_here) waiting_.push_front(batch);
          start_next();
        }
        pump(batch);
      });
}

void BatchRunner::work(std::function<Status()> on_worker, std::function<void(const Status&)> then) {
  const auto both = [this, on_worker, then] {
    Status status;
    try {
      status = on_worker();
    } catch (const std::exception& failure) {  // mostly out of memory
      status = internal_error(failure.what());
    }
    host_.threads.post([then, status] { then(status); });
  };
  if (!host_.threads.run_on_worker(both)) {
    host_.post_after(kRetrySeconds, [this, on_worker, then] { work(on_worker, then); });
  }
}

void BatchRunner::change(const BatchPointer& batch, std::function<void(Record&)> edit,
                         std::function<void(const Status&)> then) {
  batch->changes.push_back({.edit = std::move(edit), .then = std::move(then)});
  if (batch->changes.size() == 1) write_next_change(batch);
}

void BatchRunner::write_next_change(const BatchPointer& batch) {
  const auto next = std::make_shared<Record>(batch->record);
  batch->changes.front().edit(*next);
  next->num_lines = batch->num_lines;
  next->num_completed = batch->num_completed;
  next->num_failed = batch->num_failed;
  work([this, id = batch->id, text = next->to_text(),
        is_kept = batch->forgotten ||
                  batch->given_up] { return is_kept ? ok_status() : files_.save_record(id, text); },
       [this, batch, next](const Status& status) {
         if (status.ok()) batch->record = *next;
         const Batch::Change change = std::move(batch->changes.front());
         batch->changes.pop_front();
         if (!batch->changes.empty()) write_next_change(batch);
         change.then(status);
       });
}

void BatchRunner::start_next() {
  if (active_ != nullptr || waiting_.empty()) return;
  active_ = waiting_.front();
  waiting_.pop_front();
  start(active_);
}

std::optional<BatchError> BatchRunner::refusal_of(const Record& record) const {
  const std::vector<std::string> names = host_.model_names();
  if (std::ranges::find(names, record.model) == names.end()) {
    return BatchError{
        .code = "model_not_found",
        .message = fmt::format("The batch was made for the model `{}`, and this server serves {} "
                               "now. Send the requests that have no answer in a new batch.",
                               record.model, fmt::join(names, ", ")),
        .param = "model"};
  }
  const std::string& holder = record.order.holder;
  if (holder.empty()) return std::nullopt;
  const std::shared_ptr<const ApiKey> key = host_.find_key(holder);
  if (key == nullptr) {
    return BatchError{.code = "key_not_found",
                      .message = fmt::format("The server has no API key of {} any more, to which "
                                             "the batch belongs.",
                                             holder)};
  }
  if (std::ranges::none_of(
          names, [&key](const std::string& name) { return may_use_model(key.get(), name); })) {
    return BatchError{
        .code = "model_not_found",
        .message = fmt::format("The key of {}, to which the batch belongs, may not use "
                               "{} any more.",
                               holder, fmt::join(names, ", ")),
        .param = "model"};
  }
  return std::nullopt;
}

void BatchRunner::start(const BatchPointer& batch) {
  struct Read {
    std::vector<BatchLine> lines;
    std::vector<BatchError> errors;
    Outputs::Recovered recovered;
  };

  const auto read = std::make_shared<Read>();
  const Record& record = batch->record;
  batch->outputs = std::make_shared<Outputs>(files_, batch->id, record, host_.unix_time());
  if (!record.cut_short.empty()) batch->reason = record.cut_short;
  batch->errors = record.errors;
  work(
      [this, read, outputs = batch->outputs, file = record.order.input_file_id,
       endpoint = record.order.endpoint] {
        const Result<std::string> text = files_.read(file);
        if (text.ok()) {
          auto input = read_batch_input(*text, endpoint);
          if (auto* const errors = std::get_if<std::vector<BatchError>>(&input)) {
            read->errors = std::move(*errors);
          } else {
            read->lines = std::get<std::vector<BatchLine>>(std::move(input));
          }
        } else if (text.status().code() == StatusCode::kNotFound) {
          read->errors.push_back({.code = "input_file_not_found",
                                  .message = fmt::format("The input file `{}` was deleted before "
                                                         "all of its requests were made.",
                                                         file),
                                  .param = "input_file_id"});
        } else {
          read->errors.push_back(storage_failed(text.status()));
        }
        return outputs->recover(read->lines, read->recovered);
      },
      [this, batch, read](const Status& status) {
        if (!status.ok()) {
          // The earlier answers are unknown, and the batch must not end on disk without them.
          batch->outputs = nullptr;
          if (!may_retry(batch, status)) return give_up(batch, status);
          log_warning(fmt::format("The files of batch {} cannot be read; retrying: {}", batch->id,
                                  status.message()));
          host_.post_after(kRecoverySeconds, [this, batch] { start(batch); });
          return;
        }
        batch->loaded = true;
        if (!read->lines.empty()) batch->num_lines = std::ssize(read->lines);
        batch->lines = std::move(read->lines);
        batch->answered = std::move(read->recovered.answered);
        batch->num_completed = read->recovered.num_completed;
        batch->num_failed = read->recovered.num_failed;
        batch->answered.resize(batch->lines.size());
        const auto refusal = refusal_of(batch->record);
        if (read->errors.empty() && refusal) read->errors.push_back(*refusal);
        if (batch->reason.empty() && !read->errors.empty()) {
          batch->reason = kBatchFailed;
          batch->errors = std::move(read->errors);
        }
        if (!batch->reason.empty()) return finish(batch);
        change(
            batch,
            [now = host_.unix_time()](Record& changed) {
              if (changed.status == "validating") changed.enter("in_progress", now);
            },
            [this, batch](const Status& saved) {
              if (saved.ok()) return run(batch);
              cut_short(batch, kBatchFailed, storage_failed(saved));
              pump(batch);
            });
      });
}

void BatchRunner::run(const BatchPointer& batch) {
  batch->running = true;
  for (size_t i = 0; i < batch->lines.size() && batch->reason.empty(); ++i) {
    if (!batch->answered[i]) batch->pending.push_back(i);
  }
  pump(batch);
}

bool BatchRunner::may_run() const { return !host_.draining() && host_.engine().health().ok(); }

bool BatchRunner::has_room() const {
  const Engine& engine = host_.engine();
  const auto num_running = static_cast<int64_t>(active_->live.size() + active_->num_writing);
  if (num_running == 0) return true;
  return num_running < engine.memory_plan().max_running_requests / 2 &&
         engine.stats().num_waiting == 0;
}

void BatchRunner::pump(const BatchPointer& batch) {
  if (batch != active_ || batch->finishing) return;
  if (!batch->running && (!batch->loaded || batch->reason.empty())) return;
  const bool is_left = !batch->pending.empty() || !batch->live.empty();
  if (batch->reason.empty() && is_left &&
      host_.unix_time() >= batch->record.created + kWindowSeconds) {
    cut_short(batch, kBatchExpired, std::nullopt);
  }
  if (!batch->pending.empty() && !may_run()) return rest(batch);
  const std::string& holder = batch->record.order.holder;
  while (!batch->pending.empty() && !batch->resting && has_room()) {
    std::shared_ptr<const ApiKey> key = holder.empty() ? nullptr : host_.find_key(holder);
    if (key == nullptr && !holder.empty()) {
      cut_short(batch, kBatchFailed, refusal_of(batch->record));
      break;
    }
    const size_t index = batch->pending.front();
    batch->pending.pop_front();
    start_line(batch, index, std::move(key));
  }
  if (batch->pending.empty() && batch->live.empty() && batch->num_writing == 0) finish(batch);
}

void BatchRunner::start_line(const BatchPointer& batch, size_t index,
                             std::shared_ptr<const ApiKey> key) {
  const std::string& path = batch->record.order.endpoint;
  HttpRequest request{.method = "POST",
                      .path = path,
                      .query = {},
                      .headers = {{"content-type", "application/json"}},
                      .body = batch->lines[index].body,
                      .id = new_request_id(request_id_prefix(path)),
                      .arrived_at = std::chrono::steady_clock::now(),
                      .key = std::move(key)};
  const SchedulingOptions& scheduling = host_.engine().options().scheduling;
  if (scheduling.enable_priority) {
    request.headers.emplace_back(
        "x-priority", std::to_string(scheduling.low_values_first ? kLeastUrgent : -kLeastUrgent));
  }
  const std::string id = request.id;
  // The batch holds its exchanges, which only refer weakly to it: a server that stops frees them
  // all.
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
  const bool succeeded = status == 200;
  if (is_passing(status, body) || (!succeeded && !may_run())) {
    batch->pending.push_front(index);
    return rest(batch);
  }
  const std::string& custom_id = batch->lines[index].custom_id;
  write(batch, index, succeeded,
        status != 0 ? batch_output_line(custom_id, request_id, status, body)
                    : batch_error_line(
                          custom_id, "answer_too_long",
                          fmt::format("The answer has more than {} bytes.", kMaxCapturedBytes)));
}

// Pauses sending requests for a while.
void BatchRunner::rest(const BatchPointer& batch) {
  if (std::exchange(batch->resting, true)) return;
  host_.post_after(kRetrySeconds, [this, batch] {
    batch->resting = false;
    pump(batch);
  });
}

void BatchRunner::write(const BatchPointer& batch, size_t index, bool succeeded, std::string line) {
  ++batch->num_writing;
  work([outputs = batch->outputs, succeeded,
        line = std::move(line)] { return outputs->write(succeeded, line); },
       [this, batch, index, succeeded](const Status& status) {
         --batch->num_writing;
         if (status.ok()) {
           batch->answered[index] = true;
           ++(succeeded ? batch->num_completed : batch->num_failed);
         } else {
           cut_short(batch, kBatchFailed, storage_failed(status));
         }
         pump(batch);
       });
}

// Cuts the batch short; only the first reason is used.
void BatchRunner::cut_short(const BatchPointer& batch, std::string_view reason,
                            std::optional<BatchError> error) {
  if (error && batch->errors.empty()) batch->errors.push_back(*std::move(error));
  if (batch->reason.empty() || reason == kBatchFailed) batch->reason = reason;
  batch->drop_live();
}

void BatchRunner::finish(const BatchPointer& batch) {
  batch->finishing = true;
  change(
      batch,
      [batch, now = host_.unix_time()](Record& record) {
        record.enter_end(batch->reason, batch->errors, now);
      },
      [this, batch](const Status& status) {
        if (!status.ok()) return retry_later(batch, status, &BatchRunner::finish);
        write_unanswered(batch);
      });
}

// Writes a line to the error file for each request without an answer. If that fails but the record
// can be written, the store is full and not the disk. The remaining lines are then left out.
void BatchRunner::write_unanswered(const BatchPointer& batch) {
  work(
      [batch, outputs = batch->outputs, reason = batch->reason] {
        for (size_t i = 0; i < batch->lines.size() && !reason.empty(); ++i) {
          if (batch->answered[i]) continue;
          HEDDLE_RETURN_IF_ERROR(outputs->write(
              false, batch_error_line(batch->lines[i].custom_id, reason,
                                      "The batch ended before this request was answered.")));
          batch->answered[i] = true;
        }
        return ok_status();
      },
      [this, batch](const Status& status) {
        if (status.ok()) return finish_files(batch);
        change(
            batch, [](Record&) {},
            [this, batch, status](const Status& saved) {
              if (!saved.ok()) return retry_later(batch, saved, &BatchRunner::write_unanswered);
              if (batch->errors.empty()) batch->errors.push_back(storage_failed(status));
              finish_files(batch);
            });
      });
}

void BatchRunner::finish_files(const BatchPointer& batch) {
  work([outputs = batch->outputs] { return outputs->finish(); },
       [this, batch](const Status& status) {
         if (!status.ok()) return retry_later(batch, status, &BatchRunner::finish_files);
         end(batch);
       });
}

void BatchRunner::end(const BatchPointer& batch) {
  std::string_view last = "completed";
  if (!batch->errors.empty()) {
    last = "failed";
  } else if (batch->reason == kBatchCancelled) {
    last = "cancelled";
  } else if (batch->reason == kBatchExpired) {
    last = "expired";
  }
  change(
      batch,
      [batch, last, now = host_.unix_time()](Record& record) {
        record.errors = batch->errors;
        record.has_output = batch->outputs->has(true);
        record.has_errors = batch->outputs->has(false);
        record.enter(last, now);
      },
      [this, batch](const Status& status) {
        if (!status.ok()) return retry_later(batch, status, &BatchRunner::end);
        log_info(fmt::format("Batch {} {}: {} of {} requests completed, {} failed", batch->id,
                             batch->record.status, batch->num_completed, batch->num_lines,
                             batch->num_failed));
        leave(batch);
      });
}

// Lets the next batch become the active one.
void BatchRunner::leave(const BatchPointer& batch) {
  batch->lines = {};
  batch->answered = {};
  batch->outputs = nullptr;
  active_ = nullptr;
  start_next();
}

// Whether a step that the disk refused is tried again: for as long as room is missing, after other
// failures kMaxAttempts times.
bool BatchRunner::may_retry(const BatchPointer& batch, const Status& status) {
  return status.code() == StatusCode::kResourceExhausted || ++batch->num_failures < kMaxAttempts;
}

// Calls `step` again after kRetrySeconds: a step of ending the batch, which failed because of the
// disk. Logs only the first failure.
void BatchRunner::retry_later(const BatchPointer& batch, const Status& status,
                              void (BatchRunner::*step)(const BatchPointer&)) {
  if (!may_retry(batch, status)) return give_up(batch, status);
  if (!std::exchange(batch->waits_for_disk, true)) {
    log_warning(fmt::format("Batch {} cannot be ended on disk; retrying until it is: {}", batch->id,
                            status.message()));
  }
  host_.post_after(kRetrySeconds, [this, batch, step] { (this->*step)(batch); });
}

// Ends a batch for its client only. Its output files become readable as far as the disk permits.
void BatchRunner::give_up(const BatchPointer& batch, const Status& status) {
  log_warning(
      fmt::format("Batch {} cannot be ended on disk and is given up; the server goes on with "
                  "it after a restart: {}",
                  batch->id, status.message()));
  if (batch->errors.empty()) batch->errors.push_back(storage_failed(status));
  batch->given_up = true;
  batch->finishing = true;
  batch->drop_live();
  work([outputs = batch->outputs] { return outputs ? outputs->finish() : ok_status(); },
       [this, batch](const Status&) {
         change(
             batch,
             [batch, now = host_.unix_time()](Record& record) {
               record.errors = batch->errors;
               record.has_output = batch->outputs && batch->outputs->has(true);
               record.has_errors = batch->outputs && batch->outputs->has(false);
               record.enter("failed", now);
             },
             [this, batch](const Status&) { leave(batch); });
       });
}

}  // namespace heddle::server
