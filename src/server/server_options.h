// SPDX-License-Identifier: Apache-2.0
// What a server can be told, beside what its engine can (heddle/options.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "server/caller.h"
#include "server/http_server.h"

namespace heddle::server {

struct ServerOptions {
  HttpServerOptions http;
  std::vector<std::string> served_model_names;  // shown by /v1/models; empty: the model's own
  std::string model_path;                       // shown by /get_model_info
  std::string version;                          // shown by /get_server_info
  std::string api_key;                          // empty: everyone may ask
  bool allow_any_model_name = true;             // false: 404 for a `model` that is not served
  FairKey fair_key;                             // what tells tenants apart
  double shutdown_timeout_seconds =
      30;               // for running requests to finish; below 0: as long as it takes
  int num_workers = 2;  // threads that parse, render and tokenize
  bool metrics = true;  // /metrics is there

  // Seconds since 1970, for `created`; empty: the system's clock. Tests set it.
  std::function<int64_t()> unix_time;
};

}  // namespace heddle::server
