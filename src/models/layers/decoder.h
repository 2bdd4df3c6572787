// SPDX-License-Identifier: Apache-2.0
// Decoder: the model that all families share the frame of: embedding, layers, final norm, head. A
// family says which blocks each layer has (layer.h), and how its checkpoints spell the rest.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/model_config.h"
#include "models/layers/attention.h"
#include "models/layers/layer.h"
#include "models/layers/rope_table.h"
#include "models/model.h"

namespace heddle::models {

struct DecoderOptions {
  std::string hub_prefix = "model.";  // of everything but lm_head
  float norm_offset = 0;              // 1: norms are zero-centred, they multiply by 1 + w
  std::vector<std::string> ignored_prefixes = {};  // hub tensors a plain pass has no use for
  std::vector<RopeTable> rope_tables = {};         // that layers name; empty: the config's
};

// One layer for each of config.num_layers.
std::unique_ptr<const Model> make_decoder(const checkpoint::ModelConfig& config,
                                          DecoderOptions options, std::vector<DecoderLayer> layers);

// The layers of a plain transformer as its config.json describes them: `attention` with the window
// and the rotary table of each layer, and an MLP or experts.
std::vector<DecoderLayer> transformer_layers(const checkpoint::ModelConfig& config,
                                             AttentionOptions attention);

}  // namespace heddle::models
