// SPDX-License-Identifier: Apache-2.0
#include "models/count_prefill_flops.h"

#include <algorithm>

namespace heddle::models {
namespace {

constexpr double kMultiplyAdd = 2;

// The number of a weight's elements that one prompt token is multiplied by.
double elements_per_token(const checkpoint::WeightSpec& spec,
                          const checkpoint::ModelConfig& config) {
  const bool is_matrix = spec.shape.rank() >= 2 && !spec.name.ends_with("bias");
  const bool is_table = spec.name.starts_with("embed_tokens");
  if (!is_matrix || is_table || spec.name == "lm_head") return 0;
  const auto elements = static_cast<double>(spec.num_uses * spec.shape.num_elements());
  const bool is_of_experts = spec.shape.rank() == 3;
  if (!is_of_experts) return elements;
  return elements * static_cast<double>(config.moe->num_experts_per_token) /
         static_cast<double>(config.moe->num_experts);
}

// Operations per pair of tokens and layer, averaged over all pairs: half of them are causal.
double flops_per_pair(const checkpoint::ModelConfig& config, const KvShape& shape) {
  // In latent attention values are a part of the key rows.
  const int64_t value_dim =
      config.latent_attention ? config.latent_attention->kv_lora_rank : shape.value_width();
  return kMultiplyAdd * static_cast<double>(config.num_attention_heads) *
         static_cast<double>(shape.head_dim + value_dim) / 2;
}

}  // namespace

request::PrefillFlops count_prefill_flops(const checkpoint::ModelConfig& config,
                                          const Model& model) {
  request::PrefillFlops flops;
  for (const checkpoint::WeightSpec& spec : model.weight_specs()) {
    flops.per_token += kMultiplyAdd * elements_per_token(spec, config);
  }
  const CacheNeeds needs = model.cache_needs();
  for (const StateGroup& group : needs.state_groups) {
    for (const StatePart& part : group.parts) {
      if (part.tensor != ops::StateTensor::kRecurrent) continue;
      flops.per_token +=
          kDeltaRuleFlops * static_cast<double>(group.num_layers * part.shape.num_elements());
    }
  }
  for (const PageGroup& group : needs.page_groups) {
    (group.window > 0 ? flops.per_window_pair : flops.per_pair) +=
        static_cast<double>(group.num_layers) * flops_per_pair(config, group.shape);
    flops.window = std::max(flops.window, group.window);
  }
  return flops;
}

}  // namespace heddle::models
