// SPDX-License-Identifier: Apache-2.0
#include "models/drafts/eagle.h"

#include <string>
#include <utility>

#include "checkpoint/config_reader.h"
#include "models/drafts/draft_config.h"
#include "models/drafts/eagle_layer.h"
#include "models/layers/linear.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::ModelConfig;
using checkpoint::WeightSpec;
using graph::GraphScope;
using graph::Value;

constexpr const char* kHubLayer = "layers.0.";

struct EagleConfig {
  bool projection_bias = false;  // the input projection has a bias
  bool qkv_bias = false;         // queries, keys and values have biases even if attention_bias is
                                 // false

  bool operator==(const EagleConfig&) const = default;
};

void read_eagle_config(ConfigReader& reader, ModelConfig& config) {
  config.attention_bias = reader.boolean("attention_bias", false);
  EagleConfig head;
  head.projection_bias = reader.boolean("bias", true);
  head.qkv_bias = reader.boolean("qkv_bias", false);
  if (reader.integer("draft_vocab_size", 0, {0, checkpoint::kVocabulary.high}) > 0) {
    reader.refuse("draft_vocab_size",
                  "networks of EAGLE-3 have one; use --speculative-algorithm eagle3");
  }
  require_one_layer(reader, config);
  config.own.set(head);
}

class Eagle final : public DraftModel {
 public:
  Eagle(const ModelConfig& config, const ModelConfig& target)
      : config_(config), target_(target), layer_(config, config.hidden_size, own().qkv_bias) {}

  [[nodiscard]] std::vector<WeightSpec> weight_specs() const override {
    std::vector<WeightSpec> specs;
    const int64_t width = config_.hidden_size;
    add_linear_weights(specs, std::string(kDraftScope) + "projection", {{"fc", width}}, 2 * width,
                       /*cut=*/{}, own().projection_bias);
    layer_.add_weights(specs, kHubLayer);
    return specs;
  }

  Result<DerivedWeights> derive_weights(const checkpoint::LoadedWeights&) const override {
    return layer_.derive_weights();
  }

  [[nodiscard]] CacheNeeds cache_needs() const override { return layer_.cache_needs(kHubLayer); }

  // The target's vector after its final norm.
  [[nodiscard]] std::vector<int64_t> hidden_states() const override { return {target_.num_layers}; }

  DraftOutputs build_first(graph::GraphBuilder& g, const DraftInputs& inputs) const override {
    return build(g, inputs);
  }

  DraftOutputs build_next(graph::GraphBuilder& g, const DraftInputs& inputs) const override {
    return build(g, inputs);
  }

 private:
  [[nodiscard]] const EagleConfig& own() const { return config_.own.get<EagleConfig>(); }

  DraftOutputs build(graph::GraphBuilder& g, const DraftInputs& inputs) const {
    const Value embedding = g.embedding(inputs.ids, "embed_tokens");
    DraftOutputs outputs;
    {
      const GraphScope scope(g, kDraftScope);
      const Value x = linear(g, g.concat(embedding, inputs.vectors.front()), "projection");
      outputs.vector = g.logit_rows(layer_.build(g, x, x, inputs.positions));
    }
    outputs.logits = linear(g, outputs.vector,
                            target_.tie_word_embeddings ? "embed_tokens" : "lm_head", DType::kF32);
    return outputs;
  }

  ModelConfig config_;
  ModelConfig target_;
  EagleLayer layer_;
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
