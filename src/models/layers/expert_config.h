// SPDX-License-Identifier: Apache-2.0
// Reads how config.json describes experts: their sizes, which layers have them, and which experts a
// token may choose. Families spell these keys differently, so each passes its own keys. Errors are
// stored in the reader.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"

namespace heddle::models {

struct SizeKey {
  std::string_view name;
  std::optional<int64_t> fallback = std::nullopt;  // value if the key is absent; none: the key is
                                                   // required
};

struct ExpertKeys {
  SizeKey count;
  SizeKey per_token;
  SizeKey width;  // width of one expert
};

// Reads the routed experts. A token must not choose more experts than there are.
checkpoint::MoeConfig read_experts(checkpoint::ConfigReader& reader, const ExpertKeys& keys);

// Reads shared experts that are given as a number of experts of the same width: they are computed
// as one wider expert.
void read_shared_experts(checkpoint::ConfigReader& reader, std::string_view count_key,
                         checkpoint::MoeConfig& moe);

// Reads the limit of the choice to the best topk_group of the `groups_key` groups. `moe` must have
// a router.
void read_expert_groups(checkpoint::ConfigReader& reader, std::string_view groups_key,
                        checkpoint::MoeConfig& moe);

// Fills in is_moe_layer and moe: every decoder_sparse_step-th layer has experts unless
// mlp_only_layers lists it. If the number of experts is 0, no layer has them. Entries of
// mlp_only_layers that are not layer indices are noted.
void read_stepped_experts(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config,
                          const ExpertKeys& keys);

// Fills in is_moe_layer: experts are in the layers from first_k_dense_replace on whose index
// moe_layer_freq divides.
void read_first_dense_layers(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config,
                             int64_t default_dense);

// As read_first_dense_layers(), for newer files with mlp_layer_types: "sparse" or "dense" for each
// layer.
void read_listed_moe_layers(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config,
                            int64_t default_dense);

}  // namespace heddle::models
