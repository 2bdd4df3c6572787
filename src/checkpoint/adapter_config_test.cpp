// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/adapter_config.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::string_view kQ = "model.layers.1.self_attn.q_proj";

AdapterConfig adapter_config(std::string_view text) {
  Result<AdapterConfig> config = AdapterConfig::parse(text);
  EXPECT_TRUE(config.ok()) << config.status().to_string();
  return config.value();
}

TEST(AdapterConfig, ScalesByRankAndPatterns) {
  const AdapterConfig plain = adapter_config(R"({"r": 16, "lora_alpha": 8})");
  EXPECT_EQ(plain.scaling(kQ).rank, 16);
  EXPECT_EQ(plain.scaling(kQ).scale, 0.5);
  EXPECT_EQ(adapter_config(R"({"r": 16, "lora_alpha": 8, "use_rslora": true})").scaling(kQ).scale,
            2);
  EXPECT_EQ(adapter_config("{}").scaling(kQ).scale, 1);  // PEFT's default rank and alpha are both 8

  // Keys are tried in the file's order; the first that matches the end of the path is used.
  const AdapterConfig patterns = adapter_config(R"({"r": 8, "lora_alpha": 16,
    "rank_pattern": {"z_proj": 3, "layers\\.1\\..*q_proj": 4, "q_proj": 2, "proj": 1},
    "alpha_pattern": {"^model.layers.0.self_attn.q_proj": 12, "_proj": 5}})");
  EXPECT_EQ(patterns.scaling(kQ).rank, 4);
  EXPECT_EQ(patterns.scaling(kQ).scale, 16.0 / 4);
  EXPECT_EQ(patterns.scaling("model.layers.0.self_attn.q_proj").rank, 2);
  EXPECT_EQ(patterns.scaling("model.layers.0.self_attn.q_proj").scale, 6);
  EXPECT_EQ(patterns.scaling("model.layers.0.self_attn.k_proj").rank, 8);
}

TEST(AdapterConfig, TargetsByListExpressionLayersAndExceptions) {
  struct Case {
    std::string_view text;
    std::string_view module;
    bool is_target;
  };

  constexpr std::string_view kExpert = "model.layers.3.mlp.experts.7.up_proj";
  for (const auto& [text, module, is_target] : std::vector<Case>{
           {R"({"target_modules": ["k_proj", "q_proj"]})", kQ, true},
           {R"({"target_modules": ["self_attn.q_proj"]})", kQ, true},
           {R"({"target_modules": ["proj"]})", kQ, false},
           {R"({"target_modules": "all-linear"})", kQ, true},
           {R"({"target_modules": ".*\\.q_proj"})", kQ, true},
           {R"({"target_modules": ".*\\.q_pro"})", kQ, false},
           {R"({"target_modules": "q_proj"})", kQ, false},
           {R"({"target_parameters": ["experts.gate_up_proj"]})", kQ, false},
           {R"({"target_modules": "all-linear", "exclude_modules": ["q_proj"]})", kQ, false},
           {R"({"target_modules": "all-linear", "exclude_modules": ".*v_proj"})", kQ, true},
           {R"({"target_modules": ["q_proj"], "layers_to_transform": [0, 1]})", kQ, true},
           {R"({"target_modules": ["q_proj"], "layers_to_transform": 2})", kQ, false},
           {R"({"target_modules": ["up_proj"], "layers_to_transform": [7]})", kExpert, true},
           {R"({"target_modules": ["up_proj"], "layers_to_transform": [3],
                "layers_pattern": "layers"})",
            kExpert, true},
           {R"({"target_modules": ["q_proj"], "layers_to_transform": [1],
                "layers_pattern": ["h", "blocks"]})",
            kQ, false}}) {
    EXPECT_EQ(adapter_config(text).targets(module), is_target) << text;
  }
}

TEST(AdapterConfig, OrdersTheParametersOfAModule) {
  const AdapterConfig config = adapter_config(
      R"({"target_parameters": ["down_proj", "mlp.experts.gate_up_proj", "mlp.gate.weight"]})");
  EXPECT_THAT(config.parameters_of("model.layers.0.mlp.experts"),
              ElementsAre("gate_up_proj", "down_proj"));
  EXPECT_THAT(config.parameters_of("model.layers.0.mlp.gate"), ElementsAre("down_proj", "weight"));
  EXPECT_THAT(config.parameters_of("model.layers.0.cmlp.experts"), ElementsAre("down_proj"));
  EXPECT_THAT(adapter_config("{}").parameters_of("model.layers.0.mlp.experts"), IsEmpty());
}

