// SPDX-License-Identifier: Apache-2.0
// Made models of two layers in every form that a layer can have (layer.h), against plain loops in
// double precision.
#include "models/layers/layer.h"

#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/seeded_tensors_fixture.h"
#include "device/cpu_device.h"
#include "graph/program.h"
#include "models/layers/layer_forms_fixture.h"
#include "support/tensors.h"

namespace heddle::models {
namespace {

using heddle::testing::Row;
using testing::Form;
using testing::forms;
using testing::kFull;
using testing::kLayers;
using testing::kTokens;
using testing::made_ids;
using testing::model_of;
using testing::truth_of;

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
    return graph.ok() ? run(std::move(*graph), model.cache_needs()) : Row();
  }

 private:
  Row run(graph::Graph graph, const CacheNeeds& needs) {
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
    constexpr int32_t kPage = 128;
    std::vector<Tensor> pages;
    std::vector<ops::KvLayer> kv_layers;
    for (const GroupedLayer& layer : needs.kv_layers) {
      const KvShape& shape = needs.page_groups[layer.group].shape;
      const auto pages_of = [&](int64_t width) {
        return pages.emplace_back(Shape{2, kPage, shape.num_heads, width}, DType::kF32).view();
      };
      kv_layers.push_back({.k = pages_of(shape.head_dim), .v = pages_of(shape.value_width())});
    }
    const std::vector<int32_t> query_start{0, kTokens}, none{0}, first_page{1};
    const ops::ForwardContext forward{.query_start = query_start,
                                      .context_lens = none,
                                      .page_tables = {first_page},
                                      .page_table_width = 1,
                                      .page_size = kPage,
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
