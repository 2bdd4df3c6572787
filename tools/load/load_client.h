// SPDX-License-Identifier: Apache-2.0
// LoadClient: sends the requests of a workload to an OpenAI-compatible server over HTTP and records
// when the parts of the answers arrived. No behaviour of a server ends a run: it becomes the
// failure of one request.
//
// Threading: thread-confined, except stop(). A run happens entirely on the thread that calls run().
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
  kCompletions,      // /v1/completions with a prompt of token ids
  kCompletionsText,  // /v1/completions with a prompt of words
  kChatCompletions,  // /v1/chat/completions
};

struct LoadClientOptions {
  ServerAddress address;
  LoadApi api = LoadApi::kCompletions;
  std::string model;
  const char* model_option = "--model";  // name of the option for the model, for messages
  std::string api_key;
  bool ignore_eos = true;
  int64_t vocab_size = 1000;     // prompts have ids below this
  std::string extra_body;        // JSON object whose members replace those of the requests; or ""
  double timeout_seconds = 600;  // time limit for one request
  std::optional<int64_t> concurrency;  // most requests in flight; none: no limit
};

struct LoadProgress {
  int64_t done = 0;
  int64_t failed = 0;
  int64_t in_flight = 0;
  int64_t arrivals = 0;  // parts of answers received so far
  double seconds = 0;
  double last_ttft_ms = 0;
};

class LoadClient {
 public:
  explicit LoadClient(LoadClientOptions options);
  ~LoadClient();

  LoadClient(const LoadClient&) = delete;
  LoadClient& operator=(const LoadClient&) = delete;

  // Selects the first model of GET /v1/models for later requests. Error: kUnavailable if there is
  // no server; kNotFound if it lists no model.
  Result<std::string> choose_model();

  // Sends each request at its time, or as soon after it as `concurrency` allows. Calls
  // `on_progress` some times a second. Returns the records of the requests that ended: all, unless
  // stop() was called. Error: kUnavailable if the host has no address.
  Result<std::vector<LoadRecord>> run(
      std::span<const LoadRequest> requests,
      const std::function<void(const LoadProgress&)>& on_progress = {});

  // Ends the current run immediately, and any later run at its start. Thread-safe.
  void stop();

  // The JSON body of a request.
  [[nodiscard]] std::string body_of(const LoadRequest& request) const;

 private:
  class Connections;  // hides the network library from this header

  LoadClientOptions options_;
  std::unique_ptr<Connections> connections_;
};

}  // namespace heddle::tools
