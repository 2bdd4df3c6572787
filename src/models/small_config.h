// SPDX-License-Identifier: Apache-2.0
// For tests of families: configurations of the smallest sizes, and what becomes of them.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/registry.h"

namespace heddle::models::testing {

// Kinds of layers, short enough for lists of them.
inline constexpr auto kL = checkpoint::LayerKind::kLinearAttention;
inline constexpr auto kF = checkpoint::LayerKind::kFullAttention;

// What all files share, for `architecture`, updated by `changes`.
inline nlohmann::json small_config(std::string_view architecture,
                                   const nlohmann::json& changes = nlohmann::json::object()) {
  nlohmann::json config = {
      {"architectures", {architecture}}, {"vocab_size", 320},      {"hidden_size", 64},
      {"intermediate_size", 96},         {"num_hidden_layers", 4}, {"num_attention_heads", 4},
      {"num_key_value_heads", 2}};
  config.update(changes);
  return config;
}

inline checkpoint::ModelConfig parse(const nlohmann::json& config) {
  auto parsed = parse_config(config.dump());
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  return parsed.ok() ? std::move(*parsed) : checkpoint::ModelConfig{};
}

// kOk with an empty message when it is served after all.
inline Status refusal(const nlohmann::json& config) { return parse_config(config.dump()).status(); }

inline std::unique_ptr<const Model> model_of(const nlohmann::json& config) {
  return create_model(parse(config));
}

// How many of the last tokens each layer sees; 0: all.
inline std::vector<int64_t> windows_of(const nlohmann::json& config) {
  const checkpoint::ModelConfig parsed = parse(config);
  std::vector<int64_t> windows;
  for (int64_t i = 0; i < parsed.num_layers; ++i) windows.push_back(parsed.window_of(i));
  return windows;
}

// Every hub tensor that a model can be loaded from, all spellings together.
inline std::set<std::string> hub_names(const Model& model) {
  std::set<std::string> names;
  for (const checkpoint::WeightSpec& spec : model.weight_specs()) {
    for (const checkpoint::Assembly& assembly : spec.alternatives) {
      for (const checkpoint::HubPiece& piece : assembly) names.insert(piece.tensor.name);
    }
  }
  return names;
}

}  // namespace heddle::models::testing
