// SPDX-License-Identifier: Apache-2.0
// How ranks would share the weights of every family (checkpoint/weight_cut.h): what they have is
// all of each weight, and the weights of a model with as many heads and channels fewer.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "models/small_config_fixture.h"
#include "support/dense_model.h"
#include "support/test_data.h"

namespace heddle::models {
namespace {

using checkpoint::CutKind;
using checkpoint::CutPart;
using checkpoint::CutRange;
using checkpoint::PartCut;
using checkpoint::WeightCut;
using checkpoint::WeightSpec;
using nlohmann::json;

// A weight whose elements are their own numbers, as [outer, cut dimension, inner].
struct Layout {
  int64_t outer = 1;
  int64_t size = 1;
  int64_t inner = 1;
};

// One way to cut a weight.
struct Way {
  std::vector<CutPart> parts;
  int dimension = 0;
};

std::vector<Way> ways_of(const WeightSpec& spec) {
  const WeightCut& cut = spec.cut;
  std::vector<Way> ways;
  if (cut.kind == CutKind::kWholeExperts) ways.push_back({{{spec.shape[0]}}, 0});
  const CutKind within = cut.kind == CutKind::kWholeExperts ? cut.within : cut.kind;
  if (within == CutKind::kNone) {
    if (cut.kind == CutKind::kNone) ways.push_back({{{spec.shape[0], 1, PartCut::kWhole}}, 0});
    return ways;
  }
  const int outer = cut.kind == CutKind::kWholeExperts ? 1 : 0;
  ways.push_back({cut.parts, outer + (within == CutKind::kColumns ? 1 : 0)});
  return ways;
}

Layout layout_of(const Shape& shape, int dimension) {
  Layout layout{.size = shape[dimension]};
  for (int i = 0; i < shape.rank(); ++i) {
    if (i < dimension) layout.outer *= shape[i];
    if (i > dimension) layout.inner *= shape[i];
  }
  return layout;
}

// A rank's share: the numbers of its elements, in the order of its own dense tensor.
std::vector<int64_t> piece_of(const Layout& layout, const std::vector<CutRange>& ranges) {
  std::vector<int64_t> piece;
  for (int64_t o = 0; o < layout.outer; ++o) {
    for (const CutRange& range : ranges) {
      for (int64_t i = range.first * layout.inner; i < (range.first + range.count) * layout.inner;
           ++i) {
        piece.push_back(o * layout.size * layout.inner + i);
      }
    }
  }
  return piece;
}

// The number of ranks that hold a copy of each element of a part.
int64_t copies_of(const CutPart& part, int64_t num_ranks) {
  if (part.cut == PartCut::kWhole) return num_ranks;
  if (part.cut != PartCut::kCopied) return 1;
  return std::max<int64_t>(num_ranks * part.unit / part.size, 1);
}

// Whether the ranks divide the weight; where they do, joins what they have.
bool check_joined(const WeightSpec& spec, const Way& way, int64_t num_ranks) {
  const Layout layout = layout_of(spec.shape, way.dimension);
  int64_t covered = 0;
  for (const CutPart& part : way.parts) covered += part.size;
  EXPECT_EQ(covered, layout.size) << "the parts are not the dimension";
  std::vector<int64_t> times(static_cast<size_t>(spec.shape.num_elements()), 0);
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    const auto ranges = ranges_of_rank(way.parts, rank, num_ranks);
    if (!ranges.ok()) return false;
    for (const int64_t element : piece_of(layout, *ranges)) ++times[static_cast<size_t>(element)];
  }
  std::vector<int64_t> want;
  for (const CutPart& part : way.parts) {
    want.insert(want.end(), static_cast<size_t>(part.size * layout.inner),
                copies_of(part, num_ranks));
  }
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i] != want[i % want.size()]) {
      ADD_FAILURE() << "element " << i << " is in " << times[i] << " ranks";
      return true;
    }
  }
  return true;
}

