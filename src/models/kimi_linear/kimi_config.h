// SPDX-License-Identifier: Apache-2.0
// Kimi-Linear's keys, in two generations: as published (linear_attn_config, with layers counted
// from one) and as later files write them (layer_types, linear_num_heads, mlp_layer_types).
#pragma once

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"

namespace heddle::models {

// A checkpoint::FamilyReader. Where a file has both spellings, they must agree. Relatives that
// reuse the architecture's name with more in it are refused by the key that says so.
void read_kimi_config(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config);

}  // namespace heddle::models
