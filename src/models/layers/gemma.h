// SPDX-License-Identifier: Apache-2.0
// The parts that Gemma 3 and Gemma 4 share, in addition to their layers.
//
// Threading: values, used while a model loads.
#pragma once

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"
#include "models/layers/decoder.h"

namespace heddle::models {

// Shared keys of both: embeddings are tied, and the activation is not SiLU.
checkpoint::SharedKeys gemma_keys(checkpoint::ConfigReader& reader);

// Refuses a hidden_activation, under either of its names, other than the GELU with tanh.
void require_gelu(checkpoint::ConfigReader& reader);

// The factor on embeddings: sqrt(H), rounded to the dtype of the embeddings.
[[nodiscard]] double gemma_embedding_scale(const checkpoint::ModelConfig& config);

// Adds the weight names of checkpoints with image or audio towers, and ignores the towers' tensors.
void use_vision_names(const checkpoint::ModelConfig& config, DecoderOptions& options);

}  // namespace heddle::models
