// SPDX-License-Identifier: Apache-2.0
// How ranks share the weights of every family (checkpoint/weight_slice.h). The slices of all ranks
// give every weight, and a rank's slices are the weights of a model with fewer heads and channels.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "checkpoint/dummy_weights.h"
#include "checkpoint/quantise_checkpoint.h"
#include "checkpoint/weight_slice_fixture.h"
#include "models/small_config_fixture.h"
#include "support/dense_model.h"
#include "support/test_data.h"

namespace heddle::models {
namespace {

using checkpoint::CutKind;
using checkpoint::LoadOptions;
using checkpoint::WeightSpec;
using checkpoint::testing::check_slices;
using nlohmann::json;
using ::testing::IsSupersetOf;

// Every family, with sizes that eight ranks divide, all but the heads of keys.
std::vector<json> wide_configs() {
  std::vector<json> configs;
  for (const char* architecture : {"LlamaForCausalLM",
                                   "MistralForCausalLM",
                                   "Qwen2ForCausalLM",
                                   "Qwen2MoeForCausalLM",
                                   "Qwen3ForCausalLM",
                                   "Qwen3MoeForCausalLM",
                                   "GptOssForCausalLM",
                                   "Qwen3NextForCausalLM",
                                   "Qwen3_5ForCausalLM",
                                   "DeepseekV2ForCausalLM",
                                   "DeepseekV3ForCausalLM",
                                   "KimiLinearForCausalLM",
                                   "MixtralForCausalLM",
                                   "SeedOssForCausalLM",
                                   "GraniteForCausalLM",
                                   "GraniteMoeForCausalLM",
                                   "SmolLM3ForCausalLM",
                                   "Olmo3ForCausalLM",
                                   "Exaone4ForCausalLM",
                                   "Phi3ForCausalLM",
                                   "PhimoeForCausalLM",
                                   "MiniMaxM2ForCausalLM",
                                   "Ernie4_5_MoeForCausalLM",
                                   "Glm4MoeForCausalLM",
                                   "Gemma3ForCausalLM",
                                   "Gemma4ForCausalLM",
                                   "Cohere2ForCausalLM",
                                   "NanoChatForCausalLM",
                                   "MiMoV2FlashForCausalLM",
                                   "Mistral4ForCausalLM",
                                   "Step3p5ForCausalLM",
                                   "Lfm2ForCausalLM",
                                   "Lfm2MoeForCausalLM",
                                   "OlmoHybridForCausalLM",
                                   "MiniMaxForCausalLM",
                                   "JambaForCausalLM",
                                   "BambaForCausalLM",
                                   "FalconH1ForCausalLM",
                                   "NemotronHForCausalLM",
                                   "Zamba2ForCausalLM",
                                   "GraniteMoeHybridForCausalLM",
                                   "Glm4MoeLiteForCausalLM",
                                   "Qwen3VLMoeForConditionalGeneration"}) {
    json config = testing::small_of(architecture);
    config.update({{"num_attention_heads", 16},
                   {"num_key_value_heads", 4},
                   {"head_dim", 8},
                   {"hidden_size", 64},
                   {"block_auto_adjust_ff_dim", false},
                   {"linear_num_key_heads", 8},
                   {"linear_num_value_heads", 24}});
    if (architecture == std::string_view("Qwen3NextForCausalLM")) {
      config["shared_expert_intermediate_size"] = 48;
    }
    if (architecture == std::string_view("Step3p5ForCausalLM")) {
      config.update({{"num_sliding_attention_heads", 32}, {"share_expert_dim", 48}});
    }
    if (architecture == std::string_view("MiMoV2FlashForCausalLM")) {
      config["swa_num_key_value_heads"] = 8;
    }
    if (config.contains("mamba_n_groups")) config["mamba_n_groups"] = 8;
    if (config.contains("mamba_d_ssm")) config["mamba_d_ssm"] = 128;
    config["mamba_expand"] = 8;
    if (config.contains("n_groups")) config["n_groups"] = 8;
    if (config.contains("mamba_ngroups")) {
      config.update({{"mamba_ngroups", 8}, {"attention_head_dim", 8}});
    }
    if (config.contains("linear_attn_config")) config["linear_attn_config"]["num_heads"] = 8;
    configs.push_back(std::move(config));
  }
  configs.front()["attention_bias"] = true;
  configs.push_back(configs[10]);
  configs.back()["q_lora_rank"] = 24;
  return configs;
}

// Checks that the slices of the weights in `folder` give the weights. Returns the numbers of ranks
// that divide them.
std::vector<int64_t> check_folder(const std::filesystem::path& folder, LoadOptions options = {}) {
  SCOPED_TRACE(folder);
  const auto config = load_config(folder);
  if (!config.ok()) {
    ADD_FAILURE() << config.status().to_string();
    return {};
  }
  const auto model = create_model(*config);
  options.ignored_prefixes = model->ignored_prefixes();
  options.quantization = config->quantization ? &*config->quantization : nullptr;
  const auto load = [&](std::span<const WeightSpec> specs) {
    return load_weights(open_weights(folder).value(), specs, options);
  };
  return check_slices(model->weight_specs(), load, /*exact=*/false);
}

TEST(WeightCuts, SlicesOfEveryFamilyJoin) {
  for (const json& config : wide_configs()) {
    SCOPED_TRACE(config["architectures"]);
    const auto load = [](std::span<const WeightSpec> specs) {
      return load_weights(std::make_unique<checkpoint::DummyWeights>(1), specs,
                          {.dtype = DType::kF32, .num_threads = 1});
    };
    const std::vector<WeightSpec> specs = testing::model_of(config)->weight_specs();
    for (const bool exact : {false, true}) {
      EXPECT_THAT(check_slices(specs, load, exact), IsSupersetOf({2, 4, 8}));
    }
  }
}

// Checks the models as they are, after `heddle quantize`, and quantised at load.
TEST(WeightCuts, SlicesOfTheModelsHereJoinInEveryFormat) {
  const checkpoint::testing::TemporaryFolder folder;
  for (const auto& source :
       {heddle::testing::dense_model(), heddle::testing::repository_path("models/heddle-tiny")}) {
    EXPECT_THAT(check_folder(source), IsSupersetOf({2}));
    using checkpoint::QuantisedFormat;
    for (const QuantisedFormat format :
         {QuantisedFormat::kAwq, QuantisedFormat::kFp8Block, QuantisedFormat::kInt8}) {
      const auto output = folder.path() / "quantised";
      const auto report = checkpoint::quantise_checkpoint(
          {.source = source, .output = output, .format = format, .group_size = 32});
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      EXPECT_THAT(check_folder(output), IsSupersetOf({2}));
      std::filesystem::remove_all(output);
    }
    for (const auto scheme : {quant::Scheme::kInt4, quant::Scheme::kFp8Block}) {
      EXPECT_THAT(check_folder(source, {.rounding = checkpoint::Rounding{.scheme = scheme}}),
                  IsSupersetOf({2}));
    }
  }
}

TEST(WeightCuts, SlicesOfEveryGoldenJoin) {
  HEDDLE_SHARED_PATH_OR_SKIP(goldens, "golden");
  std::vector<std::string> not_shared_by_two;
  for (const auto& entry : std::filesystem::directory_iterator(goldens)) {
    if (!entry.is_directory() || !load_config(entry.path()).ok()) continue;
    const std::vector<int64_t> legal = check_folder(entry.path());
    if (std::ranges::count(legal, 2) == 0) not_shared_by_two.push_back(entry.path().filename());
  }
  EXPECT_THAT(not_shared_by_two, ::testing::IsEmpty());
}

// The same model for one rank of several.
json smaller(json config, int64_t num_ranks) {
  const auto divide = [num_ranks](json& at, const char* key, int64_t least = 0) {
    if (at.contains(key)) at[key] = std::max(at[key].get<int64_t>() / num_ranks, least);
  };
  for (const char* key :
       {"num_attention_heads", "num_sliding_attention_heads", "share_expert_dim",
        "intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size",
        "linear_num_key_heads", "linear_num_value_heads", "mamba_n_heads", "mamba_n_groups",
        "mamba_num_heads", "n_groups", "n_mamba_heads", "mamba_ngroups", "mamba_d_ssm",
        "shared_intermediate_size", "moe_shared_expert_intermediate_size"}) {
    divide(config, key);
  }
  // The channels of a Mamba layer follow from the width, which ranks do not share.
  if (config.contains("mamba_expand") && !config.contains("mamba_d_ssm")) {
    config["mamba_expand"] = config["mamba_expand"].get<int64_t>() / num_ranks;
  }
  divide(config, "num_key_value_heads", 1);
  divide(config, "swa_num_key_value_heads", 1);
  if (config.contains("linear_attn_config")) divide(config["linear_attn_config"], "num_heads");
  return config;
}

// The rank's shape of a weight whose experts every rank has.
Shape shape_of_rank(const WeightSpec& spec, int64_t num_ranks) {
  const bool experts = spec.cut.kind == CutKind::kWholeExperts;
  const CutKind kind = experts ? spec.cut.within : spec.cut.kind;
  if (kind == CutKind::kNone) return spec.shape;
  std::vector<int64_t> dims(spec.shape.dims().begin(), spec.shape.dims().end());
  int64_t& size = dims[size_t{experts} + size_t{kind == CutKind::kColumns}];
  size = 0;
  const auto ranges = ranges_of_rank(spec.cut.parts, 0, num_ranks).value();
  for (const checkpoint::CutRange& range : ranges) size += range.count;
  return Shape(dims);
}

TEST(WeightCuts, GiveARankTheWeightsOfAModelWithFewerHeadsAndChannels) {
  std::set<std::string> families;
  for (const json& config : wide_configs()) {
    families.insert(testing::parse(config).family);
    for (const int64_t num_ranks : {2, 4, 8}) {
      SCOPED_TRACE(::testing::Message() << config["architectures"] << " on " << num_ranks);
      const auto model = testing::model_of(config);
      std::map<std::string, Shape> want;
      for (const WeightSpec& spec : testing::model_of(smaller(config, num_ranks))->weight_specs()) {
        want.emplace(spec.name, spec.shape);
      }
      for (const WeightSpec& spec : model->weight_specs()) {
        if (spec.name == "lm_head") continue;  // the head is cut along the vocabulary
        const bool is_short_convolution = spec.name.find(".conv.in_proj") != std::string::npos ||
                                          spec.name.find(".conv.out_proj") != std::string::npos ||
                                          spec.name.find(".conv.conv") != std::string::npos;
        if (is_short_convolution) continue;  // as wide as the model
        EXPECT_EQ(shape_of_rank(spec, num_ranks), want.at(spec.name)) << spec.name;
      }
    }
  }
  EXPECT_EQ(families.size(), models::families().size());
}

}  // namespace
}  // namespace heddle::models
