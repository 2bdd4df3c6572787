// SPDX-License-Identifier: Apache-2.0
// Gemma4Config: the keys of config.json that only Gemma 4 has.
//
// Threading: values.
#pragma once

#include <cstdint>

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"

namespace heddle::models {

// Width and number of the heads in one kind of layer.
struct Gemma4Heads {
  int64_t head_dim = 0;
  int64_t num_kv_heads = 0;

  bool operator==(const Gemma4Heads&) const = default;
};

struct Gemma4Config {
  Gemma4Heads full;
  Gemma4Heads sliding;
  bool keys_are_values = false;      // full layers use the keys as values
  int64_t num_kv_shared_layers = 0;  // number of last layers, which read the KV pages of earlier
                                     // layers
  bool doubles_shared_mlps = false;  // the MLPs of these last layers are twice as wide
  int64_t per_layer_width = 0;       // width of the per-layer input (per_layer_input.h); 0: none
  int64_t per_layer_vocabulary = 0;
  double logit_softcap = 0;

  bool operator==(const Gemma4Config&) const = default;
};

void read_gemma4_config(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config);

}  // namespace heddle::models
