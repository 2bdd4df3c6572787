// SPDX-License-Identifier: Apache-2.0
// A made model whose layers keep memory of different shapes: four KV geometries, two of them with
// windows, two shapes of states, a state that is a convolution window alone, a layer with pages
// and a state, and one with neither. In exact mode every row of logits has the bits of a plain pass
// over the same tokens, whatever is cached, forked, restored or preempted on the way.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "models/layers/decoder.h"
#include "models/layers/feed_forward.h"
#include "models/layers/gated_delta_net.h"
#include "models/layers/linear.h"
#include "support/dense_model.h"
#include "support/test_data.h"
#include "watched_engine.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using graph::GraphScope;
using graph::Value;
using models::CacheLayer;
using models::CacheNeeds;
using models::DerivedWeights;
using models::LayerInputs;
using testing::WatchedEngine;
using testing::WatchedSetting;
using Specs = std::vector<checkpoint::WeightSpec>;

constexpr int64_t kNumLayers = 8;

// Attention and a delta rule side by side: pages and a state.
class AttentionBesideDelta final : public models::Mixer {
 public:
  AttentionBesideDelta(const models::AttentionOptions& attention, models::GatedDeltaNet delta)
      : attention_(attention), delta_(std::move(delta)) {}

  [[nodiscard]] std::string_view scope() const override { return "both."; }

  void add_weights(Specs& specs, const std::string& ours, const std::string& hub) const override {
    attention_.add_weights(specs, ours + "a.", hub + "a.");
    delta_.add_weights(specs, ours + "d.", hub + "d.");
  }

  void derive_weights(const checkpoint::LoadedWeights& weights, const std::string& ours,
                      DerivedWeights& derived) const override {
    delta_.derive_weights(weights, ours + "d.", derived);
  }

  CacheLayer add_layer(CacheNeeds& needs) const override {
    return {.pages = attention_.add_layer(needs).pages, .states = delta_.add_layer(needs).states};
  }

  Value build(graph::GraphBuilder& g, Value x, const LayerInputs& inputs,
              const CacheLayer& cache) const override {
    Value sum;
    {
      const GraphScope scope(g, "a.");
      sum = attention_.build(g, x, inputs, cache);
    }
    const GraphScope scope(g, "d.");
    return g.add(sum, delta_.build(g, x, inputs, cache));
  }

 private:
  models::Attention attention_;
  models::GatedDeltaNet delta_;
};

// A short convolution: a state without matrices. Without one, a product: no memory at all.
class Product final : public models::Mixer {
 public:
  Product(int64_t width, int64_t conv_width) : width_(width), conv_width_(conv_width) {}

  [[nodiscard]] std::string_view scope() const override { return "product."; }

  void add_weights(Specs& specs, const std::string& ours, const std::string& hub) const override {
    models::add_linear_weights(specs, ours + "proj", {{hub + "proj", width_}}, width_);
    if (conv_width_ == 0) return;
    const Shape shape{width_, conv_width_};
    specs.push_back({.name = ours + "conv",
                     .shape = shape,
                     .alternatives = {checkpoint::whole({hub + "conv", shape})},
                     .dtype = checkpoint::WeightDType::kF32,
                     .initial = checkpoint::Initial::kAroundOne});
  }

  CacheLayer add_layer(CacheNeeds& needs) const override {
    if (conv_width_ == 0) return {};
    return {.states = needs.add_state_layer({{.shape = {conv_width_ - 1, width_}}})};
  }

  Value build(graph::GraphBuilder& g, Value x, const LayerInputs& /*inputs*/,
              const CacheLayer& cache) const override {
    const Value y = models::linear(g, x, "proj");
    if (conv_width_ == 0) return y;
    return g.apply1("causal_conv1d", {y, g.weight("conv")},
                    {{"layer", static_cast<double>(cache.states)}});
  }

 private:
  int64_t width_;
  int64_t conv_width_;
};

