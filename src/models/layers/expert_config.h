// SPDX-License-Identifier: Apache-2.0
// Reads how config.json describes experts: their sizes, which layers have them, and which of them
// may be chosen. Families spell the same things differently, so the keys come from them. Errors
// stay in the reader.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"

namespace heddle::models {

struct SizeKey {
  std::string_view name;
  std::optional<int64_t> fallback = std::nullopt;  // none: the key is required
};

struct ExpertKeys {
  SizeKey count;
  SizeKey per_token;
  SizeKey width;  // width of one expert
};

// The routed experts; a token chooses no more than there are.
checkpoint::MoeConfig read_experts(checkpoint::ConfigReader& reader, const ExpertKeys& keys);

// Shared experts as a number of experts of the same width: side by side they are one.
void read_shared_experts(checkpoint::ConfigReader& reader, std::string_view count_key,
                         checkpoint::MoeConfig& moe);

// Limits the choice to the best of `groups_key` groups, of which topk_group are kept. `moe` has a
// router.
void read_expert_groups(checkpoint::ConfigReader& reader, std::string_view groups_key,
                        checkpoint::MoeConfig& moe);

// Fills in is_moe_layer and moe: every decoder_sparse_step-th layer has experts unless it is among
// mlp_only_layers; none has where their count is 0. Numbers there that are no layer are noted.
void read_stepped_experts(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config,
                          const ExpertKeys& keys);

// Fills in is_moe_layer: layers from first_k_dense_replace on whose number moe_layer_freq divides.
void read_first_dense_layers(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config,
                             int64_t default_dense);

// The same for later files with mlp_layer_types, "sparse" or "dense" for each layer.
void read_listed_moe_layers(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config,
                            int64_t default_dense);

}  // namespace heddle::models
