// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/export_nextn.h"

#include <algorithm>
#include <csignal>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_fixture.h"
#include "support/test_data.h"

namespace heddle::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& file : fs::directory_iterator(folder)) {
    names.push_back(file.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

std::string bytes_of_tensor(const CheckpointFiles& files, std::string_view name) {
  const TensorEntry* entry = files.entry(name);
  return {static_cast<const char*>(files.find({.name = name})->data),
          static_cast<size_t>(entry->end - entry->begin)};
}

// A DeepSeek-V3 in miniature: two shards, layers 6, 60 and, after the last, 61; every tensor has
// bytes of its own.
class ExportNextnTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(model());
    shard("model-00001-of-00002.safetensors",
          {{"model.embed_tokens.weight", "BF16", Shape({4, 2})},
           {"model.layers.6.input_layernorm.weight", "BF16", Shape({2})},
           {"model.layers.60.input_layernorm.weight", "BF16", Shape({2})},
           {"model.layers.61.embed_tokens.weight", "BF16", Shape({4, 2})},
           {"model.layers.61.enorm.weight", "BF16", Shape({2})},
           {"model.layers.61.mlp.gate.e_score_correction_bias", "F32", Shape({3})}});
    shard("model-00002-of-00002.safetensors",
          {{"model.layers.61.eh_proj.weight", "F8_E4M3", Shape({2, 4})},
           {"model.layers.61.eh_proj.weight_scale_inv", "F8_E8M0", Shape({1, 1})},
           {"model.layers.61.shared_head.head.weight", "BF16", Shape({4, 2})},
           {"model.layers.61.shared_head.norm.weight", "BF16", Shape({2})}});
    write("model.safetensors.index.json", json({{"weight_map", weight_map_}}).dump());
    write("tokenizer.json", "{\"é\": 1}");
    write("pytorch_notes.txt", "as it was");
    fs::create_directory(model() / "figures");
    set_config({{"architectures", {"DeepseekV3ForCausalLM"}},
                {"num_hidden_layers", 61},
                {"num_nextn_predict_layers", 1},
                {"rms_norm_eps", 1e-06},
                {"author", "é"}});
  }

  struct Spec {
    std::string name;
    std::string_view dtype;
    Shape shape;
  };

  void shard(const std::string& file, const std::vector<Spec>& specs) {
    std::vector<std::string> data;
    std::vector<StoredTensor> tensors;
    for (const Spec& spec : specs) {
      const int64_t width = spec.dtype == "F32" ? 4 : spec.dtype == "BF16" ? 2 : 1;
      std::string& bytes = data.emplace_back();
      for (int64_t i = 0; i < width * spec.shape.num_elements(); ++i) bytes += next_byte_++;
    }
    for (size_t i = 0; i < specs.size(); ++i) {
      tensors.push_back(
          {specs[i].name, specs[i].dtype, specs[i].shape, testing::as_bytes(data[i])});
      weight_map_[specs[i].name] = file;
    }
    ASSERT_TRUE(write_stored_safetensors(model() / file, tensors, {}, {}).ok());
  }

  void write(const std::string& name, std::string_view text) {
    folder_.write("model/" + name, text);
  }

  void set_config(json config) {
    config_ = std::move(config);
    write("config.json", config_.dump());
  }

  [[nodiscard]] fs::path model() const { return folder_.path() / "model"; }

  [[nodiscard]] fs::path draft() const { return folder_.path() / "draft"; }

  Status run() { return export_nextn(model(), draft()).status(); }

  testing::TemporaryFolder folder_;
  json weight_map_ = json::object();
  json config_;
  char next_byte_ = 1;
};

