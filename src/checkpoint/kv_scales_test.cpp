// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/kv_scales.h"

#include <limits>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/dummy_weights.h"
#include "checkpoint/load_weights.h"
#include "checkpoint/quantization_config.h"

namespace heddle::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kModule = "model.layers.3.self_attn.";

class KvScalesTest : public ::testing::Test {
 protected:
  void store(const std::string& name, float value, DType dtype = DType::kF32,
             const Shape& shape = {1}) {
    Tensor tensor(shape, dtype);
    if (dtype == DType::kF32) tensor.span<float>()[0] = value;
    if (dtype == DType::kBf16) tensor.span<Bf16>()[0] = to_bf16(value);
    if (dtype == DType::kF16) tensor.span<F16>()[0] = to_f16(value);
    tensors_.push_back(std::move(tensor));
    names_.push_back(name);
  }

  std::unique_ptr<CheckpointFiles> open() {
    std::vector<NamedTensor> named;
    for (size_t i = 0; i < names_.size(); ++i) named.push_back({names_[i], tensors_[i].view()});
    EXPECT_TRUE(write_safetensors(folder_.path() / "model.safetensors", named).ok());
    Result<CheckpointFiles> files = CheckpointFiles::open(folder_.path());
    EXPECT_TRUE(files.ok()) << files.status().to_string();
    return std::make_unique<CheckpointFiles>(std::move(files).value());
  }

  Result<StoredKvScales> read(const std::vector<std::string>& modules = {kModule}) {
    return read_kv_scales(*open(), modules);
  }

  std::string error() { return read().status().message(); }

  testing::TemporaryFolder folder_;
  std::vector<std::string> names_;
  std::vector<Tensor> tensors_;
};

TEST_F(KvScalesTest, AreFoundInEverySpelling) {
  const std::pair<const char*, const char*> spellings[] = {
      {"k_scale", "v_scale"},
      {"k_proj.k_scale", "v_proj.v_scale"},
      {"attn.k_scale", "attn.v_scale"},
      {"k_proj.output_scale", "v_proj.output_scale"},
  };
  for (const auto& [k, v] : spellings) {
    SCOPED_TRACE(k);
    names_.clear(), tensors_.clear();
    store(std::string(kModule) + k, 0.25f, DType::kBf16);
    store(std::string(kModule) + v, 0.7f, DType::kF32, Shape{});
    store("model.layers.4.self_attn.k_scale", 9);
    const Result<StoredKvScales> scales = read();
    ASSERT_TRUE(scales.ok()) << scales.status().to_string();
    ASSERT_EQ(scales->layers.size(), 1u);
    EXPECT_EQ(scales->layers[0].k, 0.25f);
    EXPECT_EQ(scales->layers[0].v, 0.7f);
    EXPECT_THAT(scales->missing, IsEmpty());
    for (const std::string& name : names_) EXPECT_TRUE(is_kv_scale(name)) << name;
  }
}

TEST_F(KvScalesTest, OneForBothServesBoth) {
  store(std::string(kModule) + "kv_scale", 0.5f, DType::kF16);
  const Result<StoredKvScales> scales = read();
  ASSERT_TRUE(scales.ok()) << scales.status().to_string();
  EXPECT_EQ(scales->layers[0].k, 0.5f);
  EXPECT_EQ(scales->layers[0].v, 0.5f);
}

TEST_F(KvScalesTest, ThoseThatAreMissingOrWereNeverCalibratedAreOne) {
  store("model.layers.3.self_attn.k_scale", 0);
  store("model.layers.3.self_attn.v_scale", 2);
  store("model.layers.7.self_attn.k_scale", 3);
  store("model.layers.7.self_attn.v_scale", -1);
  const Result<StoredKvScales> scales =
      read({kModule, "model.layers.7.self_attn.", "model.layers.11.self_attn."});
  ASSERT_TRUE(scales.ok()) << scales.status().to_string();
  std::vector<std::pair<float, float>> pairs;
  for (const KvScales& layer : scales->layers) pairs.emplace_back(layer.k, layer.v);
  EXPECT_THAT(pairs,
              ElementsAre(std::pair(1.0f, 2.0f), std::pair(3.0f, 1.0f), std::pair(1.0f, 1.0f)));
  EXPECT_THAT(scales->missing, ElementsAre("the keys of model.layers.3.self_attn",
                                           "the values of model.layers.7.self_attn",
                                           "the keys of model.layers.11.self_attn",
                                           "the values of model.layers.11.self_attn"));
}

