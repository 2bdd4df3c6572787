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
using testing::joined;
using testing::scattered_tokens;
using testing::Tokens;
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
    nlohmann::json config = nlohmann::json::parse(
        std::ifstream(testing::repository_path("tests/golden/qwen2/config.json")));
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

// Whether the answer's tokens are the most likely ones of the plain pass.
void expect_likeliest_tokens(runner::ForwardPass& pass, const WatchedEngine::Answered& answered,
                             size_t num_prompt_tokens) {
  const std::vector<std::vector<float>> plain = testing::plain_logits(pass, answered.tokens);
  for (size_t i = num_prompt_tokens; i < answered.tokens.size(); ++i) {
    const auto best = std::ranges::max_element(plain[i - 1]) - plain[i - 1].begin();
    ASSERT_EQ(answered.tokens[i], best) << "token " << i;
  }
}

// Forks of a common beginning, turns that go on from answers, and repeats.
void expect_plain_answers(runner::ForwardPass& pass, const WatchedSetting& setting) {
  SCOPED_TRACE(setting.name());
  WatchedEngine served(pass, setting);
  EXPECT_EQ(served.sizes().windows.size(), 2U);
  const Tokens stem = scattered_tokens(130, 1);
  std::vector<Tokens> prompts = {joined(stem, scattered_tokens(40, 2)),
                                 joined(stem, scattered_tokens(3, 3)),
                                 joined(testing::first(stem, 70), scattered_tokens(60, 4))};
  std::vector<WatchedEngine::Answered> all = served.answer(prompts, 12);
  const std::vector<Tokens> later = {joined(all[0].tokens, scattered_tokens(20, 6)),
                                     joined(testing::first(all[0].tokens, 150), {5, 6, 7}),
                                     testing::first(all[1].tokens, 133), prompts[0],
                                     joined(stem, {9, 8})};
  const auto second = served.answer(later, 20);
  prompts.insert(prompts.end(), later.begin(), later.end());
  all.insert(all.end(), second.begin(), second.end());
  testing::expect_plain_rows(pass, served, all);
  for (size_t i = 0; i < all.size(); ++i) expect_likeliest_tokens(pass, all[i], prompts[i].size());
  const auto reused = [](const WatchedEngine::Answered& one) { return one.cached_tokens > 0; };
  if (!setting.cache) {
    EXPECT_EQ(std::ranges::count_if(all, reused), 0);
  } else if (!setting.preempted) {
    EXPECT_GE(std::ranges::count_if(second, reused), 3);
  }
  EXPECT_EQ(served.num_preemptions() > 0, setting.preempted);
}

TEST_F(MixedShapes, HaveTheBitsOfThePlainPassUnderEveryPolicyAndPageSize) {
  ASSERT_NE(pass_, nullptr);
  std::vector<WatchedSetting> settings;
  for (const char* policy : {"multi", "extra_buffer"}) {
    for (const int32_t page_size : {1, 4, 16, 64}) {
      settings.push_back({.page_size = page_size,
                          .batch = page_size == 4 ? 3 : 1,
                          .states = 24,
                          .policy = policy});
    }
  }
  settings.push_back({.page_size = 1, .states = 24, .policy = "no_buffer"});
  settings.push_back(
      {.page_size = 1, .batch = 3, .states = 24, .policy = "no_buffer", .overlap = false});
  settings.push_back({.chunk_tokens = 33, .batch = 2, .window_tokens = 40, .states = 4});
  settings.push_back({.chunk_tokens = 640, .batch = 4, .cache = false});
  settings.push_back({.chunk_tokens = 32, .batch = 1, .states = 8, .preempted = true});
  settings.push_back(
      {.page_size = 8, .batch = 2, .window_tokens = 50, .states = 8, .preempted = true});
  for (const WatchedSetting& setting : settings) expect_plain_answers(*pass_, setting);
}

}  // namespace
}  // namespace heddle
