// SPDX-License-Identifier: Apache-2.0
// Options of a server, besides those of its engine (heddle/options.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/metrics.h"
#include "parsers/formats.h"
#include "server/call/answer_options.h"
#include "server/call/request_log.h"
#include "server/http/caller.h"
#include "server/http/gate_options.h"
#include "server/storage/storage_folder.h"

namespace heddle::server {

struct ServerOptions : GateOptions {
  std::string model_path;                  // path of the model in /get_model_info
  std::string version;                     // version of the program in /get_server_info
  MetricLabels build;                      // labels of the metric heddle_build_info
  std::string weight_version = "default";  // weight version in answers, until it is changed
  std::string api_keys_file;  // file of API keys, read again by Server::reload_keys(); empty: none
  bool allow_any_model_name = true;      // false: answer 404 to a `model` that is not served
  FairKey fair_key;                      // how the tenant of a request is found
  bool isolate_tenants = false;          // true: tenants do not share cached tokens
  std::vector<std::string> quiet_paths;  // path prefixes whose requests are logged at level debug
  RequestLogOptions request_log;
  // Time limit for running requests at shutdown; negative: no limit.
  double shutdown_timeout_seconds = 30;
  std::string file_storage_path;  // folder for /v1/files; empty: a temporary folder that is deleted
                                  // with the server
  std::string profile_path;       // folder for /start_profile; empty: the temporary folder
  bool api_docs = true;           // true: /openapi.json and /docs are served
  int64_t file_storage_bytes = int64_t{4} << 30;
  // Simulated disk faults of the file storage, for tests; null: none.
  std::shared_ptr<DiskFaults> disk_faults;
  double key_storage_share = 0.25;  // storage_share() if keys have names
  int num_workers = 2;              // threads that parse, render and tokenize
  bool metrics = true;              // true: /metrics is served

  AnswerOptions answers;

  // How the model writes tool calls and reasoning; none: derived from its chat template.
  std::optional<parsers::ToolCallFormat> tool_call_format;
  std::optional<parsers::ReasoningFormat> reasoning_format;

  // Seconds since 1970, for the field `created`; empty: the system's clock. For tests.
  std::function<int64_t()> unix_time;

  // The part of each store (responses, sessions, files, batches) that one holder of a key may use.
  // It is 1 if keys have no names, because then there is only one holder.
  [[nodiscard]] double storage_share() const {
    return api_keys.empty() && api_keys_file.empty() ? 1 : key_storage_share;
  }
};

}  // namespace heddle::server
