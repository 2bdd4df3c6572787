// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/adapter_files.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/adapter_fixture.h"

namespace heddle::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::NamedTensors;
using testing::uneven;

constexpr std::string_view kPlainAdapter =
    R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]})";

class AdapterFilesTest : public ::testing::Test {
 protected:
  Result<AdapterFiles> open(const NamedTensors& tensors, std::string_view config = kPlainAdapter) {
    return AdapterFiles::open(testing::write_adapter(folder_.path() / "adapter", config, tensors));
  }

  void expect_error(const NamedTensors& tensors, std::string_view message) {
    const Status status = open(tensors).status();
    EXPECT_THAT(status.message(), HasSubstr("adapter_model.safetensors: "));
    EXPECT_THAT(status.message(), HasSubstr(message));
  }

  testing::TemporaryFolder folder_;
};

NamedTensors good() {
  NamedTensors tensors;
  tensors.emplace("model.layers.0.q_proj.lora_A.weight", uneven({2, 4}, 1));
  tensors.emplace("model.layers.0.q_proj.lora_B.weight", uneven({6, 2}, 2));
  return tensors;
}

NamedTensors good_and(const std::string& name, Tensor tensor) {
  NamedTensors tensors = good();
  tensors.insert_or_assign(name, std::move(tensor));
  return tensors;
}

TEST_F(AdapterFilesTest, PairsTheTensorsOfEachWrapper) {
  NamedTensors tensors = good();
  tensors.emplace("lm_head.lora_A.default.weight", uneven({2, 4}, 3));
  tensors.emplace("lm_head.lora_B.default.weight", uneven({9, 2}, 4));
  tensors.emplace("lm_head.base_layer.weight", uneven({9, 4}, 5));
  for (const auto& [wrapper, K] : {std::pair<std::string, int64_t>("", 3), {"base_layer.", 5}}) {
    tensors.emplace("mlp.experts." + wrapper + "lora_A.weight", uneven({2, K}, 6));
    tensors.emplace("mlp.experts." + wrapper + "lora_B.weight", uneven({5, 2}, 7));
  }
  const Result<AdapterFiles> files = open(tensors);
  ASSERT_TRUE(files.ok()) << files.status().to_string();
  std::vector<std::string> updates;
  for (const AdapterUpdate& update : files->updates()) {
    updates.push_back(update.module + " " + update.a.shape.to_string());
    EXPECT_EQ(update.a.shape[0], update.b.shape[1]);
  }
  EXPECT_THAT(updates, ElementsAre("lm_head [2, 4]", "mlp.experts [2, 5]", "mlp.experts [2, 3]",
                                   "model.layers.0.q_proj [2, 4]"));
  ASSERT_EQ(files->tensors().size(), 1u);
  EXPECT_EQ(files->tensors()[0].module, "lm_head");
  EXPECT_EQ(files->tensors()[0].kind, AdapterTensor::Kind::kSavedBase);
}

TEST_F(AdapterFilesTest, ReadsNamesWithoutThePrefix) {
  const auto folder = testing::write_adapter(folder_.path() / "bare", kPlainAdapter, {});
  testing::write_tensors(folder / "adapter_model.safetensors", good());
  const Result<AdapterFiles> files = AdapterFiles::open(folder);
  ASSERT_TRUE(files.ok()) << files.status().to_string();
  EXPECT_EQ(files->updates().front().module, "model.layers.0.q_proj");
}

TEST_F(AdapterFilesTest, NotesWhereTargetsAndTensorsDisagree) {
  EXPECT_THAT(open(good())->notes(), IsEmpty());
  EXPECT_THAT(open(good(), R"({"r": 2, "target_modules": ["v_proj"]})")->notes(),
              ElementsAre(HasSubstr("1 modules are used that"), HasSubstr("target \"v_proj\"")));
  EXPECT_THAT(open(good(), R"({"r": 2, "target_modules": "all-linear", "lora_bias": true,
                               "modules_to_save": ["score", "head"],
                               "trainable_token_indices": {"wte": [3]}})")
                  ->notes(),
              ElementsAre(HasSubstr("modules_to_save \"score\" of adapter_config.json has no"),
                          HasSubstr("modules_to_save \"head\""),
                          HasSubstr("trainable_token_indices \"wte\""), HasSubstr("lora_bias of")));
  EXPECT_THAT(open(good(), R"({"r": 2, "target_modules": "all-linear",
                               "trainable_token_indices": [3]})")
                  ->notes(),
              ElementsAre(HasSubstr("trainable_token_indices of adapter_config.json has no")));
  NamedTensors whole = good_and("model.head.dense.weight", uneven({2, 2}, 1));
  whole.emplace("wte.token_adapter.trainable_tokens_delta", uneven({1, 4}, 2));
  whole.emplace("model.layers.0.q_proj.lora_B.bias", uneven({6}, 3));
  EXPECT_THAT(open(whole, R"({"r": 2, "target_modules": "all-linear", "lora_bias": true,
                              "modules_to_save": ["head"], "trainable_token_indices": [3]})")
                  ->notes(),
              IsEmpty());
}

