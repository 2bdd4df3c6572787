// SPDX-License-Identifier: Apache-2.0
#include "models/drafts/eagle.h"

#include <string>
#include <utility>

#include "checkpoint/config_reader.h"
#include "models/drafts/draft_config.h"
#include "models/layers/attention.h"
#include "models/layers/feed_forward.h"
#include "models/layers/linear.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::ModelConfig;
using checkpoint::WeightSpec;
using graph::GraphScope;
using graph::Value;

constexpr const char* kHubLayer = "layers.0.";

void read_eagle_config(ConfigReader& reader, ModelConfig& config) {
  config.attention_bias =
      reader.boolean("attention_bias", false) || reader.boolean("qkv_bias", false);
  // That of the projection; where nothing is said it has one.
  checkpoint::DraftHeadConfig head;
  head.projection_bias = reader.boolean("bias", true);
  if (reader.integer("draft_vocab_size", 0, {0, checkpoint::kVocabulary.high}) > 0) {
    reader.refuse("draft_vocab_size",
                  "networks of EAGLE-3 have one; use --speculative-algorithm eagle3");
  }
  if (config.num_layers != 1) reader.refuse("num_hidden_layers", "one layer is served");
  config.draft_head = std::move(head);
}

class Eagle final : public DraftModel {
 public:
  Eagle(const ModelConfig& config, const ModelConfig& target)
      : config_(config),
        target_(target),
        attention_(attention_of(config)),
        mlp_(config.hidden_size, config.intermediate_size) {
    attention_.add_layer(needs_);
    needs_.kv_modules.emplace_back(std::string(kHubLayer) + "self_attn.");
  }

  [[nodiscard]] std::vector<WeightSpec> weight_specs() const override {
    std::vector<WeightSpec> specs;
    const int64_t width = config_.hidden_size;
    const std::string ours = kDraftScope, hub = kHubLayer;
    add_linear_weights(specs, ours + "projection", {{"fc", width}}, 2 * width,
                       config_.draft_head->projection_bias);
    const std::string norm = "post_attention_layernorm";
    add_norm_weight(specs, ours + norm, hub + norm + ".weight", width, 0);
    attention_.add_weights(specs, ours + "self_attn.", hub + "self_attn.");
    mlp_.add_weights(specs, ours + "mlp.", hub + "mlp.");
    return specs;
  }

  Result<DerivedWeights> derive_weights(const checkpoint::LoadedWeights&) const override {
    DerivedWeights derived;
    derived.emplace_back(std::string(kDraftScope) + "inverse_frequencies",
                         inverse_frequencies(config_));
    return derived;
  }

  [[nodiscard]] CacheNeeds cache_needs() const override { return needs_; }

  // After the final norm.
  [[nodiscard]] std::vector<int64_t> hidden_states() const override { return {target_.num_layers}; }

  DraftOutputs build_first(graph::GraphBuilder& g, const DraftInputs& inputs) const override {
    return build(g, inputs);
  }

  DraftOutputs build_next(graph::GraphBuilder& g, const DraftInputs& inputs) const override {
    return build(g, inputs);
  }

 private:
  static Attention attention_of(const ModelConfig& config) {
    AttentionOptions options = attention_options(config);
    options.qkv_bias = config.attention_bias;
    return Attention(options);
  }

  DraftOutputs build(graph::GraphBuilder& g, const DraftInputs& inputs) const {
    const Value embedding = g.embedding(inputs.ids, "embed_tokens");
    DraftOutputs outputs;
    {
      const GraphScope scope(g, kDraftScope);
      const LayerInputs shared{.positions = inputs.positions,
                               .inverse_frequencies = g.weight("inverse_frequencies")};
      Value x = linear(g, g.concat(embedding, inputs.vectors.front()), "projection");
      {
        const GraphScope own(g, attention_.scope());
        x = g.add(x, attention_.build(g, x, shared, /*cache_layer=*/0));
      }
      const Value normed = g.rms_norm(x, "post_attention_layernorm", config_.rms_norm_eps);
      {
        const GraphScope own(g, "mlp.");
        x = g.add(x, mlp_.build(g, normed));
      }
      outputs.vector = g.logit_rows(x);
    }
    outputs.logits = linear(g, outputs.vector,
                            target_.tie_word_embeddings ? "embed_tokens" : "lm_head", DType::kF32);
    return outputs;
  }

  ModelConfig config_;
  ModelConfig target_;
  Attention attention_;
  SwigluMlp mlp_;
  CacheNeeds needs_;
};

}  // namespace

Result<std::unique_ptr<const DraftModel>> load_eagle(const std::filesystem::path& folder,
                                                     const ModelConfig& target) {
  HEDDLE_ASSIGN_OR_RETURN(
      const ModelConfig config,
      load_draft_config(folder, {.family = "EAGLE", .read = read_eagle_config}, target));
  return std::unique_ptr<const DraftModel>(std::make_unique<Eagle>(config, target));
}

}  // namespace heddle::models