TEST_F(KvScalesTest, ThoseThatCannotBeAreNamed) {
  const std::string name = std::string(kModule) + "v_scale";
  store(name, std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(error(), AllOf(HasSubstr(name), HasSubstr("is nan")));
  names_.clear(), tensors_.clear();
  store(name, std::numeric_limits<float>::infinity(), DType::kBf16);
  EXPECT_THAT(error(), AllOf(HasSubstr(name), HasSubstr("is inf")));
  names_.clear(), tensors_.clear();
  store(name, 1, DType::kF32, {8});
  EXPECT_THAT(error(), AllOf(HasSubstr(name), HasSubstr("[8]"), HasSubstr("one scale")));
  names_.clear(), tensors_.clear();
  store(name, 0, DType::kI32, {1});
  EXPECT_THAT(error(), AllOf(HasSubstr(name), HasSubstr("I32")));
}

TEST_F(KvScalesTest, AGeneratorHasNoneAndMissesNone) {
  const std::vector<std::string> modules = {kModule};
  const Result<StoredKvScales> scales = read_kv_scales(DummyWeights(1), modules);
  ASSERT_TRUE(scales.ok()) << scales.status().to_string();
  EXPECT_EQ(scales->layers[0].k, 1.0f);
  EXPECT_THAT(scales->missing, IsEmpty());
}

TEST_F(KvScalesTest, AreNoUnexpectedTensorsOfAPlainCheckpoint) {
  store("w", 1, DType::kF32, {1, 4});
  const auto error_of_load = [&] {
    const std::vector<WeightSpec> specs = {
        {.name = "w", .shape = {1, 4}, .alternatives = {whole({"w", {1, 4}})}}};
    return load_weights(open(), specs).status().message();
  };
  for (const char* name :
       {"k_scale", "v_proj.v_scale", "attn.v_scale", "kv_scale", "k_proj.output_scale"}) {
    store(std::string(kModule) + name, 1);
  }
  EXPECT_EQ(error_of_load(), "");
  store("model.layers.3.self_attn.q_proj.output_scale", 1);
  store("model.layers.3.self_attn.unk_scale", 1);
  EXPECT_THAT(error_of_load(), HasSubstr("2 unexpected"));
}

KvCacheScheme scheme_of(const char* text) {
  const auto config = parse_quantization_config(nlohmann::json::parse(text));
  EXPECT_TRUE(config.ok()) << config.status().to_string();
  return config.ok() ? config->kv_cache : KvCacheScheme::kNone;
}

TEST(KvCacheSchemeTest, IsReadWhereToolsWriteIt) {
  EXPECT_EQ(scheme_of(R"({"quant_method": "compressed-tensors", "config_groups": {}})"),
            KvCacheScheme::kNone);
  EXPECT_EQ(scheme_of(R"({"quant_method": "compressed-tensors", "config_groups": {},
                          "kv_cache_scheme": null})"),
            KvCacheScheme::kNone);
  EXPECT_EQ(scheme_of(R"({"quant_method": "compressed-tensors", "format": "dense",
                          "kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor",
                                              "dynamic": false, "symmetric": true}})"),
            KvCacheScheme::kFp8);
  EXPECT_EQ(scheme_of(R"({"quant_method": "modelopt", "quant_algo": "FP8",
                          "kv_cache_quant_algo": "FP8"})"),
            KvCacheScheme::kFp8);
  EXPECT_EQ(scheme_of(R"({"quant_algo": null, "kv_cache_quant_algo": "FP8"})"),
            KvCacheScheme::kFp8);
  EXPECT_EQ(scheme_of(R"({"quant_method": "modelopt", "quant_algo": "FP8",
                          "kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": false}})"),
            KvCacheScheme::kFp8);
}

TEST(KvCacheSchemeTest, TellsOthersFromFp8) {
  EXPECT_EQ(scheme_of(R"({"quant_method": "modelopt", "quant_algo": "FP8",
                          "kv_cache_quant_algo": "NVFP4"})"),
            KvCacheScheme::kOther);
  for (const char* scheme :
       {R"({"num_bits": 4, "type": "float"})", R"({"num_bits": 8, "type": "int"})",
        R"({"num_bits": 8, "type": "float", "strategy": "attn_head"})",
        R"({"num_bits": 8, "type": "float", "dynamic": true})"}) {
    const std::string config =
        std::string(R"({"quant_method": "compressed-tensors", "config_groups": {},
                        "kv_cache_scheme": )") +
        scheme + "}";
    EXPECT_EQ(scheme_of(config.c_str()), KvCacheScheme::kOther) << scheme;
  }
}

}  // namespace
}  // namespace heddle::checkpoint
