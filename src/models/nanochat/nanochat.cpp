// SPDX-License-Identifier: Apache-2.0
// nanochat: norms without weights, also after the embedding, a rotation by negative angles before
// the norms of queries and keys, and an MLP without a gate. Karpathy, github.com/karpathy/nanochat.
#include "models/layers/decoder.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::ModelConfig;

void read_nanochat_config(ConfigReader& reader, ModelConfig& config) {
  if (reader.text("hidden_act", std::string("relu2")) != "relu2") {
    reader.refuse("hidden_act", "only \"relu2\" is served");
  }
  config.attention_bias = reader.boolean("attention_bias", false);
  config.own.set(reader.number("final_logit_softcapping", 15.0, {0, 1e6}));
}

std::unique_ptr<const Model> create_nanochat(const ModelConfig& config) {
  AttentionOptions attention = attention_options(config);
  attention.qk_norm = QkNorm::kRotated;
  attention.qkv_bias = config.attention_bias;
  attention.output_bias = config.attention_bias;
  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    layers.push_back(pre_norm_layer(
        std::make_unique<Attention>(attention),
        std::make_unique<SquaredReluMlp>(config.hidden_size, config.intermediate_size,
                                         MlpNames{.up = "fc1", .down = "fc2"})));
  }
  return make_decoder(
      config,
      {.norm_kind = NormKind::kUnitRms,
       .norms_embedding = true,
       .rope_tables = {{.rope = config.rope, .head_dim = config.head_dim, .reversed = true}},
       .logit_softcap = config.own.get<double>()},
      std::move(layers));
}

checkpoint::SharedKeys nanochat_keys(ConfigReader& /*reader*/) {
  return {.reads_activation = true};
}

}  // namespace

Family nanochat() {
  return {.name = "nanochat",
          .architectures = {"NanoChatForCausalLM"},
          .model_types = {{"nanochat", "NanoChatForCausalLM"}},
          .shared_keys = nanochat_keys,
          .read_config = read_nanochat_config,
          .create = create_nanochat};
}

}  // namespace heddle::models
