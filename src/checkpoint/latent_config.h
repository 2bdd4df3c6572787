// SPDX-License-Identifier: Apache-2.0
// The keys of the families with latent attention: DeepSeek-V2, DeepSeek-V3 (R1, Kimi-K2) and
// Kimi-Linear. They spell heads, experts and layer kinds in ways of their own, each of them in two
// generations. A part of parse_model_config() (model_config.h), which reads what all families
// share.
#pragma once

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"

namespace heddle::checkpoint {

// By architecture: the name that a file's model_type may vary under.
[[nodiscard]] bool is_latent_family(const ModelConfig& config);
[[nodiscard]] bool is_kimi_linear(const ModelConfig& config);

// Fills in latent_attention, head_dim (the rotary width), layer_kinds, is_moe_layer,
// linear_attention, moe and intermediate_size. Sizes that all families share have been read.
void read_latent_family(ConfigReader& reader, ModelConfig& config);

}  // namespace heddle::checkpoint
