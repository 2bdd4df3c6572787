// SPDX-License-Identifier: Apache-2.0
// RequestLog: writes a line when a generating call arrives, and one when it ends, to standard
// output or to a file per day in a folder. Off unless the operator switches it on, because prompts
// are private. Calls that are refused before they are parsed have no lines.
//
//   level 0  id, path, model, tenant, numbers of prompts, answers and prompt tokens; at the end the
//            finish reasons, tokens, seconds and, for a failure, its status code
//   level 1  also the sampling parameters of each prompt
//   level 2  also the first 2048 characters of each prompt and each answer
//   level 3  also the complete prompts and answers
//
// Below level 3 a line contains at most 16 entries of any list: prompts, answers, stop texts. A
// call with `no_logs` is logged at level 0. A lower level, or the end of logging, applies at once,
// also to running calls; a higher level applies to calls that arrive later.
//
//   json  {"event":"received","time":"2023-11-14T22:13:20Z","id":"a","path":"/generate", ..}
//   text  2023-11-14T22:13:20Z received id="a" path="/generate" ..: the same names and values, each
//         value as JSON
//
// In both formats, control characters and those that change the direction of text are escaped as in
// JSON (\u001b), so that no client can start a line of its own or control a terminal.
//
// Threading: thread-safe. Workers log the calls; the I/O thread copies texts of answers.
// Cost:      off: one relaxed atomic load per call and a null check per event. On: a call formats
//            two lines on a worker and stores 100 bytes for each answer. Writing a line is one
//            open(), write() and close(), or one write() to standard output. From level 2 on a
//            worker decodes up to 8192 tokens of each prompt, and 8 KiB of each answer's text are
//            stored. At level 3 all of both is, in addition to the answer itself.
// Blocking:  a line waits for the disk. If the reader of standard output has stopped, a line waits
//            one second, and later lines not at all until one can be written. There is no end line
//            if no worker can accept it, or if it still waits for a worker when the server ends.
// Errors:    a line that cannot be written causes one warning in the server's log; the next warning
//            follows only after a line could be written. Requests are not affected. A pipe without
//            a reader is such an error if the process ignores SIGPIPE.
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

// Parses the name of a format. Error: kInvalidArgument, listing the formats.
[[nodiscard]] Result<RequestLogFormat> parse_request_log_format(std::string_view text);

inline constexpr int32_t kMaxRequestLogLevel = 3;

// The settings that can change while the server runs.
struct RequestLogSettings {
  int32_t level = 2;  // level, 0 to kMaxRequestLogLevel
  RequestLogFormat format = RequestLogFormat::kText;
  bool on = false;
};

struct RequestLogOptions {
  RequestLogSettings settings;
  std::string folder;  // folder of request-log-YYYYMMDD.log and .jsonl; empty: standard output
};

// A parsed call. It consists of views and need not outlive received().
struct ReceivedCall {
  std::string_view id;
  std::string_view path;
  std::string_view model;
  bool no_logs = false;
  std::span<const Request> requests;  // one per answer, in prompt-major order
  const TextCodec& codec;
  std::chrono::steady_clock::time_point arrived_at;
};

class RequestLog {
 public:
  // Creates the folder if it is missing. `unix_time`: seconds since 1970; days are in UTC. Error:
  // kInvalidArgument, naming the folder, if files cannot be created in it.
  static Result<std::unique_ptr<RequestLog>> open(RequestLogOptions options,
                                                  std::function<int64_t()> unix_time);

  [[nodiscard]] RequestLogSettings settings() const {
    return settings_.load(std::memory_order_relaxed);
  }

  // Changes the settings, beginning with the next line.
  void change(RequestLogSettings settings) { settings_.store(settings, std::memory_order_relaxed); }

  // Writes the line for a call's arrival. Returns null if the log is off or memory is short;
  // otherwise the end of the call must be logged with LoggedCall::end().
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
  Mutex write_mutex_;  // keeps lines of different threads apart
  bool failing_ HEDDLE_GUARDED_BY(write_mutex_) = false;
  bool cut_ HEDDLE_GUARDED_BY(write_mutex_) = false;  // the last line was written without its end
};

// A logged call between its two lines; collects the contents of the second one.
//
// Threading: thread-confined, until end() to the I/O thread. The log outlives it.
class LoggedCall {
 public:
  // `level` is the level of the lines: 0 if the call has `no_logs`.
  LoggedCall(RequestLog& log, const ReceivedCall& call, int32_t level);

  // Adds an event of an answer. Cost: a copy of its text, within the level's limit; if memory is
  // short, the line lacks the text.
  void add(size_t choice, const RequestEvent& event);

  // Lets a worker write the second line, if one can accept it. Does nothing if `call` is null.
  // Answers that have not finished are logged as "error" if `error`, the name of a status code, is
  // not empty, else as "abort", because their client has disconnected.
  static void end(std::shared_ptr<LoggedCall> call, const BodyThreads& threads,
                  std::string_view error = {});

 private:
  friend class RequestLog;

  struct Answer {
    // The prompt's tokens are counted with this answer, the first to its prompt.
    bool counts_prompt = false;
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
  std::string error_;  // name of the first status code other than OK
  double queue_seconds_ = 0;
  double elapsed_seconds_ = 0;
};

}  // namespace heddle::server
