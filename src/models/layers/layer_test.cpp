// SPDX-License-Identifier: Apache-2.0
// Made models of two layers in every form that a layer can have (layer.h), against plain loops in
// double precision.
#include "models/layers/layer.h"

#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/seeded_tensors_fixture.h"
#include "device/cpu_device.h"
#include "graph/program.h"
#include "models/layers/decoder.h"
#include "models/layers/feed_forward.h"
#include "models/layers/linear.h"
#include "support/plain_loops.h"
#include "support/tensors.h"

namespace heddle::models {
namespace {

using heddle::testing::add;
using heddle::testing::PlainLoops;
using heddle::testing::Row;
using heddle::testing::Rows;

constexpr int64_t kVocabulary = 40, kHidden = 24, kWidth = 32, kTokens = 21, kLayers = 2;
constexpr double kEpsilon = 1e-5, kScale = 0.4;
constexpr PlainLoops::Heads kFull{.queries = 4, .keys = 2, .width = 8, .theta = 500, .scale = 0.5};
constexpr PlainLoops::Heads kSliding{
    .queries = 4, .keys = 2, .width = 8, .theta = 20, .scale = 0.2, .window = 6};
constexpr PlainLoops::Heads kUnrotated{.queries = 4, .keys = 2, .width = 8, .scale = 0.3};

checkpoint::ModelConfig made_config() {
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

std::vector<RopeTable> made_tables() {
  std::vector<RopeTable> tables;
  for (const PlainLoops::Heads& heads : {kFull, kSliding}) {
    tables.push_back({.rope = {.theta = heads.theta}, .head_dim = made_config().head_dim});
  }
  return tables;
}

Branch attention(const PlainLoops::Heads& heads, double scale = 1) {
  AttentionOptions options = attention_options(made_config());
  options.rope_table.reset();
  if (heads.theta == kFull.theta) options.rope_table = 0;
  if (heads.theta == kSliding.theta) options.rope_table = 1;
  options.softmax_scale = heads.scale;
  options.window = static_cast<int64_t>(heads.window);
  return {.mixer = std::make_unique<Attention>(options), .scale = scale};
}

// y = W x: a mixer that keeps nothing, with a name of its own in the hub.
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

Branch projection(double scale = 1) {
  return {.mixer = std::make_unique<Projection>(), .scale = scale, .hub_scope = "mamba."};
}

Branch mlp(std::string hub_scope = {}) {
  return {.feed_forward = std::make_unique<SwigluMlp>(kHidden, kWidth),
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

  [[nodiscard]] Rows norm(const Rows& x, const char* name) const {
    return plain.norms(x, hub + name + ".weight");
  }

  [[nodiscard]] Rows attention(const Rows& x, const PlainLoops::Heads& heads = kFull) const {
    return plain.attention(hub + "self_attn.", x, heads);
  }

  [[nodiscard]] Rows mlp(const Rows& x, const char* scope = "mlp.") const {
    Rows y;
    for (const Row& row : x) y.push_back(plain.swiglu(hub + scope, row));
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
};

constexpr const char* kIn = "input_layernorm";
constexpr const char* kPost = "post_attention_layernorm";
constexpr const char* kBefore = "pre_feedforward_layernorm";
constexpr const char* kAfter = "post_feedforward_layernorm";

Rows scaled(Rows x, double factor) {
  for (Row& row : x) {
    for (double& value : row) value *= factor;
  }
  return x;
}

std::vector<Form> forms() {
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
  };
}

std::vector<int32_t> made_ids() {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < kTokens; ++i) ids.push_back((i * 7919 + 5) % kVocabulary);
  return ids;
}

std::unique_ptr<const Model> model_of(const Form& form) {
  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < kLayers; ++i) layers.push_back(form.layer(i));
  return make_decoder(made_config(), {.rope_tables = made_tables()}, std::move(layers));
}

// The logits of made_ids(), row by row.
Row truth_of(const Form& form) {
  const PlainLoops plain(checkpoint::testing::seeded_tensors(model_of(form)->weight_specs()),
                         kEpsilon);
  Rows x;
  for (const int32_t id : made_ids()) x.push_back(plain.row_of("model.embed_tokens.weight", id));
  for (int64_t i = 0; i < kLayers; ++i) {
    form.compute({plain, fmt::format("model.layers.{}.", i)}, i, x);
  }
  Row logits;
  for (const Row& row : plain.products("lm_head", plain.norms(x, "model.norm.weight"))) {
    logits.insert(logits.end(), row.begin(), row.end());
  }
  return logits;
}

// The same of Heddle, from one step on the CPU.
class MadeStep {
 public:
  Row logits_of(const Model& model) {
    const auto tensors = checkpoint::testing::seeded_tensors(model.weight_specs());
    std::vector<checkpoint::NamedTensor> named;
    for (const auto& [name, tensor] : tensors) named.push_back({name, tensor.view()});
    EXPECT_TRUE(write_safetensors(folder_.path() / "model.safetensors", named).ok());
    auto weights = load_weights(std::make_unique<checkpoint::CheckpointFiles>(
                                    checkpoint::CheckpointFiles::open(folder_.path()).value()),
                                model.weight_specs());
    EXPECT_TRUE(weights.ok()) << weights.status().to_string();
    const DerivedWeights derived = model.derive_weights(*weights).value();
    std::map<std::string, TensorView, std::less<>> views;
    for (const auto& [name, tensor] : derived) views.emplace(name, tensor.view());
    const auto lookup = [&](std::string_view name) -> const TensorView* {
      const auto found = views.find(name);
      return found != views.end() ? &found->second : weights->find(name);
    };
    graph::GraphBuilder g(ops::builtin_ops(), lookup);
    const ops::TensorMeta per_token(DType::kI32, {ops::SymbolicDim::of(ops::Symbol::kTokens)});
    const ForwardInputs inputs{.ids = g.input("ids", per_token),
                               .positions = g.input("positions", per_token)};
    g.output(model.build(g, inputs).logits, "logits");
    auto graph = g.finish();
    EXPECT_TRUE(graph.ok()) << graph.status().to_string();
    return graph.ok() ? run(std::move(*graph)) : Row();
  }