std::unique_ptr<const models::Model> mixed_model(const checkpoint::ModelConfig& config) {
  const int64_t H = config.hidden_size;
  const models::AttentionOptions narrow = models::attention_options(config);
  models::AttentionOptions wide = narrow, sliding = narrow, short_sighted = narrow;
  wide.head_dim *= 2;
  wide.num_kv_heads = 1;
  sliding.num_kv_heads = 4;
  sliding.window = 21;
  short_sighted.window = 9;
  const auto delta = [&](const checkpoint::LinearAttentionConfig& sizes) {
    return models::GatedDeltaNet(sizes, H, config.rms_norm_eps);
  };
  const models::GatedDeltaNet first = delta({.num_key_heads = 1,
                                             .num_value_heads = 2,
                                             .key_head_dim = 16,
                                             .value_head_dim = 8,
                                             .conv_kernel = 4});
  const models::GatedDeltaNet second = delta({.num_key_heads = 2,
                                              .num_value_heads = 2,
                                              .key_head_dim = 8,
                                              .value_head_dim = 24,
                                              .conv_kernel = 3});
  std::vector<std::unique_ptr<const models::Mixer>> mixers;
  mixers.push_back(std::make_unique<models::Attention>(narrow));
  mixers.push_back(std::make_unique<models::GatedDeltaNet>(first));
  mixers.push_back(std::make_unique<models::Attention>(wide));
  mixers.push_back(std::make_unique<AttentionBesideDelta>(narrow, second));
  mixers.push_back(std::make_unique<Product>(H, /*conv_width=*/0));
  mixers.push_back(std::make_unique<Product>(H, /*conv_width=*/3));
  mixers.push_back(std::make_unique<models::Attention>(sliding));
  mixers.push_back(std::make_unique<models::Attention>(short_sighted));
  std::vector<models::DecoderLayer> layers;
  for (auto& mixer : mixers) {
    layers.push_back(
        models::pre_norm_layer(std::move(mixer), std::make_unique<models::GatedMlp>(H, 48)));
  }
  return models::make_decoder(config, {}, std::move(layers));
}

class MixedShapes : public ::testing::Test {
 protected:
  MixedShapes()
      : folder_(fs::path(::testing::TempDir()) / fmt::format("heddle_mixed_shapes_{}", getpid())) {
    fs::create_directories(folder_);
    nlohmann::json config =
        nlohmann::json::parse(std::ifstream(testing::dense_model() / "config.json"));
    config.erase("layer_types");
    config["num_hidden_layers"] = kNumLayers;
    std::ofstream(folder_ / "config.json") << config;
    pass_ = testing::exact_pass(
        {.model_dir = folder_, .dummy_weights = true, .create_model = mixed_model});
  }

  ~MixedShapes() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  fs::path folder_;
  std::unique_ptr<runner::ForwardPass> pass_;
};

TEST_F(MixedShapes, LayersOfOneShapeShareAGroup) {
  ASSERT_NE(pass_, nullptr);
  const CacheNeeds needs = pass_->cache_needs();
  ASSERT_EQ(needs.page_groups.size(), 4U) << "two windows";
  EXPECT_EQ(needs.page_groups[0].num_layers, 2);
  EXPECT_EQ(needs.num_kv_layers(), 5);
  ASSERT_EQ(needs.state_groups.size(), 3U);
  EXPECT_EQ(needs.num_state_layers(), 3);
}

TEST_F(MixedShapes, HaveTheBitsOfThePlainPassUnderEveryPolicyAndPageSize) {
  ASSERT_NE(pass_, nullptr);
  for (const WatchedSetting& setting : testing::settings_of_every_policy()) {
    WatchedEngine served(*pass_, setting);
    EXPECT_EQ(served.sizes().windows.size(), 2U);
    testing::expect_plain_conversations(*pass_, setting);
  }
}

}  // namespace
}  // namespace heddle
