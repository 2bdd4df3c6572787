// SPDX-License-Identifier: Apache-2.0
// The options of `heddle serve`: those of the server and those of every model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/server_options.h"
#include "tools/cli/options.h"
#include "tools/cli/options_engine.h"

namespace heddle::tools {

struct ServeSettings {
  EngineSettings model;
  std::vector<std::string> adapters;     // loaded at the start
  bool enable_lora = false;              // true: adapters may be loaded later, too
  int32_t max_loras = 8;                 // with enable_lora: most adapters in memory
  std::optional<int32_t> max_lora_rank;  // none: the highest of `adapters`, else 64
  server::ServerOptions server;
  std::optional<std::string> config_file;  // the file was already read when the options are parsed
  std::vector<std::string> served_model_names;
  std::string fair_key = "user";
  std::string tool_call_parser = "auto";
  std::string reasoning_parser = "auto";
  std::optional<std::string> api_key;
  std::optional<std::string> admin_api_key;
  std::optional<std::string> api_keys_file;
  std::string cache_isolation = "none";
  std::vector<std::string> cors_origins;
  std::vector<std::string> cors_headers;
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> quiet_paths;
  std::string log_requests_target = "stdout";
  std::string error_format = "both";
  std::string overload_status = "503";
  double shutdown_drain_delay_seconds = 5;
  bool metrics = true;
  std::string reasoning_field = "reasoning_content";
  std::string max_tokens_overflow = "by-api";
  std::string sampling_defaults = "model";
};

void declare_serve_options(Options& options, ServeSettings& settings);

// Checks and completes the options of the server and of the engine (apply() in options_engine.h).
// Errors: those of that function; an empty API key or model name; an invalid file of API keys; an
// invalid origin or host; an unknown --fair-key or parser.
Status apply(ServeSettings& settings);

}  // namespace heddle::tools
