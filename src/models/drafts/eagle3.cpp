// SPDX-License-Identifier: Apache-2.0
#include "models/drafts/eagle3.h"

#include <cstring>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/config_reader.h"
#include "core/remedy.h"
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

constexpr const char* kIdDifferences = "d2t";

struct Eagle3Config {
  int64_t vocab_size = 0;                 // size of the draft vocabulary; 0: that of the target
                                          // model
  std::vector<int64_t> read_layers = {};  // indices of the target's layers that it reads; empty:
                                          // the usual three

  bool operator==(const Eagle3Config&) const = default;
};

void read_eagle3_config(ConfigReader& reader, ModelConfig& config) {
  config.attention_bias = reader.boolean("attention_bias", false);
  Eagle3Config head;
  head.vocab_size = reader.integer("draft_vocab_size", 0, {0, checkpoint::kVocabulary.high});
  const int64_t width =
      reader.integer("target_hidden_size", config.hidden_size, checkpoint::kWidth);
  if (width != config.hidden_size) {
    reader.refuse("target_hidden_size",
                  fmt::format("served is hidden_size, {}", config.hidden_size));
  }
  require_one_layer(reader, config);
  if (const nlohmann::json* eagle = reader.object("eagle_config")) {
    ConfigReader inner = reader.narrowed({eagle}, /*keep_own=*/false);
    if (!inner.boolean("use_aux_hidden_state", true)) {
      inner.refuse("use_aux_hidden_state", "networks that read several layers are served");
    }
    head.read_layers =
        inner.integers("eagle_aux_hidden_state_layer_ids", {0, checkpoint::kLayers.high});
  }
  config.own.set(std::move(head));
}

// The vectors it reads, as indices of ForwardOutputs::hidden_states. The input of a layer is the
// output of the layer before it.
std::vector<int64_t> hidden_states_read(const Eagle3Config& head, int64_t num_target_layers) {
  if (head.read_layers.empty()) return {2, num_target_layers / 2, num_target_layers - 3};
  std::vector<int64_t> entered;
  for (const int64_t layer : head.read_layers) entered.push_back(layer + 1);
  return entered;
}

class Eagle3 final : public DraftModel {
 public:
  Eagle3(const ModelConfig& config, const ModelConfig& target)
      : config_(config),
        target_(target),
        layer_(config, 2 * config.hidden_size, /*qkv_bias=*/false) {}

  [[nodiscard]] std::vector<WeightSpec> weight_specs() const override {
    std::vector<WeightSpec> specs;
    const int64_t width = config_.hidden_size;
    const std::string ours = kDraftScope;
    add_linear_weights(specs, ours + "projection", {{"fc", width}},
                       width * std::ssize(hidden_states()));
    add_norm_weight(specs, ours + "norm", "norm.weight", width, 0);
    if (own().vocab_size > 0) {
      add_linear_weights(specs, ours + "lm_head", {{"lm_head", own().vocab_size}}, width,
                         vocabulary_cut(own().vocab_size));
    }
    add_either(specs, layer_weights("midlayer."), layer_weights("layers.0."));
    return specs;
  }

  Result<DerivedWeights> derive_weights(const checkpoint::LoadedWeights&) const override {
    return layer_.derive_weights();
  }

  [[nodiscard]] CacheNeeds cache_needs() const override { return layer_.cache_needs("midlayer."); }

  [[nodiscard]] std::vector<int64_t> hidden_states() const override {
    return hidden_states_read(own(), target_.num_layers);
  }

