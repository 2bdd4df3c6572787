// SPDX-License-Identifier: Apache-2.0
// GateOptions: the options by which RequestGate and PageGuard decide which requests are served.
#pragma once

#include <string>
#include <vector>

#include "server/http/http_message.h"
#include "server/http/http_server.h"
#include "server/http/key_ring.h"
#include "server/http/routes.h"

namespace heddle::server {

struct GateOptions {
  HttpServerOptions http;
  std::vector<std::string> served_model_names;  // shown by /v1/models; empty: the model's own
  std::string api_key;                          // empty: there is none
  std::string admin_api_key;                    // for routes that steer; empty: there is none
  std::vector<ApiKey> api_keys;                 // those of `ServerOptions::api_keys_file`
  CorsOptions cors;
  // Names of this server, beside those that it knows (PageGuard).
  std::vector<std::string> allowed_hosts;
  std::string root_path;  // "/llm": a proxy's prefix, taken off the paths that have it
  ErrorStyle error_style = ErrorStyle::kBoth;  // of routes that have no form of their own
  int overload_status = 503;                   // ErrorForm
};

}  // namespace heddle::server
