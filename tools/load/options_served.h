// SPDX-License-Identifier: Apache-2.0
// Options of subcommands that load a model or use one on a server: --url and related options.
//
// Threading: free functions without state.
#pragma once

#include <string>
#include <vector>

#include <heddle/status.h>

#include "tools/cli/options.h"
#include "tools/load/server_address.h"

namespace heddle::tools {

struct ServedSettings {
  std::string url;               // URL of the server; empty: no server
  std::string model;             // name of the model; empty: the first in /v1/models
  std::string api_key;           // API key, sent as a bearer token; empty: no key
  bool insecure = false;         // true: any TLS certificate is accepted
  double timeout_seconds = 600;  // time limit for one answer of an evaluation
};

// Declares the options. `of_this_process`: the options declared so far that --url excludes.
void declare_served_options(Options& options, ServedSettings& settings,
                            const std::vector<DeclaredOption>& of_this_process);

// The address in --url. Error: that of parse_server_address(), naming --url.
Result<ServerAddress> address_of(const ServedSettings& settings);

}  // namespace heddle::tools
