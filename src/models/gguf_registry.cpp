// SPDX-License-Identifier: Apache-2.0
#include "models/gguf_registry.h"

#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "checkpoint/gguf_model.h"
#include "checkpoint/gguf_weights.h"
#include "checkpoint/readable.h"
#include "core/remedy.h"
#include "models/gguf_translation.h"
#include "models/registry.h"

namespace heddle::models {

namespace {

constexpr std::string_view kConvert = "download the file again, or another conversion of the model";

// Finds the family of the file's architecture. Error: kDataLoss without general.architecture;
// kUnimplemented for an unsupported one.
Result<GgufArchitecture> find_gguf_architecture(const checkpoint::GgufModel& model) {
  HEDDLE_ASSIGN_OR_RETURN(const auto name, model.metadata().text("general.architecture"));
  if (!name) return data_loss("the metadata has no general.architecture; download the file again");
  std::set<std::string_view> served;
  std::optional<GgufArchitecture> found;
  for (const Family& family : families()) {
    for (const GgufArchitecture& architecture : family.gguf) {
      served.insert(architecture.name);
      if (architecture.name != *name) continue;
      if (architecture.accepts == nullptr) {
        if (!found) found = architecture;
        continue;
      }
      GgufTranslation gguf(model, *name);
      if (architecture.accepts(gguf)) found = architecture;
    }
  }
  if (found) return *found;
  return unimplemented(fmt::format(
      "architecture {} is not served from GGUF files; served are {}. The model's safetensors files "
      "may be served all the same",
      checkpoint::readable(*name), fmt::join(served, ", ")));
}

Result<GgufTranslation> translate(const checkpoint::GgufModel& model) {
  HEDDLE_ASSIGN_OR_RETURN(const GgufArchitecture architecture, find_gguf_architecture(model));
  GgufTranslation gguf(model, architecture.name);
  architecture.translate(gguf);
  HEDDLE_RETURN_IF_ERROR(gguf.finish());
  return gguf;
}

}  // namespace

Result<std::string> gguf_config_text(const std::filesystem::path& path) {
  HEDDLE_ASSIGN_OR_RETURN(const checkpoint::GgufModel model, checkpoint::GgufModel::open(path));
  const Result<GgufTranslation> gguf = translate(model);
  if (!gguf.ok()) return with_remedy(gguf.status(), kConvert).with_context(path.string());
  return gguf->config_json();
}

Result<checkpoint::ModelConfig> load_gguf_config(const std::filesystem::path& path) {
  HEDDLE_ASSIGN_OR_RETURN(const checkpoint::GgufModel model, checkpoint::GgufModel::open(path));
  const Result<GgufTranslation> gguf = translate(model);
  if (!gguf.ok()) return with_remedy(gguf.status(), kConvert).with_context(path.string());
  Result<checkpoint::ModelConfig> config = parse_config(gguf->config_json());
  if (!config.ok()) {
    return config.status().with_context(path.string() + ", its metadata as a config.json");
  }
  if (const std::vector<std::string> unread = gguf->unread_keys(); !unread.empty()) {
    config->notes.push_back(
        fmt::format("{}: not read: {}", path.string(), fmt::join(unread, ", ")));
  }
  return config;
}

Result<std::unique_ptr<const checkpoint::WeightSource>> open_gguf_weights(
    const std::filesystem::path& path) {
  HEDDLE_ASSIGN_OR_RETURN(checkpoint::GgufModel model, checkpoint::GgufModel::open(path));
  Result<GgufTranslation> gguf = translate(model);
  if (!gguf.ok()) return with_remedy(gguf.status(), kConvert).with_context(path.string());
  std::vector<checkpoint::GgufSource> sources = gguf->take_sources();
  const std::vector<std::string> left_out = gguf->take_left_out();
  Result<checkpoint::GgufWeights> weights =
      checkpoint::GgufWeights::create(std::move(model), std::move(sources), left_out);
  if (!weights.ok()) return with_remedy(weights.status(), kConvert).with_context(path.string());
  return std::unique_ptr<const checkpoint::WeightSource>(
      std::make_unique<checkpoint::GgufWeights>(std::move(weights).value()));
}

}  // namespace heddle::models
