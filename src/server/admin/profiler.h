// SPDX-License-Identifier: Apache-2.0
// Profiler: POST /start_profile and /stop_profile. Records the engine's steps and writes them as a
// trace that chrome://tracing and Perfetto show: a row for planning, a row for computing, and how
// many sequences ran and waited.
//
// Threading: confined to the I/O thread; traces are written on workers.
// Bounds:    kMaxRecordedSteps of one profile, some 30 MB.
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
  std::filesystem::path below;  // folder of the trace, from the folder of all traces
  std::string name;             // of its file, without the ending
  bool has_id = false;          // the request has named it
  int64_t num_steps = kMaxRecordedSteps;
};

// The body of /start_profile; "" is one without fields. Traces go to `folder` or below it, never
// elsewhere. Error: also where a name is longer than file systems take.
std::variant<ProfileOrder, ApiError> read_profile_order(std::string_view body,
                                                        const std::filesystem::path& folder,
                                                        int64_t unix_time);

// Makes the folder of traces where it is not there. Error: kInvalidArgument; it cannot be used.
Status make_profile_folder(const std::filesystem::path& folder);

// A new file for a trace. It is removed unless write() has succeeded.
//
// Threading: thread-compatible.
class ProfileFile {
 public:
  // Makes the order's folders below `folder` where they are not there. Writes over no file: a name
  // that the server has made up gets a number then. Follows no symbolic link below `folder`. Error:
  // kInvalidArgument where the order's name is taken or its folder is none.
  static Result<std::unique_ptr<ProfileFile>> create(const std::filesystem::path& folder,
                                                     const ProfileOrder& order);
  ~ProfileFile();

  ProfileFile(const ProfileFile&) = delete;
  ProfileFile& operator=(const ProfileFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // Once. Error: kUnavailable; the disk is full.
  Status write(std::string_view trace);

 private:
  ProfileFile(std::filesystem::path path, int folder, int file)
      : path_(std::move(path)), folder_(folder), file_(file) {}

  const std::filesystem::path path_;
  const int folder_;  // descriptor
  const int file_;    // descriptor
  bool written_ = false;
};

// In the format of Chrome's traces. Times count from the first step's planning.
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
  // `exchange`: who waits for it; may be null.
  void write(std::vector<StepRecord> steps, std::shared_ptr<ProfileFile> file,
             std::shared_ptr<Exchange> exchange);

  const std::filesystem::path folder_;
  const BodyThreads threads_;
  const std::function<int64_t()> unix_time_;
  std::shared_ptr<Exchange> stopping_;  // the request that ends it
};

}  // namespace heddle::server