TEST_F(ExportNextnTest, TakesTheLayerAfterTheLastAndNothingElse) {
  const auto report = export_nextn(model(), draft());
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->num_tensors, 5);
  EXPECT_EQ(report->num_bytes, 4 + 12 + 8 + 1 + 4);

  const auto before = CheckpointFiles::open(model());
  const auto after = CheckpointFiles::open(draft());
  ASSERT_TRUE(after.ok()) << after.status().to_string();
  EXPECT_THAT(
      after->names(),
      ElementsAre("model.layers.0.eh_proj.weight", "model.layers.0.eh_proj.weight_scale_inv",
                  "model.layers.0.enorm.weight", "model.layers.0.mlp.gate.e_score_correction_bias",
                  "model.layers.0.shared_head.norm.weight"));
  for (const std::string_view name : after->names()) {
    const std::string was = "model.layers.61." + std::string(name.substr(15));
    EXPECT_EQ(bytes_of_tensor(*after, name), bytes_of_tensor(*before, was)) << name;
    EXPECT_EQ(after->entry(name)->stored_dtype, before->entry(was)->stored_dtype) << name;
    EXPECT_EQ(after->entry(name)->shape, before->entry(was)->shape) << name;
  }
}

TEST_F(ExportNextnTest, NamesALinkToNothingThatItCannotCopy) {
  fs::remove(model() / "tokenizer.json");
  fs::create_symlink("../blobs/9c", model() / "tokenizer.json");
  ::testing::internal::CaptureStderr();
  const auto report = export_nextn(model(), draft());
  const std::string lines = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_THAT(lines, HasSubstr("tokenizer.json is a link to "));
  EXPECT_FALSE(fs::exists(fs::symlink_status(draft() / "tokenizer.json")));
}

