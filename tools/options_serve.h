// SPDX-License-Identifier: Apache-2.0
// The options of `heddle serve`: the server's, and those of every model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "options.h"
#include "options_engine.h"
#include "server/server_options.h"

namespace heddle::tools {

struct ServeSettings {
  EngineSettings model;
  server::ServerOptions server;
  std::vector<std::string> served_model_names;
  std::string fair_key = "user";
  std::optional<std::string> api_key;
  bool metrics = true;
};

void declare_serve_options(Options& options, ServeSettings& settings);

// Settles the server's options and the engine's (apply() in options_engine.h). Error: as there; no
// API key or no model name where one is promised; an unknown --fair-key.
Status apply(ServeSettings& settings);

}  // namespace heddle::tools