TEST_F(AdapterFilesTest, NamesWhatIsWrongWithTensors) {
  NamedTensors without_b = good();
  without_b.erase("model.layers.0.q_proj.lora_B.weight");
  expect_error(without_b, "q_proj.lora_A.weight\" has no lora_B");
  NamedTensors without_a = good();
  without_a.erase("model.layers.0.q_proj.lora_A.weight");
  expect_error(without_a, "q_proj.lora_B.weight\" has no lora_A");
  expect_error({}, "the file has no tensors");
  const std::string b = "model.layers.0.q_proj.lora_B.weight";
  expect_error(good_and(b, uneven({6, 3}, 1)), "their ranks 2 and 3 differ");
  expect_error(good_and(b, uneven({6, 2, 1}, 1)), "is [6, 2, 1], which is no matrix");
  expect_error(good_and(b, Tensor({6, 2}, DType::kI32)), "is stored as I32");
  for (const float wrong :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    Tensor tensor = uneven({3000, 2}, 1);
    tensor.span<float>()[5001] = wrong;
    expect_error(good_and(b, std::move(tensor)), "at element 5001: training has diverged");
  }
  expect_error(good_and("model.layers.0.q_proj.lora_A.other.weight", uneven({2, 4}, 1)),
               "the file has several adapters");
  expect_error(good_and("model.layers.0.q_proj.lora_magnitude_vector", uneven({5}, 1)),
               "is [5], but lora_B has 6 rows");
  for (const char* const name : {"model.layers.0.q_proj.ia3_l", "model.layers.0.q_proj.scale"}) {
    expect_error(good_and(name, uneven({2, 2}, 1)), "none of LoRA's");
  }
}

TEST_F(AdapterFilesTest, NamesTheMagnitudeThatDoraLacks) {
  const std::string config = R"({"r": 2, "use_dora": true})";
  EXPECT_THAT(open(good(), config).status().message(),
              HasSubstr("there is no tensor \"model.layers.0.q_proj.lora_magnitude_vector\", but "
                        "use_dora is true in adapter_config.json"));
  const auto with = good_and("model.layers.0.q_proj.lora_magnitude_vector", uneven({6}, 1));
  EXPECT_TRUE(open(with, config).ok());
}

TEST_F(AdapterFilesTest, NamesTensorsBeyondPlainLora) {
  using Kind = AdapterTensor::Kind;

  struct Case {
    std::string name;
    std::string module;
    std::string parameter;
    Kind kind;
  };

  for (const auto& [name, module, parameter, kind] : std::vector<Case>{
           {"q_proj.lora_B.bias", "q_proj", "bias", Kind::kAddedBias},
           {"q_proj.lora_B.default.bias", "q_proj", "bias", Kind::kAddedBias},
           {"q_proj.base_layer.bias", "q_proj", "bias", Kind::kReplacement},
           {"k_proj.bias", "k_proj", "bias", Kind::kReplacement},
           {"lm_head.weight", "lm_head", "weight", Kind::kReplacement},
           {"lm_head.modules_to_save.weight", "lm_head", "weight", Kind::kReplacement},
           {"lm_head.modules_to_save.default.weight", "lm_head", "weight", Kind::kReplacement},
           {"model.embed_tokens.token_adapter.trainable_tokens_delta", "model.embed_tokens",
            "weight", Kind::kTokenRows}}) {
    SCOPED_TRACE(name);
    const Result<AdapterFiles> files = open(good_and(name, uneven({6}, 1)));
    ASSERT_TRUE(files.ok()) << files.status().to_string();
    ASSERT_EQ(files->tensors().size(), 1u);
    EXPECT_EQ(files->tensors()[0].module, module);
    EXPECT_EQ(files->tensors()[0].parameter, parameter);
    EXPECT_EQ(files->tensors()[0].kind, kind);
  }
  for (const char* const name : {"q_proj.lora_magnitude_vector", "q_proj.lora_magnitude_vector.d",
                                 "q_proj.lora_magnitude_vector.d.weight"}) {
    NamedTensors tensors;
    tensors.emplace("q_proj.lora_A.weight", uneven({2, 4}, 1));
    tensors.emplace("q_proj.lora_B.weight", uneven({6, 2}, 2));
    tensors.emplace(name, uneven({6}, 3));
    const Result<AdapterFiles> files = open(tensors);
    ASSERT_TRUE(files.ok()) << files.status().to_string();
    EXPECT_TRUE(files->updates().front().magnitude.has_value()) << name;
  }
  NamedTensors embedding;
  embedding.emplace("wte.lora_embedding_A", uneven({2, 9}, 1));
  embedding.emplace("wte.lora_embedding_B.default", uneven({4, 2}, 2));
  const Result<AdapterFiles> files = open(embedding);
  ASSERT_TRUE(files.ok()) << files.status().to_string();
  EXPECT_TRUE(files->updates().front().of_embedding);
}

TEST_F(AdapterFilesTest, NamesAFolderThatHasNoAdapter) {
  const auto message = [](const std::filesystem::path& folder) {
    return AdapterFiles::open(folder).status().message();
  };
  EXPECT_THAT(message(folder_.path() / "none"), HasSubstr("there is no folder"));
  EXPECT_THAT(message(folder_.path()), HasSubstr("has no adapter_config.json; name"));
  folder_.write("config.json", "{}");
  EXPECT_THAT(message(folder_.path()), HasSubstr("it is a model"));
  folder_.write("adapter_config.json", "{");
  EXPECT_THAT(message(folder_.path()), HasSubstr("has no adapter_model.safetensors; download"));
  folder_.write("adapter_model.bin", "pickle");
  EXPECT_THAT(message(folder_.path()), HasSubstr("only adapter_model.bin, a pickle"));
  folder_.write("adapter_model.safetensors", "short");
  EXPECT_THAT(message(folder_.path()), HasSubstr("adapter_config.json: "));
  folder_.write("adapter_config.json", "{}");
  EXPECT_THAT(message(folder_.path()), HasSubstr("adapter_model.safetensors: "));
}

}  // namespace
}  // namespace heddle::checkpoint
