// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/nextn_layer.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/config_reader.h"

namespace heddle::checkpoint {

namespace {

using nlohmann::json;

constexpr std::string_view kOwnPrefix = "mtp.";
constexpr std::string_view kCountKey = "num_nextn_predict_layers";
constexpr int64_t kMaxLayers = 100'000;  // far above any real model; limits the length of the
                                         // printed index

// The prefix of a layer's tensors. It ends with a dot, because "model.layers.6" is also the
// beginning of layer 61's names.
std::string layer_prefix(int64_t index) { return fmt::format("model.layers.{}.", index); }

bool any_starts_with(std::span<const std::string_view> names, std::string_view prefix) {
  return std::ranges::any_of(names,
                             [prefix](std::string_view name) { return name.starts_with(prefix); });
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// An occurrence of "layers.61" in a module's name or in a regular expression, where the dot may be
// escaped.
struct LayerMention {
  size_t begin = 0;  // position of the layer's number in the text
  size_t end = 0;
};

std::optional<LayerMention> find_layer_mention(const std::string& module) {
  for (const std::string_view marker : {"layers.", "layers\\."}) {
    const size_t at = module.find(marker);
    if (at == std::string::npos) continue;
    LayerMention mention{.begin = at + marker.size(), .end = at + marker.size()};
    while (mention.end < module.size() && is_digit(module[mention.end])) ++mention.end;
    if (mention.end > mention.begin) return mention;
  }
  return std::nullopt;
}

// The draft's name for a module in the lists of quantization_config; none if the module belongs to
// another layer.
std::optional<std::string> draft_module(const std::string& module, const NextnLayer& layer) {
  if (layer.form == NextnLayer::Form::kOwnPrefix && module.find("mtp") != std::string::npos) {
    return module;
  }
  const auto mention = find_layer_mention(module);
  if (!mention) return module;
  const std::string digits = module.substr(mention->begin, mention->end - mention->begin);
  if (layer.form == NextnLayer::Form::kOwnPrefix || digits != std::to_string(layer.layer_index)) {
    return std::nullopt;
  }
  return module.substr(0, mention->begin) + "0" + module.substr(mention->end);
}

// Rewrites every list of module names in `value`. Returns false if it is nested too deeply.
bool rewrite_module_lists(json& value, const NextnLayer& layer, int depth_left) {
  if (depth_left == 0) return false;
  if (!value.is_structured()) return true;
  json rewritten = json::array();
  for (json& item : value) {
    if (!rewrite_module_lists(item, layer, depth_left - 1)) return false;
    if (!value.is_array()) continue;
    if (!item.is_string()) {
      rewritten.push_back(std::move(item));
    } else if (auto module = draft_module(item.get_ref<const std::string&>(), layer)) {
      rewritten.push_back(std::move(*module));
    }
  }
  if (value.is_array()) value = std::move(rewritten);
  return true;
}

// The architecture's name in engines that serve such drafts.
std::string draft_architecture(const std::string& target, NextnLayer::Form form) {
  if (form == NextnLayer::Form::kOwnPrefix) return target + "MTP";
  if (target == "DeepseekV32ForCausalLM") return "DeepseekV3ForCausalLMNextN";
  return target + "NextN";
}

// The tensor that joins the embedding and the hidden state. A layer without it is not a draft.
std::string joining_tensor(const NextnLayer& layer) {
  return layer.form == NextnLayer::Form::kOwnPrefix ? "mtp.fc."
                                                    : layer_prefix(layer.layer_index) + "eh_proj.";
}

}  // namespace

std::optional<std::string> NextnLayer::draft_name(std::string_view hub_name) const {
  for (const std::string_view shared : {"embed_tokens", "shared_head.head"}) {
    if (hub_name.find(shared) != std::string_view::npos) return std::nullopt;
  }
  if (form == Form::kOwnPrefix) {
    if (!hub_name.starts_with(checkpoint::kOwnPrefix)) return std::nullopt;
    return std::string(hub_name);
  }
  const std::string prefix = layer_prefix(layer_index);
  if (!hub_name.starts_with(prefix)) return std::nullopt;
  return layer_prefix(0) + std::string(hub_name.substr(prefix.size()));
}

Result<NextnLayer> find_nextn_layer(const json& config,
                                    std::span<const std::string_view> hub_names) {
  Status error;
  ConfigReader reader({&config}, error);
  NextnLayer layer{.layer_index = reader.integer("num_hidden_layers", std::nullopt,
                                                 {.low = 1, .high = kMaxLayers})};
  const int64_t count = reader.integer(kCountKey, 1, {.low = 0, .high = kMaxLayers});
  HEDDLE_RETURN_IF_ERROR(error);

  if (any_starts_with(hub_names, kOwnPrefix)) {
    layer.form = NextnLayer::Form::kOwnPrefix;
  } else if (!any_starts_with(hub_names, layer_prefix(layer.layer_index))) {
    return not_found(fmt::format(
        "the checkpoint has no next-token-prediction layer: no tensor begins with {} or "
        "{}; take one that was published with it",
        kOwnPrefix, layer_prefix(layer.layer_index)));
  } else if (!reader.has(kCountKey)) {
    return data_loss(fmt::format("{} is missing, but there are tensors {}*", kCountKey,
                                 layer_prefix(layer.layer_index)));
  }
  if (count == 0) {
    return data_loss(fmt::format("{} is 0, but the checkpoint has such a layer", kCountKey));
  }
  const bool has_second = any_starts_with(hub_names, layer.form == NextnLayer::Form::kOwnPrefix
                                                         ? "mtp.layers.1."
                                                         : layer_prefix(layer.layer_index + 1));
  if (count > 1 || has_second) {
    return unimplemented(
        fmt::format("the checkpoint has {} next-token-prediction layers; a draft "
                    "has exactly one",
                    count > 1 ? std::to_string(count) : "several"));
  }
  if (!any_starts_with(hub_names, joining_tensor(layer))) {
    return data_loss(fmt::format("tensor {}weight of the next-token-prediction layer is missing",
                                 joining_tensor(layer)));
  }
  return layer;
}

Result<json> draft_config(const json& config, const NextnLayer& layer) {
  Status error;
  const std::vector<std::string> architectures =
      ConfigReader({&config}, error).texts("architectures");
  HEDDLE_RETURN_IF_ERROR(error);
  if (architectures.empty()) return data_loss("architectures is missing or empty");

  json draft = config;
  draft["architectures"] = json::array({draft_architecture(architectures[0], layer.form)});
  draft["num_hidden_layers"] = 1;
  if (layer.form == NextnLayer::Form::kOwnPrefix) {  // this kind of layer has full attention
    if (draft.contains("full_attention_interval")) draft["full_attention_interval"] = 1;
    if (draft.contains("layer_types")) draft["layer_types"] = json::array({"full_attention"});
  }
  constexpr int kMaxDepth = 32;
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (draft.contains(key) && !rewrite_module_lists(draft[key], layer, kMaxDepth)) {
      return data_loss(fmt::format("{} is nested more than {} levels deep", key, kMaxDepth));
    }
  }
  return draft;
}

}  // namespace heddle::checkpoint