 private:
  Row run(graph::Graph graph) {
    ops::CpuContext context(cpu_.pool());
    const ops::Extents extents{.tokens = kTokens, .logits = kTokens, .sequences = 1};
    auto executor = graph::Executor::create(
        graph::compile(std::move(graph), ops::builtin_ops(), context, {.largest = extents}).value(),
        cpu_);
    const std::vector<int32_t> ids = made_ids();
    std::vector<int32_t> positions(kTokens);
    std::iota(positions.begin(), positions.end(), 0);
    const Shape rows{kTokens};
    const std::vector<TensorView> inputs{TensorView(ids.data(), DType::kI32, rows),
                                         TensorView(positions.data(), DType::kI32, rows)};
    // A page of its own for the sequence, in each layer.
    const Shape page{2, 32, kFull.keys, static_cast<int64_t>(kFull.width)};
    std::vector<Tensor> pages;
    std::vector<ops::KvLayer> kv_layers(kLayers);
    for (ops::KvLayer& layer : kv_layers) {
      layer.k = pages.emplace_back(page, DType::kF32).view();
      layer.v = pages.emplace_back(page, DType::kF32).view();
    }
    const std::vector<int32_t> query_start{0, kTokens}, none{0}, first_page{1};
    const ops::ForwardContext forward{.query_start = query_start,
                                      .context_lens = none,
                                      .page_tables = {first_page},
                                      .page_table_width = 1,
                                      .page_size = 32,
                                      .logit_rows = positions,
                                      .kv_layers = kv_layers};
    const Status status = executor->run(context, forward, extents, inputs);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return heddle::testing::to_doubles(executor->output(0));
  }

  checkpoint::testing::TemporaryFolder folder_;
  device::CpuDevice cpu_{1};
};

// ||a - b|| / ||b||
double distance(Row a, const Row& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return std::sqrt(heddle::testing::dot(a, a) / heddle::testing::dot(b, b));
}

class LayerForm : public ::testing::TestWithParam<Form> {};

TEST_P(LayerForm, ComputesWhatPlainLoopsCompute) {
  const Row truth = truth_of(GetParam());
  const Row got = MadeStep().logits_of(*model_of(GetParam()));
  ASSERT_EQ(got.size(), truth.size());
  EXPECT_LT(distance(got, truth), 5e-6);
}

INSTANTIATE_TEST_SUITE_P(All, LayerForm, ::testing::ValuesIn(forms()),
                         [](const auto& form) { return form.param.name; });

// Otherwise the comparison above would prove little.
TEST(LayerForms, DifferFromEachOtherInWhatTheyCompute) {
  std::vector<Row> truths;
  for (const Form& form : forms()) truths.push_back(truth_of(form));
  for (size_t i = 0; i < truths.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_GT(distance(truths[i], truths[j]), 1e-2) << forms()[i].name << ", " << forms()[j].name;
    }
  }
}

// A layer with two mixers keeps what both do; the hub's names of its keys and values are found.
TEST(LayerForms, CountWhatEachMixerKeeps) {
  const std::vector<Form> all = forms();
  const auto modules_of = [](const Form& form) { return model_of(form)->cache_needs().kv_modules; };
  EXPECT_EQ(modules_of(all[4]),  // two mixers
            (std::vector<std::string>{"model.layers.0.self_attn.", "model.layers.1.self_attn."}));
  EXPECT_EQ(modules_of(all[7]), std::vector<std::string>{"model.layers.0.mixer."});
}

}  // namespace
}  // namespace heddle::models
