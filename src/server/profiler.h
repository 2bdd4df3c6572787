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
#include <variant>
#include <vector>

#include <heddle/engine.h>
#include <heddle/status.h>

#include "server/api_error.h"
#include "server/body_sender.h"
#include "server/exchange.h"

namespace heddle::server {

struct ProfileOrder {
  std::filesystem::path file;
  int64_t num_steps = kMaxRecordedSteps;
};

// The body of /start_profile; "" is one without fields. Traces go to `folder` or below it, never
// elsewhere.
std::variant<ProfileOrder, ApiError> read_profile_order(std::string_view body,
                                                        const std::filesystem::path& folder,
                                                        int64_t unix_time);

// Makes the folder of traces where it is not there. Error: kInvalidArgument; it cannot be used.
Status make_profile_folder(const std::filesystem::path& folder);

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
  void write(std::vector<StepRecord> steps, std::shared_ptr<Exchange> exchange);

  const std::filesystem::path folder_;
  const BodyThreads threads_;
  const std::function<int64_t()> unix_time_;
  std::filesystem::path file_;          // of the profile that runs
  std::shared_ptr<Exchange> stopping_;  // the request that ends it
};

}  // namespace heddle::server
