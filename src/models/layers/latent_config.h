// SPDX-License-Identifier: Apache-2.0
// How config.json describes latent attention (latent_attention.h).
#pragma once

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"

namespace heddle::models {

// Fills in latent_attention and head_dim, the width that positions rotate; head_dim in the file
// means nothing. Errors stay in the reader.
void read_latent_attention(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config);

}  // namespace heddle::models
