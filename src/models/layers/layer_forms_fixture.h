// SPDX-License-Identifier: Apache-2.0
// For tests: made models of two layers in every form that a layer can have (layer.h), and the same
// as plain loops in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numbers>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "checkpoint/seeded_tensors_fixture.h"
#include "models/layers/decoder.h"
#include "models/layers/feed_forward.h"
#include "models/layers/linear.h"
#include "support/plain_loops.h"

namespace heddle::models::testing {

using heddle::testing::add;
using heddle::testing::PlainLoops;
using heddle::testing::Row;
using heddle::testing::Rows;

inline constexpr int64_t kVocabulary = 40, kHidden = 24, kWidth = 32, kTokens = 75, kLayers = 2;
inline constexpr double kEpsilon = 1e-5, kScale = 0.4, kBound = 0.3;
inline constexpr PlainLoops::Heads kFull{
    .queries = 4, .keys = 2, .width = 8, .theta = 500, .scale = 0.5};
inline constexpr PlainLoops::Heads kSliding{
    .queries = 4, .keys = 2, .width = 8, .theta = 20, .scale = 0.2, .window = 6};
inline constexpr PlainLoops::Heads kUnrotated{.queries = 4, .keys = 2, .width = 8, .scale = 0.3};
inline constexpr PlainLoops::Heads kNarrowValues{.queries = 4,
                                                 .keys = 2,
                                                 .width = 8,
                                                 .theta = 500,
                                                 .scale = 0.5,
                                                 .value_width = 5,
                                                 .value_scale = 0.7,
                                                 .gated = true};
inline constexpr PlainLoops::Heads kWholeNorms{.queries = 4,
                                               .keys = 2,
                                               .width = 8,
                                               .theta = 500,
                                               .scale = 0.5,
                                               .interleaved = true,
                                               .norm = PlainLoops::Heads::Norm::kWhole};
inline constexpr PlainLoops::Heads kRotatedNorms{.queries = 4,
                                                 .keys = 2,
                                                 .width = 8,
                                                 .theta = 500,
                                                 .scale = 0.5,
                                                 .norm = PlainLoops::Heads::Norm::kRotated};
inline constexpr PlainLoops::Heads kKeysAsValues{.queries = 4,
                                                 .keys = 2,
                                                 .width = 8,
                                                 .theta = 500,
                                                 .scale = 1,
                                                 .keys_are_values = true,
                                                 .norms_values = true,
                                                 .norm = PlainLoops::Heads::Norm::kHeads};

inline checkpoint::ModelConfig made_config() {
  checkpoint::ModelConfig config;
  config.vocab_size = kVocabulary;
  config.hidden_size = kHidden;
  config.num_layers = kLayers;
  config.num_attention_heads = kFull.queries;
  config.num_key_value_heads = kFull.keys;
  config.head_dim = static_cast<int64_t>(kFull.width);
  config.rms_norm_eps = kEpsilon;
  return config;
}

inline std::vector<RopeTable> made_tables() {
  std::vector<RopeTable> tables;
  for (const PlainLoops::Heads& heads : {kFull, kSliding}) {
    tables.push_back({.rope = {.theta = heads.theta}, .head_dim = made_config().head_dim});
  }
  return tables;
}

// `reads_pages`: of this layer's keys and values.
inline Branch attention(const PlainLoops::Heads& heads, double scale = 1,
                        std::optional<int64_t> reads_pages = {}) {
  using Norm = PlainLoops::Heads::Norm;
  AttentionOptions options = attention_options(made_config());
  options.rope_table.reset();
  if (heads.theta == kFull.theta) options.rope_table = 0;
  if (heads.theta == kSliding.theta) options.rope_table = 1;
  options.softmax_scale = heads.scale;
  options.window = static_cast<int64_t>(heads.window);
  options.value_dim = static_cast<int64_t>(heads.value_width);
  options.value_scale = heads.value_scale;
  options.interleaved = heads.interleaved;
  if (heads.gated) options.output_gate = OutputGate::kHeads;
  options.keys_are_values = heads.keys_are_values;
  options.value_norm = heads.norms_values;
  if (heads.norm == Norm::kHeads) options.qk_norm = QkNorm::kHeads;
  if (heads.norm == Norm::kWhole) options.qk_norm = QkNorm::kWhole;
  if (heads.norm == Norm::kRotated) options.qk_norm = QkNorm::kRotated;
  options.reads_pages = reads_pages;
  return {.mixer = std::make_unique<Attention>(options), .scale = scale};
}

// y = W x: a mixer without a cache and with its own hub name.
class Projection final : public Mixer {
 public:
  [[nodiscard]] std::string_view scope() const override { return "projection."; }

  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override {
    add_linear_weights(specs, ours + "proj", {{hub + "in_proj", kHidden}}, kHidden);
  }

