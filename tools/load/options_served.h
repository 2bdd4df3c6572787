// SPDX-License-Identifier: Apache-2.0
// Options of subcommands that load a model or ask a server for one: --url and what goes with it.
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
  std::string url;               // empty: no server
  std::string model;             // name to ask for; empty: the first of /v1/models
  std::string api_key;           // sent as a bearer token; empty: none
  bool insecure = false;         // any certificate is accepted
  double timeout_seconds = 600;  // limit for one answer of an evaluation
};

// `of_this_process`: the options declared so far, which --url excludes.
void declare_served_options(Options& options, ServedSettings& settings,
                            const std::vector<DeclaredOption>& of_this_process);

// Error: as parse_server_address(), naming --url.
Result<ServerAddress> address_of(const ServedSettings& settings);

}  // namespace heddle::tools