TEST_F(ExportNextnTest, CopiesTheOtherFilesAndRewritesConfigAndIndex) {
  ASSERT_TRUE(run().ok());
  EXPECT_THAT(files_in(draft()), ElementsAre("config.json", "model.safetensors.index.json",
                                             "nextn_layer_parameters.safetensors",
                                             "pytorch_notes.txt", "tokenizer.json"));
  EXPECT_EQ(text_of(draft() / "tokenizer.json"), "{\"é\": 1}");
  EXPECT_EQ(text_of(draft() / "config.json"),
            "{\n"
            "  \"architectures\": [\n"
            "    \"DeepseekV3ForCausalLMNextN\"\n"
            "  ],\n"
            "  \"author\": \"é\",\n"
            "  \"num_hidden_layers\": 1,\n"
            "  \"num_nextn_predict_layers\": 1,\n"
            "  \"rms_norm_eps\": 1e-06\n"
            "}\n");
  const json index = json::parse(text_of(draft() / "model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 29);
  EXPECT_EQ(index["weight_map"].size(), 5u);
  EXPECT_THAT(files_in(folder_.path()), ElementsAre("draft", "model"));
}

TEST_F(ExportNextnTest, QuantisationListsFollowTheLayer) {
  json config = config_;
  config["quantization_config"] = {
      {"quant_method", "fp8"},
      {"ignored_layers",
       {"lm_head", "model.layers.0.mlp", "model.layers.6.mlp", "model.layers.61.eh_proj",
        "re:model\\.layers\\.61\\.mlp\\.gate$", "model.layers.61"}},
      {"groups", {{"first", {{"targets", {"Linear", "model.layers.60.mlp"}}, {"bits", 8}}}}}};
  set_config(config);
  ASSERT_TRUE(run().ok());
  const json draft_config = json::parse(text_of(draft() / "config.json"));
  EXPECT_EQ(draft_config["quantization_config"],
            json({{"quant_method", "fp8"},
                  {"ignored_layers",
                   {"lm_head", "model.layers.0.eh_proj", "re:model\\.layers\\.0\\.mlp\\.gate$",
                    "model.layers.0"}},
                  {"groups", {{"first", {{"targets", json::array({"Linear"})}, {"bits", 8}}}}}}));
}

TEST_F(ExportNextnTest, ALayerWithTheSameFirstDigitIsAnother) {
  json config = config_;
  config["num_hidden_layers"] = 6;  // layers 60 and 61 begin with "model.layers.6", too
  set_config(config);
  EXPECT_THAT(run().message(), HasSubstr("tensor model.layers.6.eh_proj.weight"));
}

TEST_F(ExportNextnTest, SaysWhatIsWrongAndLeavesNothing) {
  const json good = config_;
  const auto error_with = [&](const char* key, const json& value) {
    json config = good;
    config[key] = value;
    set_config(config);
    return run().message();
  };
  EXPECT_THAT(error_with("num_hidden_layers", nullptr), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(error_with("num_hidden_layers", 62),
              HasSubstr("no next-token-prediction layer: no tensor begins with mtp. or "
                        "model.layers.62."));
  EXPECT_THAT(error_with("num_nextn_predict_layers", nullptr),
              HasSubstr("num_nextn_predict_layers is missing"));
  EXPECT_THAT(error_with("num_nextn_predict_layers", 0), HasSubstr("is 0"));
  EXPECT_THAT(error_with("num_nextn_predict_layers", 2), HasSubstr("exactly one"));
  EXPECT_THAT(error_with("architectures", json::array()), HasSubstr("architectures is missing"));
  json deep = "model.layers.61";
  for (int i = 0; i < 40; ++i) deep = json::array({deep});
  EXPECT_THAT(error_with("quantization_config", deep), HasSubstr("nested more than 32"));
  write("config.json", "{");
  EXPECT_THAT(run().message(), HasSubstr("config.json: not valid JSON"));
  EXPECT_THAT(files_in(folder_.path()), ElementsAre("model"));
}

TEST_F(ExportNextnTest, RefusesAnOutputThatExists) {
  fs::create_directory(draft());
  EXPECT_EQ(run().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(export_nextn(model(), draft() / "").status().message(),
              HasSubstr("draft exists; remove it or name another folder"));
  EXPECT_THAT(files_in(draft()), IsEmpty());
  EXPECT_THAT(export_nextn(model(), folder_.path() / "no" / "draft").status().message(),
              HasSubstr("/no; create it, or write to"));
}

TEST_F(ExportNextnTest, ADiskThatIsFullLeavesNothing) {
  shard("model-00002-of-00002.safetensors",
        {{"model.layers.61.eh_proj.weight", "U8", Shape({1 << 20})},
         {"model.layers.61.eh_proj.weight_scale_inv", "U8", Shape({1})},
         {"model.layers.61.shared_head.head.weight", "U8", Shape({1})},
         {"model.layers.61.shared_head.norm.weight", "U8", Shape({1})}});
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 100'000, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = run();
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("nextn_layer_parameters.safetensors: File too large"));
  EXPECT_THAT(files_in(folder_.path()), ElementsAre("model"));
}

TEST_F(ExportNextnTest, StopsWhenProgressSaysSo) {
  int64_t total_bytes = 0;
  const auto report = export_nextn(model(), draft(), [&](int64_t, int64_t total) {
    total_bytes = total;
    return cancelled("enough");
  });
  EXPECT_EQ(report.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(total_bytes, 29);
  EXPECT_THAT(files_in(folder_.path()), ElementsAre("model"));
}

TEST(ExportNextnOfHeddleTinyTest, KeepsTheNamesOfAPrefixOfItsOwn) {
  testing::TemporaryFolder folder;
  const fs::path model = heddle::testing::repository_path("models/heddle-tiny");
  const fs::path draft = folder.path() / "draft";
  const auto report = export_nextn(model, draft);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->architecture, "Qwen3NextForCausalLMMTP");

  const auto before = CheckpointFiles::open(model);
  const auto after = CheckpointFiles::open(draft);
  ASSERT_TRUE(after.ok()) << after.status().to_string();
  std::vector<std::string_view> expected = before->names();
  std::erase_if(expected, [](std::string_view name) { return !name.starts_with("mtp."); });
  ASSERT_GT(expected.size(), 50u);
  EXPECT_EQ(after->names(), expected);
  for (const std::string_view name : expected) {
    EXPECT_EQ(bytes_of_tensor(*after, name), bytes_of_tensor(*before, name)) << name;
  }

  json config = json::parse(text_of(model / "config.json"));
  config["architectures"] = {"Qwen3NextForCausalLMMTP"};
  config["num_hidden_layers"] = 1;
  config["full_attention_interval"] = 1;
  EXPECT_EQ(json::parse(text_of(draft / "config.json")), config);
  EXPECT_EQ(text_of(draft / "tokenizer.json"), text_of(model / "tokenizer.json"));
}

}  // namespace
}  // namespace heddle::checkpoint
