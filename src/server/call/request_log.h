// SPDX-License-Identifier: Apache-2.0
// RequestLog: a line when a call that generates was received, and one when it ended, on standard
// output or in a folder's file of the day. Off unless the operator switches it on: prompts are
// private. Calls that were refused before they were understood have no lines.
//
//   level 0  id, path, model, tenant, numbers of prompts, answers and prompt tokens; at the end the
//            finish reasons, tokens, seconds and, of a failure, its status code
//   level 1  and the sampling parameters of each prompt
//   level 2  and the first 2048 characters of each prompt and each answer
//   level 3  all of them
//
// Below level 3 a line has at most 16 entries of any list: of prompts, answers, stop texts. A call
// with `no_logs` has lines of level 0 alone. A level that falls, or the end of logging, counts at
// once, also for calls that run; one that rises counts for the calls that come.
//
//   json  {"event":"received","time":"2023-11-14T22:13:20Z","id":"a","path":"/generate", ..}
//   text  2023-11-14T22:13:20Z received id="a" path="/generate" ..: names and values of the same,
//         each value as JSON
//
// In both, control characters and those that turn the direction of text are escaped as JSON has it
// (\u001b), so that no client can begin a line of its own or steer a terminal.
//
// Threading: thread-safe. Calls are logged by the workers; the I/O thread copies texts of answers.
// Cost:      while it is off, one relaxed atomic load a call and a null check an event. On, a call
//            formats two lines on a worker and keeps 100 bytes for each answer; a line is one
//            open(), write() and close(), of standard output one write(). From level 2 on a worker
//            decodes the prompts again, up to 8192 tokens of each, and 8 KiB of each answer's text
//            are kept; with level 3 all of both, a second time beside the answer itself.
// Blocking:  a line waits for the disk; for a reader of standard output who has stopped, a second,
//            and those behind it not at all until one can be written. The end of a call for which
//            no worker has room has no line, nor has one that waits for a worker when the server
//            ends.
// Errors:    of a line that cannot be written the log has a warning, and the next one once a line
//            could be written in between. Requests do not notice. A pipe without a reader is such
//            an error where the process ignores SIGPIPE.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <heddle/request.h>
#include <heddle/status.h>

#include "core/mutex.h"

namespace heddle::server {

class LoggedCall;
class TextCodec;
struct BodyThreads;

enum class RequestLogFormat : uint8_t { kText, kJson };

[[nodiscard]] std::string_view to_string(RequestLogFormat format);

// Error: kInvalidArgument, with the formats there are.
[[nodiscard]] Result<RequestLogFormat> parse_request_log_format(std::string_view text);

inline constexpr int32_t kMaxRequestLogLevel = 3;

// The settings that change while the server runs.
struct RequestLogSettings {
  int32_t level = 2;  // 0 to kMaxRequestLogLevel
  RequestLogFormat format = RequestLogFormat::kText;
  bool on = false;
};

struct RequestLogOptions {
  RequestLogSettings settings;
  std::string folder;  // of the files request-log-YYYYMMDD.log and .jsonl; empty: standard output
};

// A call that was understood. Only views: it need not outlive received().
struct ReceivedCall {
  std::string_view id;
  std::string_view path;
  std::string_view model;
  bool no_logs = false;
  std::span<const Request> requests;  // one per answer, prompt-major
  const TextCodec& codec;
  std::chrono::steady_clock::time_point arrived_at;
};

class RequestLog {
 public:
  // Makes the folder where it is not there. `unix_time`: seconds since 1970; days are those of UTC.
  // Error: kInvalidArgument, naming the folder, when files cannot be made in it.
  static Result<std::unique_ptr<RequestLog>> open(RequestLogOptions options,
                                                  std::function<int64_t()> unix_time);

  [[nodiscard]] RequestLogSettings settings() const {
    return settings_.load(std::memory_order_relaxed);
  }

  // From the next line on.
  void change(RequestLogSettings settings) { settings_.store(settings, std::memory_order_relaxed); }

  // Writes the line of a call's arrival. Null while the log is off, or where memory is missing for
  // it; else the call's end is to be logged with LoggedCall::end().
  [[nodiscard]] std::shared_ptr<LoggedCall> received(const ReceivedCall& call);

 private:
  friend class LoggedCall;

  std::shared_ptr<LoggedCall> write_received(const ReceivedCall& call);

  RequestLog(RequestLogOptions options, std::function<int64_t()> unix_time);

  void write_end(const LoggedCall& call);
  void write(const nlohmann::ordered_json& fields, std::string_view event, RequestLogFormat format)
      HEDDLE_EXCLUDES(write_mutex_);

  const std::string folder_;
  const std::function<int64_t()> unix_time_;
  std::atomic<RequestLogSettings> settings_;
  static_assert(std::atomic<RequestLogSettings>::is_always_lock_free);
  Mutex write_mutex_;  // keeps lines whole
  bool failing_ HEDDLE_GUARDED_BY(write_mutex_) = false;
  bool cut_ HEDDLE_GUARDED_BY(write_mutex_) = false;  // the last line has no end
};

// A call between its two lines: gathers what the second one shows.
//
// Threading: thread-confined, to the I/O thread until its end. The log outlives it.
class LoggedCall {
 public:
  // `level` is that of the lines: 0 where the call said `no_logs`.
  LoggedCall(RequestLog& log, const ReceivedCall& call, int32_t level);

  // The next event of an answer. Cost: a copy of its text, within the level's limit; without the
  // memory for it the line goes without.
  void add(size_t choice, const RequestEvent& event);

  // Has a worker write the second line, if one has room. `call` may be null: nothing happens.
  // Answers that have not finished count as "error" when there is an `error`, a status code's name,
  // else as "abort": their client has left.
  static void end(std::shared_ptr<LoggedCall> call, const BodyThreads& threads,
                  std::string_view error = {});

 private:
  friend class RequestLog;

  struct Answer {
    bool counts_prompt = false;  // the first one to its prompt
    std::string text;
    std::optional<FinishReason> finish;
    int64_t completion_tokens = 0;
    int64_t cached_tokens = 0;
  };

  RequestLog& log_;
  const int32_t level_;
  const bool no_logs_;
  const std::string id_;
  const std::string path_;
  const std::string model_;
  const std::string tenant_;
  const std::chrono::steady_clock::time_point arrived_at_;
  int64_t num_prompts_ = 0;
  int64_t prompt_tokens_ = 0;
  std::vector<Answer> answers_;
  std::string error_;  // the first status code that was not OK
  double queue_seconds_ = 0;
  double elapsed_seconds_ = 0;
};

}  // namespace heddle::server
