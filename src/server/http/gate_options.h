// SPDX-License-Identifier: Apache-2.0
// GateOptions: the options by which RequestGate and PageGuard decide which requests are accepted.
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
  std::vector<std::string> served_model_names;  // names in /v1/models; empty: the model's own name
  std::string api_key;           // key without a name and without limits; empty: no such key
  std::string admin_api_key;     // key for routes that control the server; empty: no such key
  std::vector<ApiKey> api_keys;  // the named keys in ServerOptions::api_keys_file
  CorsOptions cors;
  // Host names of this server, besides those that PageGuard knows.
  std::vector<std::string> allowed_hosts;
  std::string root_path;  // prefix that a proxy puts before paths, as "/llm"; removed from paths
                          // that begin with it
  ErrorStyle error_style = ErrorStyle::kBoth;  // form of errors on routes that belong to no API
  int overload_status = 503;                   // HTTP status for overload; see ErrorForm
};

}  // namespace heddle::server
