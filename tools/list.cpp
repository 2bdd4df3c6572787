// SPDX-License-Identifier: Apache-2.0
// heddle list: lists the models in Hugging Face's cache on this machine.
#include <cstdio>

#include <fmt/format.h>

#include "checkpoint/hub_cache.h"
#include "models/registry.h"
#include "tools/cli/subcommand.h"
#include "tools/cli/table.h"

namespace heddle::tools {
namespace {

std::string size_text(int64_t bytes) {
  constexpr double kMega = 1e6;
  const double megabytes = static_cast<double>(bytes) / kMega;
  return megabytes < 1e3 ? fmt::format("{:.0f} MB", megabytes)
                         : fmt::format("{:.1f} GB", megabytes / 1e3);
}

// The model's architecture, as "Qwen3ForCausalLM", or why the model cannot be served.
std::string kind_of(const checkpoint::CachedModel& model) {
  const Result<std::filesystem::path> folder = checkpoint::find_model(model.name);
  if (!folder.ok()) return std::string(folder.status().message());
  const Result<checkpoint::ModelConfig> config = models::load_config(*folder);
  return config.ok() ? config->architecture : std::string(config.status().message());
}

// Lists the models. Reasons are printed after the table, because sentences would make it wide.
int list() {
  const std::vector<checkpoint::CachedModel> models = checkpoint::cached_models();
  const std::string cache = checkpoint::hub_cache().string();
  if (models.empty()) {
    fmt::print("No models in {}; `hf download ORG/NAME` brings one there.\n", cache);
    return 0;
  }
  Table table({"model", "size", "architecture"});
  std::string notes;
  for (const checkpoint::CachedModel& model : models) {
    const std::string kind = kind_of(model);
    const bool served = kind.find(' ') == std::string::npos;
    table.add({model.name, model.folder.empty() ? "-" : size_text(model.bytes),
               served ? kind : "not served"});
    if (!served) notes += fmt::format("{}: {}\n", model.name, kind);
  }
  fmt::print("{}\n{}{}", cache, table.to_string(), notes.empty() ? "" : "\n" + notes);
  return 0;
}

std::function<int()> declare_list(Options& options) {
  options.examples("heddle list\nHF_HOME=/data/huggingface heddle list");
  return list;
}

}  // namespace

const Subcommand kList = {
    .name = "list", .summary = "List the models in Hugging Face's cache.", .declare = declare_list};

}  // namespace heddle::tools
