// SPDX-License-Identifier: Apache-2.0
// Profiler: POST /start_profile and /stop_profile. Records the engine's steps and writes them as a
// trace for chrome://tracing and Perfetto: one row for planning, one for computing, and the numbers
// of running and waiting sequences.
//
// Threading: confined to the I/O thread; workers write the traces.
// Bounds:    at most kMaxRecordedSteps per profile, some 30 MB.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <heddle/engine.h>
#include <heddle/status.h>

#include "server/http/api_error.h"
#include "server/http/body_sender.h"
#include "server/http/exchange.h"

namespace heddle::server {

struct ProfileOrder {
  std::filesystem::path below;  // folder of the trace, relative to the folder of all traces
  std::string name;             // name of the trace's file, without the extension
  bool has_id = false;          // true: the request chose the name
  int64_t num_steps = kMaxRecordedSteps;
};

// Reads the body of /start_profile; "" is a body without fields. Traces are written to `folder` or
// below it, never elsewhere. Error: a wrong field, or a name longer than file systems allow.
std::variant<ProfileOrder, ApiError> read_profile_order(std::string_view body,
                                                        const std::filesystem::path& folder,
                                                        int64_t unix_time);

// Creates the folder of traces if it is missing. Error: kInvalidArgument if it cannot be used.
Status make_profile_folder(const std::filesystem::path& folder);

// A new file for a trace. It is deleted unless write() has succeeded.
//
// Threading: thread-compatible.
class ProfileFile {
 public:
  // Creates the order's folders below `folder` if they are missing, and the file. It never
  // overwrites a file: a name that the server chose gets a number instead. It follows no symbolic
  // link below `folder`. Error: kInvalidArgument if the requested name is in use or a folder is no
  // folder.
  static Result<std::unique_ptr<ProfileFile>> create(const std::filesystem::path& folder,
                                                     const ProfileOrder& order);
  ~ProfileFile();

  ProfileFile(const ProfileFile&) = delete;
  ProfileFile& operator=(const ProfileFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // Writes the trace; called once. Error: kUnavailable if the disk is full.
  Status write(std::string_view trace);

 private:
  ProfileFile(std::filesystem::path path, int folder, int file)
      : path_(std::move(path)), folder_(folder), file_(file) {}

  const std::filesystem::path path_;
  const int folder_;  // file descriptor of the folder
  const int file_;    // file descriptor of the trace
  bool written_ = false;
};

// The steps in the format of Chrome's traces. Times count from the first step's planning.
[[nodiscard]] std::string trace_json(const std::vector<StepRecord>& steps);

class Profiler {
 public:
  Profiler(std::filesystem::path folder, BodyThreads threads, std::function<int64_t()> unix_time)
      : folder_(std::move(folder)),
        threads_(std::move(threads)),
        unix_time_(std::move(unix_time)) {}

  void start(Engine& engine, const std::shared_ptr<Exchange>& exchange);
  void stop(Engine& engine, const std::shared_ptr<Exchange>& exchange);

 private:
  // Writes a trace on a worker. `exchange`: the request that waits for it; may be null.
  void write(std::vector<StepRecord> steps, std::shared_ptr<ProfileFile> file,
             std::shared_ptr<Exchange> exchange);

  const std::filesystem::path folder_;
  const BodyThreads threads_;
  const std::function<int64_t()> unix_time_;
  std::shared_ptr<Exchange> stopping_;  // the request to /stop_profile that ends the recording
};

}  // namespace heddle::server
