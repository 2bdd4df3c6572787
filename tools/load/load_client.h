// SPDX-License-Identifier: Apache-2.0
// LoadClient sends the requests of a workload to an OpenAI-compatible server over HTTP and records
// when the parts of the answers came. Nothing that a server does ends a run: it becomes the failure
// of one request.
//
// Threading: thread-confined, but for stop(). All of a run happens on the thread that calls run().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/status.h>

#include "tools/load/load_record.h"
#include "tools/load/load_workload.h"
#include "tools/load/server_address.h"

namespace heddle::tools {

enum class LoadApi : uint8_t {
  kCompletions,      // /v1/completions with token ids
  kCompletionsText,  // /v1/completions with words
  kChatCompletions,  // /v1/chat/completions
};

struct LoadClientOptions {
  ServerAddress address;
  LoadApi api = LoadApi::kCompletions;
  std::string model;
  const char* model_option = "--model";  // by which the user gives it, for messages
  std::string api_key;
  bool ignore_eos = true;
  int64_t vocab_size = 1000;  // ids are below this
  std::string extra_body;     // a JSON object, whose members replace those of the requests; or ""
  double timeout_seconds = 600;        // limit for one request
  std::optional<int64_t> concurrency;  // requests in flight at most; none: no limit
};

struct LoadProgress {
  int64_t done = 0;
  int64_t failed = 0;
  int64_t in_flight = 0;
  int64_t arrivals = 0;  // texts received
  double seconds = 0;
  double last_ttft_ms = 0;
};

class LoadClient {
 public:
  explicit LoadClient(LoadClientOptions options);
  ~LoadClient();

  LoadClient(const LoadClient&) = delete;
  LoadClient& operator=(const LoadClient&) = delete;

  // The first of GET /v1/models, which is asked for from then on. Error: kUnavailable when there is
  // no server; kNotFound when it names none.
  Result<std::string> choose_model();

  // Each request at its time, or as soon after it as `concurrency` allows. Calls `on_progress` some
  // times a second. The records of the requests that ended: all, unless stop() was called.
  // Error: kUnavailable when the host has no address.
  Result<std::vector<LoadRecord>> run(
      std::span<const LoadRequest> requests,
      const std::function<void(const LoadProgress&)>& on_progress = {});

  // Ends the current run immediately, and later ones. Thread-safe.
  void stop();

  // The body of a request.
  [[nodiscard]] std::string body_of(const LoadRequest& request) const;

 private:
  class Connections;  // keeps the network library out of this header

  LoadClientOptions options_;
  std::unique_ptr<Connections> connections_;
};

}  // namespace heddle::tools
