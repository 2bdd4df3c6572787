// SPDX-License-Identifier: Apache-2.0
#include "tools/load/options_served.h"

#include <algorithm>

namespace heddle::tools {

void declare_served_options(Options& options, ServedSettings& settings,
                            const std::vector<DeclaredOption>& of_this_process) {
  options.text("--url", &settings.url,
               "Ask a server that speaks OpenAI's API, by http or https, instead of a model here");
  options.text("--served-model", &settings.model,
               "Name to ask that server for; default: the first of /v1/models");
  options.text("--api-key", &settings.api_key, "Key to send to that server");
  options.flag("--insecure", &settings.insecure, "Accept any certificate of an https server");
  for (const char* name : {"--served-model", "--api-key", "--insecure"}) {
    options.needs(name, "--url");
  }
  for (const DeclaredOption& option : of_this_process) {
    const auto name = std::ranges::find_if(
        option.names, [](const std::string& one) { return one.starts_with("--"); });
    if (option.familiar || name == option.names.end() || name->starts_with("--log-")) continue;
    options.excludes("--url", name->c_str());
  }
}

Result<ServerAddress> address_of(const ServedSettings& settings) {
  Result<ServerAddress> address = parse_server_address(settings.url);
  if (!address.ok()) return address.status().with_context("--url");
  address->insecure = settings.insecure;
  return address;
}

}  // namespace heddle::tools