  CacheLayer add_layer(CacheNeeds&) const override { return {}; }

  graph::Value build(graph::GraphBuilder& g, graph::Value x, const LayerInputs&,
                     const CacheLayer&) const override {
    return linear(g, x, "proj");
  }
};

inline Branch projection(double scale = 1) {
  return {.mixer = std::make_unique<Projection>(), .scale = scale, .hub_scope = "mamba."};
}

inline Branch mlp(std::optional<std::string> hub_scope = {}, const MlpOptions& options = {}) {
  return {.feed_forward = std::make_unique<GatedMlp>(kHidden, kWidth, options),
          .hub_scope = std::move(hub_scope)};
}

template <typename... Branches>
std::vector<Branch> branches(Branches... list) {
  std::vector<Branch> all;
  (all.push_back(std::move(list)), ...);
  return all;
}

template <typename... Blocks>
DecoderLayer layer_of(Blocks... list) {
  DecoderLayer layer;
  (layer.blocks.push_back(std::move(list)), ...);
  return layer;
}

// The loops of one layer, whose tensors' names begin with `hub`.
struct Loops {
  const PlainLoops& plain;
  std::string hub;
  bool centred = false;  // layer norms

  [[nodiscard]] Rows norm(const Rows& x, const char* name) const {
    return plain.norms(x, hub + name, centred);
  }

  [[nodiscard]] Rows attention(const Rows& x, const PlainLoops::Heads& heads = kFull) const {
    return plain.attention(hub + "self_attn.", x, heads);
  }

  [[nodiscard]] Rows mlp(const Rows& x, const char* scope = "mlp.") const {
    Rows y;
    for (const Row& row : x) y.push_back(plain.swiglu(hub + scope, row));
    return y;
  }

  template <typename Activation>
  [[nodiscard]] Rows gated(const Rows& x, const Activation& f) const {
    Rows y;
    for (const Row& row : x) y.push_back(plain.gated(hub + "mlp.", row, f));
    return y;
  }