  // The files store differences: target id = draft id + d2t[draft id].
  Result<std::vector<TokenId>> target_ids(const checkpoint::WeightSource& source) const override {
    const int64_t count = own().vocab_size;
    std::vector<TokenId> ids;
    const auto stored = source.find({.name = kIdDifferences, .shape = {count}});
    if (count == 0 || source.names().empty()) {  // random weights: draft ids are the target's first
                                                 // ids
      for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<TokenId>(i));
      return ids;
    }
    if (!stored || stored->stored_dtype != "I64" || stored->shape != Shape{count}) {
      return data_loss(fmt::format("{} is not there as {} numbers of I64; download the draft again",
                                   kIdDifferences, count));
    }
    for (int64_t i = 0; i < count; ++i) {
      int64_t difference = 0;
      std::memcpy(&difference, static_cast<const std::byte*>(stored->data) + 8 * i, 8);
      const int64_t most = target_.vocab_size - 1 - i;
      if (difference < -i || difference > most) {
        return data_loss(
            fmt::format("{}[{}] is {}, but the model has {} tokens; name a draft of this model",
                        kIdDifferences, i, difference, target_.vocab_size));
      }
      ids.push_back(static_cast<TokenId>(i + difference));
    }
    return ids;
  }

  DraftOutputs build_first(graph::GraphBuilder& g, const DraftInputs& inputs) const override {
    Value all = inputs.vectors.front();
    for (size_t i = 1; i < inputs.vectors.size(); ++i) all = g.concat(all, inputs.vectors[i]);
    const Value embedding = g.embedding(inputs.ids, "embed_tokens");
    Slots slots;
    {
      const GraphScope scope(g, kDraftScope);
      slots = build(g, inputs, embedding, linear(g, all, "projection"));
    }
    return outputs_of(g, slots);
  }

  DraftOutputs build_next(graph::GraphBuilder& g, const DraftInputs& inputs) const override {
    const Value embedding = g.embedding(inputs.ids, "embed_tokens");
    Slots slots;
    {
      const GraphScope scope(g, kDraftScope);
      slots = build(g, inputs, embedding, inputs.vectors.front());
    }
    return outputs_of(g, slots);
  }

 private:
  [[nodiscard]] const Eagle3Config& own() const { return config_.own.get<Eagle3Config>(); }

  struct Slots {
    Value vector;  // [R, H]: input of the next slot
    Value normed;  // [R, H]: input of the head
  };

  [[nodiscard]] std::vector<WeightSpec> layer_weights(const std::string& hub) const {
    std::vector<WeightSpec> specs;
    const std::string ours = kDraftScope;
    for (const std::string norm : {"input_layernorm", "hidden_norm"}) {
      add_norm_weight(specs, ours + norm, hub + norm + ".weight", config_.hidden_size, 0);
    }
    layer_.add_weights(specs, hub);
    return specs;
  }

  // Builds the layer and the head; call it within kDraftScope.
  [[nodiscard]] Slots build(graph::GraphBuilder& g, const DraftInputs& inputs, Value embedding,
                            Value h) const {
    const double epsilon = config_.rms_norm_eps;
    const Value in = g.concat(g.rms_norm(embedding, "input_layernorm", epsilon),
                              g.rms_norm(h, "hidden_norm", epsilon));
    const Value rows = g.logit_rows(layer_.build(g, in, h, inputs.positions));
    return {.vector = rows, .normed = g.rms_norm(rows, "norm", epsilon)};
  }

  [[nodiscard]] DraftOutputs outputs_of(graph::GraphBuilder& g, const Slots& slots) const {
    std::string head = target_.tie_word_embeddings ? "embed_tokens" : "lm_head";
    if (own().vocab_size > 0) head = std::string(kDraftScope) + "lm_head";
    return {.logits = linear(g, slots.normed, head, DType::kF32), .vector = slots.vector};
  }

  ModelConfig config_;
  ModelConfig target_;
  EagleLayer layer_;
};

Status check_layers(const ModelConfig& config, const ModelConfig& target) {
  for (const int64_t entered :
       hidden_states_read(config.own.get<Eagle3Config>(), target.num_layers)) {
    if (entered < 1 || entered >= target.num_layers) {
      return invalid_argument(
          fmt::format("it reads what leaves layer {}, the model has {} layers, the last of which "
                      "is not read",
                      entered - 1, target.num_layers));
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<const DraftModel>> load_eagle3(const std::filesystem::path& folder,
                                                      const ModelConfig& target) {
  HEDDLE_ASSIGN_OR_RETURN(
      const ModelConfig config,
      load_draft_config(folder, {.family = "EAGLE-3", .read = read_eagle3_config}, target));
  const Status fits = check_layers(config, target);
  if (!fits.ok()) {
    return with_remedy(fits, "name a draft that was trained for this model")
        .with_context((folder / "config.json").string());
  }
  return std::unique_ptr<const DraftModel>(std::make_unique<Eagle3>(config, target));
}

}  // namespace heddle::models
