// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/adapter_linears.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/adapter_fixture.h"
#include "checkpoint/checkpoint_files.h"

namespace heddle::checkpoint {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::NamedTensors;
using testing::uneven;

// A weight of two query rows, two gate rows and one row each of keys and values, where the hub has
// queries and gates of each head one after the other; an embedding; experts.
std::vector<WeightSpec> linear_specs() {
  std::vector<WeightSpec> specs;
  specs.push_back({.name = "qkv", .shape = {6, 4}});
  Assembly qkv;
  qkv.push_back({.tensor = {"q_proj.weight", {4, 4}},
                 .runs = {{.target_row = 0, .num_rows = 2, .source_step = 2},
                          {.source_row = 1, .target_row = 2, .num_rows = 2, .source_step = 2}}});
  qkv.push_back({.tensor = {"k_proj.weight", {1, 4}}, .runs = {{.target_row = 4, .num_rows = 1}}});
  qkv.push_back({.tensor = {"v_proj.weight", {1, 4}}, .runs = {{.target_row = 5, .num_rows = 1}}});
  specs.back().alternatives = {std::move(qkv), whole({"qkv_proj.weight", {6, 4}})};
  specs.push_back(
      {.name = "w13", .shape = {2, 3, 4}, .alternatives = {whole({"experts.w", {2, 3, 4}})}});
  specs.back().alternatives.push_back(whole({"experts.up.weight", {2, 3, 4}}));
  return specs;
}

class AdapterLinearsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(base_);
    NamedTensors stored;
    stored.emplace("q_proj.weight", uneven({4, 4}, 1));
    testing::write_tensors(base_ / "model.safetensors", stored);
  }

  Result<std::vector<AdapterLinear>> linears(const NamedTensors& tensors,
                                             std::string_view config = R"({"r": 2})") {
    HEDDLE_ASSIGN_OR_RETURN(
        const AdapterFiles files,
        AdapterFiles::open(testing::write_adapter(folder_.path() / "adapter", config, tensors)));
    HEDDLE_ASSIGN_OR_RETURN(const CheckpointFiles base, CheckpointFiles::open(base_));
    return adapter_linears(files, linear_specs(), base);
  }

  static NamedTensors update(const std::string& module, int64_t N, int64_t K, int64_t rank = 2) {
    NamedTensors tensors;
    tensors.emplace(module + ".lora_A.weight", uneven({rank, K}, 2));
    tensors.emplace(module + ".lora_B.weight", uneven({N, rank}, 3));
    return tensors;
  }

  testing::TemporaryFolder folder_;
  const std::filesystem::path base_ = folder_.path() / "base";
};

TEST_F(AdapterLinearsTest, PlacesModulesOfOneWeightAsItsParts) {
  NamedTensors tensors = update("q_proj", 4, 4);
  tensors.merge(update("v_proj", 1, 4, 1));
  const auto found = linears(
      tensors, R"({"r": 2, "lora_alpha": 3, "rank_pattern": {"v_proj": 1}, "use_rslora": false})");
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  ASSERT_EQ(found->size(), 1u);
  const AdapterLinear& linear = found->front();
  EXPECT_EQ(linear.weight, "qkv");
  EXPECT_EQ(linear.a.shape(), Shape({1, 4, 4}));
  EXPECT_EQ(linear.b.shape(), Shape({1, 6, 2}));
  EXPECT_THAT(std::vector<int32_t>(linear.parts.view().as<int32_t>(),
                                   linear.parts.view().as<int32_t>() + 6),
              ElementsAre(0, 0, 0, 0, 0, 1));
  const std::vector<float> b = testing::floats(linear.b.view());
  const std::vector<float> q = testing::floats(uneven({4, 2}, 3).view());
  const size_t hub_rows[] = {0, 2, 1, 3};  // of rows 0 to 3
  for (size_t n = 0; n < 4; ++n) {
    for (size_t r = 0; r < 2; ++r) {
      EXPECT_EQ(b[n * 2 + r], static_cast<float>(1.5 * double{q[hub_rows[n] * 2 + r]}));
    }
  }
  EXPECT_THAT(std::vector<float>(b.begin() + 8, b.begin() + 10), Each(0)) << "no update of k_proj";
  EXPECT_EQ(b[10], 3 * uneven({1, 1}, 3).span<float>()[0]);
  EXPECT_EQ(b[11], 0);
  const std::vector<float> a = testing::floats(linear.a.view());
  const std::vector<float> v = testing::floats(uneven({1, 4}, 2).view());
  EXPECT_EQ(std::vector<float>(a.begin() + 8, a.begin() + 12), v);
  EXPECT_THAT(std::vector<float>(a.begin() + 12, a.end()), Each(0));
}

TEST_F(AdapterLinearsTest, NamesWhatItDoesNotTake) {
  const auto message = [&](NamedTensors tensors, std::string_view config = R"({"r": 2})") {
    return linears(tensors, config).status().message();
  };
  const auto with = [](NamedTensors tensors, const std::string& name, Tensor tensor) {
    tensors.emplace(name, std::move(tensor));
    return tensors;
  };
  EXPECT_THAT(message(update("o_proj", 4, 4)),
              HasSubstr("module \"o_proj\" is no linear layer of the model; use the adapter with"));
  EXPECT_THAT(message(update("experts.up", 3, 4)),
              HasSubstr("module \"experts.up\" is of experts or no linear layer, which can only be "
                        "merged into the model: heddle merge MODEL ADAPTER OUT_DIR"));
  EXPECT_THAT(message(update("q_proj", 5, 4)),
              HasSubstr("are [2, 4] and [5, 2], but the base's weight is [4, 4]"));
  EXPECT_THAT(message(update("q_proj", 4, 4), R"({"r": 3})"),
              HasSubstr("lora_A of module \"q_proj\" has 2 rows"));
  EXPECT_THAT(message(with(update("q_proj", 4, 4), "q_proj.lora_magnitude_vector", uneven({4}, 1))),
              HasSubstr("\"q_proj\" has a magnitude (use_dora), which can only be merged"));
  EXPECT_THAT(message(with(update("q_proj", 4, 4), "q_proj.lora_B.bias", uneven({4}, 1))),
              HasSubstr("has a bias of the adapter (lora_bias)"));
  EXPECT_THAT(message(with(update("q_proj", 4, 4), "norm.weight", uneven({4}, 1))),
              HasSubstr("\"norm\" is saved whole"));
  NamedTensors large = update("q_proj", 4, 4);
  large.at("q_proj.lora_B.weight").span<float>()[5] = 3e38f;
  EXPECT_THAT(message(std::move(large), R"({"r": 2, "lora_alpha": 8})"),
              HasSubstr("module \"q_proj\": lora_B times the scale 4 is too large for float32"));
  NamedTensors twice = update("q_proj", 4, 4);
  twice.merge(update("qkv_proj", 6, 4));
  EXPECT_THAT(message(std::move(twice)), HasSubstr("changes rows that another module"));
  EXPECT_THAT(message(with(update("q_proj", 4, 4), "q_proj.base_layer.weight", uneven({4, 4}, 2))),
              HasSubstr("\"q_proj.base_layer.weight\" differs from the base's"));
  EXPECT_EQ(message(with(update("q_proj", 4, 4), "q_proj.base_layer.weight", uneven({4, 4}, 1))),
            "");
}

}  // namespace
}  // namespace heddle::checkpoint
