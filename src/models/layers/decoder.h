// SPDX-License-Identifier: Apache-2.0
// Decoder: the structure that all families share: embedding, layers, final norm, head. A family
// supplies the blocks of each layer (layer.h) and the hub's names.
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
  std::string layers = "layers.";  // prefix of the layers' names, after `prefix`
};

struct DecoderOptions {
  std::string hub_prefix = "model.";  // prefix of all weights except lm_head
  std::string hub_head = "lm_head";
  // the final norm's name, after hub_prefix
  std::string hub_norm = "norm";
  // names of the embedding, after hub_prefix; files have one of them
  std::vector<std::string> hub_embeddings = {"embed_tokens"};
  std::vector<DecoderNames> other_names = {};  // alternative names in the family's checkpoints
  NormKind norm_kind = NormKind::kRms;
  float norm_offset = 0;         // added to norm weights; 1: norms are zero-centred
  bool norms_embedding = false;  // the first layer's input passes a norm without a weight
  std::vector<std::string> ignored_prefixes = {};  // prefixes of hub tensors that a plain forward
                                                   // pass does not use
  std::vector<RopeTable> rope_tables = {};  // rotary tables that layers select from; empty: the
                                            // config's
  double embedding_scale = 1;
  bool head_bias = false;
  double logit_scale = 1;
  double logit_softcap = 0;  // c in c tanh(logit / c), applied after logit_scale; 0: no cap
  std::unique_ptr<const SharedInputs> shared_inputs = nullptr;
};

// `layers` has one element for each of config.num_layers.
std::unique_ptr<const Model> make_decoder(const checkpoint::ModelConfig& config,
                                          DecoderOptions options, std::vector<DecoderLayer> layers);

// Options for the parts of a plain transformer's layers other than the attention.
struct LayerOptions {
  Frame frame = Frame::kPre;
  double residual_scale = 1;
  MlpOptions mlp = {};
  std::string mlp_scope = "mlp.";  // hub prefix of a dense MLP
  std::string moe_scope = "mlp.";  // hub prefix of a block with experts
};

// The layers of a plain transformer as its config.json describes them: `attention`, adapted to the
// window and the rotary table of each layer, and an MLP or experts.
std::vector<DecoderLayer> transformer_layers(const checkpoint::ModelConfig& config,
                                             const AttentionOptions& attention,
                                             const LayerOptions& options = {});

// One layer of a plain transformer, with this layer's attention.
DecoderLayer transformer_layer(const checkpoint::ModelConfig& config,
                               const AttentionOptions& attention, const LayerOptions& options,
                               int64_t layer);

}  // namespace heddle::models
