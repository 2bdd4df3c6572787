// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/layer_kinds.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "checkpoint/config_ranges.h"
#include "checkpoint/readable.h"

namespace heddle::checkpoint {

namespace {

std::string_view kind_name(LayerKind kind) {
  switch (kind) {
    case LayerKind::kLinearAttention:
      return "linear_attention";
    case LayerKind::kFullAttention:
      return "full_attention";
    case LayerKind::kSlidingAttention:
      return "sliding_attention";
  }
  return "unknown";
}

std::string names_of(const std::vector<LayerKind>& kinds) {
  std::vector<std::string> names;
  for (const LayerKind kind : kinds) names.push_back(readable(kind_name(kind)));
  return fmt::format("{}", fmt::join(names, " and "));
}

std::vector<LayerKind> read_layer_types(ConfigReader& reader, const ModelConfig& config,
                                        const std::vector<LayerKind>& served) {
  const std::vector<std::string> names = reader.texts("layer_types");
  if (static_cast<int64_t>(names.size()) != config.num_layers) {
    reader.fail(invalid_argument(fmt::format("layer_types has {} entries, num_hidden_layers is {}",
                                             names.size(), config.num_layers)));
  }
  std::vector<LayerKind> kinds;
  for (const std::string& name : names) {
    const auto kind = std::ranges::find(served, name, kind_name);
    if (kind == served.end()) {
      reader.fail(unimplemented(fmt::format("layer_types has {}; {} is served with {}",
                                            readable(name), config.family, names_of(served))));
      break;
    }
    kinds.push_back(*kind);
  }
  kinds.resize(static_cast<size_t>(config.num_layers), LayerKind::kFullAttention);
  return kinds;
}

}  // namespace

void read_layer_kinds(ConfigReader& reader, ModelConfig& config,
                      const std::vector<LayerKind>& served,
                      const std::function<LayerKind(int64_t layer)>& otherwise) {
  config.layer_kinds.clear();
  if (reader.has("layer_types")) {
    config.layer_kinds = read_layer_types(reader, config, served);
    return;
  }
  for (int64_t i = 0; i < config.num_layers; ++i) config.layer_kinds.push_back(otherwise(i));
}

void read_sliding_window(ConfigReader& reader, ModelConfig& config,
                         std::optional<int64_t> fallback) {
  reader.disregard("sliding_window");
  if (config.num_layers_of(LayerKind::kSlidingAttention) == 0) return;
  if (reader.has("use_sliding_window") && !reader.boolean("use_sliding_window", true)) {
    reader.fail("use_sliding_window",
                reader.has("layer_types")
                    ? "but layer_types has \"sliding_attention\""
                    : "but sliding_window is set: remove the one that is not meant");
  }
  config.sliding_window = reader.integer("sliding_window", fallback, kPositions);
}

void read_late_windows(ConfigReader& reader, ModelConfig& config) {
  const bool slides = reader.boolean("use_sliding_window", false);
  const int64_t first = slides ? reader.integer("max_window_layers", 28, {0, kLayers.high}) : 0;
  read_layer_kinds(reader, config, {LayerKind::kFullAttention, LayerKind::kSlidingAttention},
                   [&](int64_t layer) {
                     return slides && layer >= first ? LayerKind::kSlidingAttention
                                                     : LayerKind::kFullAttention;
                   });
  read_sliding_window(reader, config);
}

}  // namespace heddle::checkpoint