// The numbers of ranks, of 2, 4 and 8, that divide every weight of the model.
std::vector<int64_t> check_model(const Model& model) {
  std::vector<int64_t> legal;
  for (const int64_t num_ranks : {2, 4, 8}) {
    bool divides = true;
    for (const WeightSpec& spec : model.weight_specs()) {
      for (const Way& way : ways_of(spec)) {
        SCOPED_TRACE(spec.name);
        divides = check_joined(spec, way, num_ranks) && divides;
      }
    }
    if (divides) legal.push_back(num_ranks);
  }
  return legal;
}

TEST(WeightCuts, JoinToEveryWeightOfTheModelsHere) {
  for (const auto& folder :
       {heddle::testing::dense_model(), heddle::testing::repository_path("models/heddle-tiny")}) {
    SCOPED_TRACE(folder);
    const auto config = load_config(folder);
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    EXPECT_FALSE(check_model(*create_model(*config)).empty());
  }
}

TEST(WeightCuts, JoinToEveryWeightOfEveryGolden) {
  HEDDLE_SHARED_PATH_OR_SKIP(goldens, "golden");
  int cut_by_two = 0;
  for (const auto& entry : std::filesystem::directory_iterator(goldens)) {
    if (!entry.is_directory()) continue;
    const auto config = load_config(entry.path());
    if (!config.ok()) continue;
    SCOPED_TRACE(entry.path());
    cut_by_two += check_model(*create_model(*config)).empty() ? 0 : 1;
  }
  EXPECT_GE(cut_by_two, 16);
}

// Every family, with sizes that eight ranks divide, all but the heads of keys.
std::vector<json> wide_configs() {
  std::vector<json> configs;
  for (const char* architecture :
       {"LlamaForCausalLM",       "MistralForCausalLM",
        "Qwen2ForCausalLM",       "Qwen2MoeForCausalLM",
        "Qwen3ForCausalLM",       "Qwen3MoeForCausalLM",
        "GptOssForCausalLM",      "Qwen3NextForCausalLM",
        "Qwen3_5ForCausalLM",     "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",  "KimiLinearForCausalLM",
        "MixtralForCausalLM",     "SeedOssForCausalLM",
        "GraniteForCausalLM",     "GraniteMoeForCausalLM",
        "SmolLM3ForCausalLM",     "Olmo3ForCausalLM",
        "Exaone4ForCausalLM",     "Phi3ForCausalLM",
        "MiniMaxM2ForCausalLM",   "Ernie4_5_MoeForCausalLM",
        "Glm4MoeForCausalLM",     "Gemma3ForCausalLM",
        "Gemma4ForCausalLM",      "Cohere2ForCausalLM",
        "NanoChatForCausalLM",    "MiMoV2FlashForCausalLM",
        "Mistral4ForCausalLM",    "Step3p5ForCausalLM",
        "Lfm2ForCausalLM",        "Lfm2MoeForCausalLM",
        "OlmoHybridForCausalLM",  "MiniMaxForCausalLM",
        "JambaForCausalLM",       "BambaForCausalLM",
        "FalconH1ForCausalLM",    "NemotronHForCausalLM",
        "Zamba2ForCausalLM",      "GraniteMoeHybridForCausalLM",
        "Glm4MoeLiteForCausalLM", "Qwen3VLMoeForConditionalGeneration"}) {
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
  const Way way = ways_of(spec).back();
  if (spec.cut.kind == CutKind::kWholeExperts && spec.cut.within == CutKind::kNone)
    return spec.shape;
  std::vector<int64_t> dims(spec.shape.dims().begin(), spec.shape.dims().end());
  int64_t& size = dims[static_cast<size_t>(way.dimension)];
  size = 0;
  const auto ranges = ranges_of_rank(way.parts, 0, num_ranks).value();
  for (const CutRange& range : ranges) size += range.count;
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
        if (spec.name == "embed_tokens" || spec.name == "lm_head") continue;  // by tokens
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