  [[nodiscard]] Rows projection(const Rows& x) const {
    return plain.products(hub + "mamba.in_proj", x);
  }
};

struct Form {
  const char* name;
  std::function<DecoderLayer(int64_t layer)> layer;
  std::function<void(const Loops& loops, int64_t layer, Rows& x)> compute;
  NormKind norms = NormKind::kRms;
};

inline constexpr const char* kIn = "input_layernorm";
inline constexpr const char* kPost = "post_attention_layernorm";
inline constexpr const char* kBefore = "pre_feedforward_layernorm";
inline constexpr const char* kAfter = "post_feedforward_layernorm";

inline Rows scaled(Rows x, double factor) {
  for (Row& row : x) {
    for (double& value : row) value *= factor;
  }
  return x;
}

// The usual layer with another attention or other norms.
inline Form of_heads(const char* name, const PlainLoops::Heads& heads,
                     NormKind norms = NormKind::kRms) {
  return {name, [heads](int64_t) { return make_layer(Frame::kPre, attention(heads), mlp()); },
          [heads](const Loops& f, int64_t, Rows& x) {
            add(x, f.attention(f.norm(x, kIn), heads));
            add(x, f.mlp(f.norm(x, kPost)));
          },
          norms};
}

inline std::vector<Form> forms() {
  return {
      {"pre",
       [](int64_t) {
         return pre_norm_layer(std::move(attention(kFull).mixer), std::move(mlp().feed_forward));
       },
       [](const Loops& f, int64_t, Rows& x) {
         add(x, f.attention(f.norm(x, kIn)));
         add(x, f.mlp(f.norm(x, kPost)));
       }},
      {"post",  // OLMo 3
       [](int64_t) {
         return layer_of(ResidualBlock{.branches = branches(attention(kFull)), .norm_after = kPost},
                         ResidualBlock{.branches = branches(mlp()), .norm_after = kAfter});
       },
       [](const Loops& f, int64_t, Rows& x) {
         add(x, f.norm(f.attention(x), kPost));
         add(x, f.norm(f.mlp(x), kAfter));
       }},
      {"sandwich",  // Gemma 3
       [](int64_t) {
         return layer_of(
             ResidualBlock{
                 .norm = kIn, .branches = branches(attention(kFull)), .norm_after = kPost},
             ResidualBlock{.norm = kBefore, .branches = branches(mlp()), .norm_after = kAfter});
       },
       [](const Loops& f, int64_t, Rows& x) {
         add(x, f.norm(f.attention(f.norm(x, kIn)), kPost));
         add(x, f.norm(f.mlp(f.norm(x, kBefore)), kAfter));
       }},
      {"parallel",  // Cohere 2
       [](int64_t) {
         return layer_of(ResidualBlock{.norm = kIn, .branches = branches(attention(kFull), mlp())});
       },
       [](const Loops& f, int64_t, Rows& x) {
         const Rows u = f.norm(x, kIn);
         add(x, f.attention(u));
         add(x, f.mlp(u));
       }},
      {"two_mixers",  // Falcon-H1
       [](int64_t) {
         return layer_of(
             ResidualBlock{.norm = kIn,
                           .branches = branches(projection(kScale), attention(kFull, 0.7))},
             ResidualBlock{.norm = "pre_ff_layernorm", .branches = branches(mlp("feed_forward."))});
       },
       [](const Loops& f, int64_t, Rows& x) {
         const Rows u = f.norm(x, kIn);
         add(x, f.projection(u), kScale);
         add(x, f.attention(u), 0.7);
         add(x, f.mlp(f.norm(x, "pre_ff_layernorm"), "feed_forward."));
       }},
      {"scaled",  // Granite
       [](int64_t) {
         return layer_of(
             ResidualBlock{.norm = kIn, .branches = branches(attention(kFull)), .scale = kScale},
             ResidualBlock{.norm = kPost, .branches = branches(mlp()), .scale = kScale});
       },
       [](const Loops& f, int64_t, Rows& x) {
         add(x, f.attention(f.norm(x, kIn)), kScale);
         add(x, f.mlp(f.norm(x, kPost)), kScale);
       }},
      {"normed",  // MiniMax-Text
       [](int64_t) {
         return layer_of(
             ResidualBlock{.norm = kIn,
                           .branches = branches(attention(kFull)),
                           .scale = kScale,
                           .keep = 1.5,
                           .keeps_normed = true},
             ResidualBlock{
                 .norm = kPost, .branches = branches(mlp()), .keep = 3.5, .keeps_normed = true});
       },
       [](const Loops& f, int64_t, Rows& x) {
         const Rows u = f.norm(x, kIn);
         x = scaled(u, 1.5);
         add(x, f.attention(u), kScale);
         const Rows v = f.norm(x, kPost);
         x = scaled(v, 3.5);
         add(x, f.mlp(v));
       }},
      {"one_block_a_layer",  // Nemotron-H
       [](int64_t layer) {
         Branch branch = layer == 0 ? attention(kUnrotated) : mlp();
         branch.hub_scope = "mixer.";
         return layer_of(ResidualBlock{.norm = "norm", .branches = branches(std::move(branch))});
       },
       [](const Loops& f, int64_t layer, Rows& x) {
         const Rows u = f.norm(x, "norm");
         add(x,
             layer == 0 ? f.plain.attention(f.hub + "mixer.", u, kUnrotated) : f.mlp(u, "mixer."));
       }},
      {"a_table_and_a_scale_for_each_kind",  // Gemma 3: sliding layers and others
       [](int64_t layer) {
         return pre_norm_layer(std::move(attention(layer == 0 ? kSliding : kFull).mixer),
                               std::move(mlp().feed_forward));
       },
       [](const Loops& f, int64_t layer, Rows& x) {
         add(x, f.attention(f.norm(x, kIn), layer == 0 ? kSliding : kFull));
         add(x, f.mlp(f.norm(x, kPost)));
       }},
      of_heads("narrow_values_and_a_gate_for_each_head", kNarrowValues),  // MiMo-V2, Step 3.5
      of_heads("norms_of_whole_projections", kWholeNorms),                // OLMo 3, MiniMax-M2
      of_heads("norms_after_the_rotation", kRotatedNorms, NormKind::kUnitRms),  // nanochat
      of_heads("values_that_are_keys", kKeysAsValues),                          // Gemma 4
      of_heads("layer_norms", kFull, NormKind::kLayer),                         // Cohere 2
      of_heads("layer_norms_with_biases", kFull, NormKind::kLayerBias),         // Phi-3.5 MoE
      {"pages_of_an_earlier_layer_and_a_scale",                                 // Gemma 4
       [](int64_t layer) {
         DecoderLayer result = make_layer(
             Frame::kPre,
             layer == 0 ? attention(kWholeNorms) : attention(kWholeNorms, 1, /*reads_pages=*/0),
             mlp());
         result.scale = "layer_scalar";
         return result;
       },
       [source = std::make_shared<Rows>()](const Loops& f, int64_t layer, Rows& x) {
         const Rows u = f.norm(x, kIn);
         if (layer == 0) *source = u;
         add(x, f.plain.attention(f.hub + "self_attn.", u, kWholeNorms,
                                  PlainLoops::Source{"model.layers.0.self_attn.", source.get()}));
         add(x, f.mlp(f.norm(x, kPost)));
         x = scaled(std::move(x), f.plain.row_of(f.hub + "layer_scalar", 0)[0]);
       }},
      {"gelu_with_biases",
       [](int64_t) {
         return make_layer(Frame::kPre, attention(kFull),
                           mlp({}, {.activation = GatedActivation::kGelu, .bias = true}));
       },
       [](const Loops& f, int64_t, Rows& x) {
         add(x, f.attention(f.norm(x, kIn)));
         add(x, f.gated(f.norm(x, kPost), [](double g, double u) {
           const double root = std::sqrt(2 / std::numbers::pi);
           return g / 2 * (1 + std::tanh(root * (g + 0.044715 * g * g * g))) * u;
         }));
       }},
      {"bounded_activations",  // Step 3.5
       [](int64_t) {
         return make_layer(Frame::kPre, attention(kFull), mlp({}, {.limit = kBound}));
       },
       [](const Loops& f, int64_t, Rows& x) {
         add(x, f.attention(f.norm(x, kIn)));
         add(x, f.gated(f.norm(x, kPost), [](double g, double u) {
           return std::min(g / (1 + std::exp(-g)), kBound) * std::clamp(u, -kBound, kBound);
         }));
       }},
  };
}

inline std::vector<int32_t> made_ids() {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < kTokens; ++i) ids.push_back((i * 7919 + 5) % kVocabulary);
  return ids;
}

inline std::unique_ptr<const Model> model_of(const Form& form) {
  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < kLayers; ++i) layers.push_back(form.layer(i));
  return make_decoder(made_config(), {.norm_kind = form.norms, .rope_tables = made_tables()},
                      std::move(layers));
}

// The logits of made_ids(), row by row.
inline Row truth_of(const Form& form) {
  const PlainLoops plain(checkpoint::testing::seeded_tensors(model_of(form)->weight_specs()),
                         kEpsilon);
  const bool centred = form.norms == NormKind::kLayer || form.norms == NormKind::kLayerBias;
  Rows x;
  for (const int32_t id : made_ids()) x.push_back(plain.row_of("model.embed_tokens.weight", id));
  for (int64_t i = 0; i < kLayers; ++i) {
    form.compute({plain, fmt::format("model.layers.{}.", i), centred}, i, x);
  }
  Row logits;
  for (const Row& row : plain.products("lm_head", plain.norms(x, "model.norm", centred))) {
    logits.insert(logits.end(), row.begin(), row.end());
  }
  return logits;
}

}  // namespace heddle::models::testing
