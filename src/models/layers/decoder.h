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
#include "models/layers/feed_forward.h"
#include "models/layers/layer.h"
#include "models/layers/rope_table.h"
#include "models/model.h"

namespace heddle::models {

// Hub names of the weights outside the layers.
struct DecoderNames {
  std::string prefix = "model.";  // prefix of all weights except the head
  std::string head = "lm_head";
  std::string layers = "layers.";  // after the prefix
};

struct DecoderOptions {
  std::string hub_prefix = "model.";  // prefix of all weights except lm_head
  std::string hub_head = "lm_head";
  std::string hub_norm = "norm";                               // the last norm, after the prefix
  std::vector<std::string> hub_embeddings = {"embed_tokens"};  // any of these, after the prefix
  std::vector<DecoderNames> other_names = {};  // alternative names in the family's checkpoints
  NormKind norm_kind = NormKind::kRms;
  float norm_offset = 0;         // 1: norms are zero-centred, they multiply by 1 + w
  bool norms_embedding = false;  // what enters the first layer, by a norm without a weight
  std::vector<std::string> ignored_prefixes = {};  // hub tensors a plain pass has no use for
  std::vector<RopeTable> rope_tables = {};  // tables that layers refer to; empty: the config's
  double embedding_scale = 1;
  bool head_bias = false;
  double logit_scale = 1;
  double logit_softcap = 0;  // c of c tanh(logit / c), after the scale; 0: none
  std::unique_ptr<const SharedInputs> shared_inputs = nullptr;
};

// One layer for each of config.num_layers.
std::unique_ptr<const Model> make_decoder(const checkpoint::ModelConfig& config,
                                          DecoderOptions options, std::vector<DecoderLayer> layers);

// Everything but the attention in the layers of a plain transformer.
struct LayerOptions {
  Frame frame = Frame::kPre;
  double residual_scale = 1;
  MlpOptions mlp = {};
  std::string mlp_scope = "mlp.";  // the hub's name of a dense block
  std::string moe_scope = "mlp.";  // the hub's name of a block with experts
};

// The layers of a plain transformer as its config.json describes them: `attention` with the window
// and the rotary table of each layer, and an MLP or experts.
std::vector<DecoderLayer> transformer_layers(const checkpoint::ModelConfig& config,
                                             const AttentionOptions& attention,
                                             const LayerOptions& options = {});

// One of these layers, with the attention of this layer.
DecoderLayer transformer_layer(const checkpoint::ModelConfig& config,
                               const AttentionOptions& attention, const LayerOptions& options,
                               int64_t layer);

}  // namespace heddle::models
