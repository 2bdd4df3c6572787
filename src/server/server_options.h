// SPDX-License-Identifier: Apache-2.0
// Options of a server, beside those of its engine (heddle/options.h).
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
  std::string model_path;                  // shown by /get_model_info
  std::string version;                     // shown by /get_server_info
  MetricLabels build;                      // labels of heddle_build_info
  std::string weight_version = "default";  // shown with answers until it is changed
  std::string api_keys_file;               // read again by Server::reload_keys()
  bool allow_any_model_name = true;        // false: 404 for a `model` that is not served
  FairKey fair_key;                        // the tenant of a request
  bool isolate_tenants = false;            // tenants share no cached tokens
  std::vector<std::string> quiet_paths;    // requests of paths that begin so are logged as debug
  RequestLogOptions request_log;
  // For running requests to finish; below 0: as long as it takes.
  double shutdown_timeout_seconds = 30;
  std::string file_storage_path;  // of /v1/files; empty: a folder that goes with the server
  std::string profile_path;       // where /start_profile writes; empty: the temporary folder
  bool api_docs = true;           // /openapi.json and /docs are there
  int64_t file_storage_bytes = int64_t{4} << 30;
  std::shared_ptr<DiskFaults> disk_faults;  // of the file storage; null: none. Tests set it
  double key_storage_share = 0.25;          // storage_share() where keys have names
  int num_workers = 2;                      // threads that parse, render and tokenize
  bool metrics = true;                      // /metrics is there

  AnswerOptions answers;

  // How the model writes calls and reasoning; nothing: as its chat template shows.
  std::optional<parsers::ToolCallFormat> tool_call_format;
  std::optional<parsers::ReasoningFormat> reasoning_format;

  // Seconds since 1970, for `created`; empty: the system's clock. Tests set it.
  std::function<int64_t()> unix_time;

  // The part of each store (responses, sessions, files, batches) that one holder of a key may fill:
  // all of it where keys have no names, because there is one holder then.
  [[nodiscard]] double storage_share() const {
    return api_keys.empty() && api_keys_file.empty() ? 1 : key_storage_share;
  }
};

}  // namespace heddle::server
