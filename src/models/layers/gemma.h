// SPDX-License-Identifier: Apache-2.0
// The parts that Gemma 3 and Gemma 4 share beside their layers.
//
// Threading: values, used while a model loads.
#pragma once

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"
#include "models/layers/decoder.h"

namespace heddle::models {

// Their embeddings are tied, and their activation is not SiLU.
checkpoint::SharedKeys gemma_keys(checkpoint::ConfigReader& reader);

// hidden_activation, by either of its names, must be the GELU with a tanh.
void require_gelu(checkpoint::ConfigReader& reader);

// sqrt(H), rounded as the embeddings are.
[[nodiscard]] double gemma_embedding_scale(const checkpoint::ModelConfig& config);

// Adds the names of checkpoints with towers for images or sounds, and ignores the towers.
void use_vision_names(const checkpoint::ModelConfig& config, DecoderOptions& options);

}  // namespace heddle::models