TEST(AdapterConfig, RefusesOtherKindsByName) {
  struct Refusal {
    std::string_view text;
    std::string_view name;
    std::string_view remedy;
  };

  for (const auto& [text, name, remedy] : std::vector<Refusal>{
           {R"({"peft_type": "IA3"})", "peft_type is \"IA3\"; only LORA", "merge_and_unload"},
           {R"({"alora_invocation_tokens": [1, 2]})", "alora_invocation_tokens is [1,2]",
            "train an adapter without"},
           {R"({"layer_replication": [[0, 2]]})", "layer_replication is [[0,2]]",
            "train an adapter without"},
           {R"({"fan_in_fan_out": true})", "fan_in_fan_out is true", "merge_and_unload"},
           {R"({"use_qalora": true})", "use_qalora is true; QALoRA", "merge_and_unload"},
           {R"({"use_later_idea": true})", "use_later_idea is true; this kind", "merge_and_unload"},
           {R"({"init_lora_weights": "pissa_niter_4"})", "init_lora_weights is \"pissa_niter_4\"",
            "path_initial_model_for_weight_conversion"}}) {
    const Status status = AdapterConfig::parse(text).status();
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << text;
    EXPECT_THAT(status.message(), HasSubstr(name));
    EXPECT_THAT(status.message(), HasSubstr(remedy));
  }
  for (const std::string_view off :
       {R"({"use_dora": false, "modules_to_save": [], "bias": "none", "lora_bias": false})",
        R"({"layer_replication": null, "use_later_idea": false, "init_lora_weights": true})",
        R"({"init_lora_weights": "gaussian", "loftq_config": {}, "peft_type": "LORA"})"}) {
    EXPECT_TRUE(AdapterConfig::parse(off).ok()) << off;
  }
}

TEST(AdapterConfig, ReadsWhatGoesBeyondPlainLora) {
  const AdapterConfig config = adapter_config(
      R"({"use_dora": true, "lora_bias": true, "bias": "lora_only", "modules_to_save": ["lm_head"],
          "trainable_token_indices": {"wte": [3], "wpe": []}})");
  EXPECT_TRUE(config.uses_dora());
  EXPECT_TRUE(config.has_biases());
  EXPECT_THAT(config.saved_modules(), ElementsAre("lm_head"));
  EXPECT_THAT(config.trained_modules(), ElementsAre("wte"));
  const AdapterConfig plain = adapter_config("{}");
  EXPECT_FALSE(plain.uses_dora());
  EXPECT_FALSE(plain.has_biases());
  EXPECT_THAT(plain.saved_modules(), IsEmpty());
  EXPECT_THAT(plain.trained_modules(), IsEmpty());
}

TEST(AdapterConfig, NamesTheTokensOfAnEmbedding) {
  const AdapterConfig list = adapter_config(R"({"trainable_token_indices": [3, 5]})");
  EXPECT_THAT(list.trained_tokens("model.embed_tokens"), ElementsAre(3, 5));
  EXPECT_THAT(list.trained_tokens("backbone.embeddings"), ElementsAre(3, 5));
  EXPECT_THAT(list.trained_modules(), ElementsAre(""));
  const AdapterConfig named = adapter_config(R"({"trainable_token_indices": {"wte": [7]}})");
  EXPECT_THAT(named.trained_tokens("model.wte"), ElementsAre(7));
  EXPECT_THAT(named.trained_tokens("model.embed_tokens"), IsEmpty());
}

TEST(AdapterConfig, NamesWrongValues) {
  struct Mistake {
    std::string_view text;
    std::string_view message;
  };

  for (const auto& [text, message] : std::vector<Mistake>{
           {"[]", "not a JSON object"},
           {R"({"r": 0})", "r is 0"},
           {R"({"r": "8"})", "r is \"8\""},
           {R"({"lora_alpha": NaN})", "lora_alpha is NaN"},
           {R"({"lora_alpha": Infinity})", "lora_alpha is Infinity"},
           {R"({"use_rslora": "yes"})", "use_rslora is \"yes\""},
           {R"({"bias": 3})", "bias is 3"},
           {R"({"bias": "both"})", "bias is \"both\", which is none of"},
           {R"({"use_dora": "yes"})", "use_dora is \"yes\""},
           {R"({"lora_bias": "none"})", "lora_bias is \"none\""},
           {R"({"modules_to_save": {"a": 1}})", "modules_to_save is an object"},
           {R"({"modules_to_save": ["a", 2]})", "modules_to_save"},
           {R"({"trainable_token_indices": "x"})", "trainable_token_indices is \"x\""},
           {R"({"target_modules": 3})", "target_modules is 3"},
           {R"({"target_modules": "(q_proj"})", "target_modules: the pattern"},
           {R"({"rank_pattern": {"q_proj": 0}})", "rank_pattern[\"q_proj\"] is \"0\""},
           {R"({"rank_pattern": {"q_proj": 2.5}})", "is no rank"},
           {R"({"rank_pattern": {"*": 2}})", "rank_pattern: the pattern"},
           {R"({"rank_pattern": [8]})", "rank_pattern is no JSON object"},
           {R"({"alpha_pattern": {"q_proj": NaN}})", "is no factor"},
           {R"({"trainable_token_indices": [-1]})", "trainable_token_indices"},
           {R"({"trainable_token_indices": {"wte": "x"}})", "wte is \"x\""},
           {R"({"layers_to_transform": [-1]})", "layers_to_transform"}}) {
    const Status status = AdapterConfig::parse(text).status();
    EXPECT_FALSE(status.ok()) << text;
    EXPECT_THAT(status.message(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace heddle::checkpoint
