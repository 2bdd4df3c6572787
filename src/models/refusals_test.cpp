// SPDX-License-Identifier: Apache-2.0
// Every family names the key and the value of what is wrong in a file, or not served: one table.
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "models/small_config_fixture.h"

namespace heddle::models {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

struct Refusal {
  std::string_view architecture;
  json changes;  // of the smallest configuration, merged into it
  std::string_view message;
};

constexpr std::string_view kLlama = "LlamaForCausalLM", kMistral = "MistralForCausalLM",
                           kQwen2 = "Qwen2ForCausalLM", kQwen2Moe = "Qwen2MoeForCausalLM",
                           kQwen3 = "Qwen3ForCausalLM", kQwen3Moe = "Qwen3MoeForCausalLM",
                           kQwen3Next = "Qwen3NextForCausalLM", kQwen35 = "Qwen3_5ForCausalLM",
                           kQwen35Moe = "Qwen3_5MoeForCausalLM", kGptOss = "GptOssForCausalLM",
                           kV2 = "DeepseekV2ForCausalLM", kV3 = "DeepseekV3ForCausalLM",
                           kKimi = "KimiLinearForCausalLM", kMixtral = "MixtralForCausalLM",
                           kSeed = "SeedOssForCausalLM", kGranite = "GraniteForCausalLM",
                           kSmol = "SmolLM3ForCausalLM", kOlmo = "Olmo3ForCausalLM",
                           kExaone = "Exaone4ForCausalLM", kPhi = "Phi3ForCausalLM",
                           kMiniMax = "MiniMaxM2ForCausalLM", kErnie = "Ernie4_5_MoeForCausalLM",
                           kGlm = "Glm4MoeForCausalLM", kGemma3 = "Gemma3ForCausalLM",
                           kGemma4 = "Gemma4ForCausalLM", kCohere = "Cohere2ForCausalLM",
                           kNano = "NanoChatForCausalLM", kMimo = "MiMoV2FlashForCausalLM",
                           kMistral4 = "Mistral4ForCausalLM", kStep = "Step3p5ForCausalLM",
                           kLfm = "Lfm2ForCausalLM", kLfmMoe = "Lfm2MoeForCausalLM",
                           kOlmoHybrid = "OlmoHybridForCausalLM",
                           kMiniMaxText = "MiniMaxForCausalLM", kJamba = "JambaForCausalLM";

json of_linear_attention(const char* key, const json& value) {
  return {{"linear_attn_config", {{key, value}}}};
}

// kUnimplemented.
std::vector<Refusal> unserved_values() {
  return {
      {kLlama, {{"mlp_bias", true}}, "mlp_bias is true; Llama is served without it"},
      {kLlama, {{"num_experts", 8}}, "num_experts is 8; Llama is served without it"},
      {kLlama,
       {{"sliding_window", 24}},
       "sliding_window is 24; Llama is served with attention to all"},
      {kLlama,
       {{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2}}}},
       "rope_type is \"dynamic\""},
      {kLlama, {{"rope_scaling", {{"rope_type", "longrope"}}}}, "rope_type is \"longrope\""},
      {kLlama, {{"hidden_act", "gelu"}}, "hidden_act is \"gelu\"; only \"silu\" is served"},
      {kLlama,
       {{"hidden_activation", "gelu"}},
       "hidden_activation is \"gelu\"; only \"silu\" is served"},
      {kLlama,
       {{"attn_temperature_tuning", true}},
       "attn_temperature_tuning is true; Llama is served"},
      {kLlama,
       {{"dual_chunk_attention_config", {{"chunk_size", 8192}}}},
       "dual_chunk_attention_config"},
      {kLlama, {{"use_qk_norm", true}}, "use_qk_norm is true; Llama is served without it"},
      {kLlama,
       {{"quantization_config", {{"quant_method", "unheard_of"}}}},
       "quant_method is \"unheard_of\""},
      {kMistral,
       {{"attention_bias", true}},
       "attention_bias is true; Mistral is served without it"},
      {kMistral,
       {{"use_sliding_window", true}},
       "use_sliding_window is true; Mistral is served without it"},
      {kQwen2,
       {{"full_attention_interval", 4}},
       "full_attention_interval is 4; Qwen2 is served with 1 only"},
      {kQwen3, {{"num_experts", 8}}, "num_experts is 8; Qwen3 is served without it"},
      {kQwen3, {{"use_qk_norm", false}}, "use_qk_norm is false; Qwen3 is served with these norms"},
      {kQwen2Moe, {{"use_qk_norm", true}}, "use_qk_norm is true; Qwen2-MoE"},
      {kQwen2Moe, {{"scoring_func", "sigmoid"}}, "scoring_func is \"sigmoid\"; Qwen2-MoE"},
      {kQwen3Moe,
       {{"use_sliding_window", true}, {"sliding_window", 24}},
       "sliding_window is 24; Qwen3-MoE is served with attention to all"},
      {kQwen3Moe,
       {{"shared_expert_intermediate_size", 48}},
       "shared_expert_intermediate_size is 48; Qwen3-MoE is served without it"},
      {kQwen3Moe,
       {{"scoring_func", "sigmoid"}},
       "scoring_func is \"sigmoid\"; Qwen3-MoE is served with"},
      {kQwen3Moe, {{"n_group", 4}}, "n_group is 4; Qwen3-MoE is served with 1 only"},
      {kQwen3Moe, {{"qkv_bias", true}}, "qkv_bias is true; Qwen3-MoE is served without it"},
      {kQwen3Moe,
       {{"use_qk_norm", false}},
       "use_qk_norm is false; Qwen3-MoE is served with these norms"},
      {kQwen35, {{"num_experts", 8}}, "num_experts is 8; Qwen3.5 is served without it"},
      {kQwen35,
       {{"attn_output_gate", false}},
       "attn_output_gate is false; Qwen3.5 is served with the gate"},
      {kQwen35Moe,
       {{"mlp_only_layers", {0}}},
       "mlp_only_layers is [0]; Qwen3.5 is served without it"},
      {kQwen3Next,
       {{"layer_types", {"sliding_attention", "a", "b", "c"}}},
       "Qwen3-Next is served with \"linear_attention\" and \"full_attention\""},
      {kQwen3Next,
       {{"output_gate_type", "sigmoid"}},
       "output_gate_type is \"sigmoid\"; only \"silu\""},
      {kQwen3Next,
       {{"attn_output_gate", false}},
       "attn_output_gate is false; Qwen3-Next is served with the gate"},
      {kQwen3Next,
       {{"attention_bias", true}},
       "attention_bias is true; Qwen3-Next is served without it"},
      {kV3, {{"topk_method", "greedy"}}, "topk_method is \"greedy\"; DeepSeek-V3 has"},
      {kV3, {{"scoring_func", "softmax"}}, "scoring_func is \"softmax\"; DeepSeek-V3 has"},
      {kV2, {{"topk_method", "noaux_tc"}}, "topk_method is \"noaux_tc\"; served are"},
      {kV2, {{"scoring_func", "sigmoid"}}, "scoring_func is \"sigmoid\"; DeepSeek-V2 has"},
      {kV3, {{"attention_bias", true}}, "attention_bias is true; DeepSeek is served without it"},
      {kV3, {{"index_topk", 2048}}, "index_topk is 2048; DeepSeek is served without it"},
      {kV3, {{"swiglu_limit", 10}}, "swiglu_limit is 10; DeepSeek is served without it"},
      {kV2,
       {{"quantization_config", {{"quant_method", "unheard_of"}}}},
       "quant_method is \"unheard_of\""},
      {kKimi, of_linear_attention("gate_lower_bound", -5),
       "gate_lower_bound is -5; Kimi-Linear is served without it"},
      {kKimi, of_linear_attention("use_full_rank_gate", true),
       "use_full_rank_gate is true; Kimi-Linear is served without it"},
      {kKimi,
       {{"mla_use_output_gate", true}},
       "mla_use_output_gate is true; Kimi-Linear is served without it"},
      {kKimi,
       {{"attn_res_block_size", 4}},
       "attn_res_block_size is 4; Kimi-Linear is served without it"},
      {kKimi,
       {{"routed_expert_hidden_size", 64}},
       "routed_expert_hidden_size is 64; Kimi-Linear is served without it"},
      {kKimi,
       {{"latent_moe_use_norm", true}},
       "latent_moe_use_norm is true; Kimi-Linear is served without it"},
      {kMistral, {{"kv_lora_rank", 256}}, "kv_lora_rank is 256; Mistral is served without"},
      {kMixtral, {{"n_shared_experts", 1}}, "n_shared_experts is 1; Mixtral is served without it"},
      {kSeed, {{"mlp_bias", true}}, "mlp_bias is true; Seed-OSS is served without it"},
      {kGranite, {{"num_local_experts", 8}}, "num_local_experts is 8; Granite is served without"},
      {kSmol, {{"mlp_bias", true}}, "mlp_bias is true; SmolLM3 is served without it"},
      {kOlmo, {{"hidden_act", "gelu"}}, "hidden_act is \"gelu\"; only \"silu\" is served"},
      {kExaone, {{"attention_bias", true}}, "attention_bias is true; EXAONE 4 is served without"},
      {kPhi,
       {{"rope_scaling", {{"type", "su"}}}},
       "type is \"su\"; longrope, which Phi-3 means by it, is not served by this build"},
      {kPhi, {{"rope_scaling", {{"type", "yarn"}}}}, "type is \"yarn\"; longrope"},
      {kPhi, {{"rope_parameters", {{"rope_type", "longrope"}}}}, "rope_type is \"longrope\""},
      {kMiniMax, {{"attn_type_list", {1, 0, 1, 1}}}, "attn_type_list is [1,0,1,1]; only 1"},
      {kMiniMax, {{"qk_norm_type", "per_head"}}, "qk_norm_type is \"per_head\"; only"},
      {kMiniMax, {{"shared_intermediate_size", 64}}, "shared_intermediate_size is 64; MiniMax-M2"},
      {kErnie, {{"use_bias", true}}, "use_bias is true; ERNIE 4.5 is served without it"},
      {kGlm, {{"scoring_func", "softmax"}}, "scoring_func is \"softmax\"; only \"sigmoid\""},
      {kGemma3,
       {{"hidden_activation", "silu"}},
       "hidden_activation is \"silu\"; only \"gelu_pytorch_tanh\""},
      {kGemma3,
       {{"attn_logit_softcapping", 50.0}},
       "attn_logit_softcapping is 50.0; Gemma 3 is served without it"},
      {kGemma3,
       {{"use_bidirectional_attention", true}},
       "use_bidirectional_attention is true; Gemma 3 is served without it"},
      {kGemma4,
       {{"use_bidirectional_attention", "all"}},
       "use_bidirectional_attention is \"all\"; only \"vision\" and false are served"},
      {kGemma4,
       {{"per_layer_config", {{"0", {{"head_dim", 8}}}}}},
       "layer 2 has other heads than those of its kind"},
      {kCohere, {{"hidden_act", "gelu"}}, "hidden_act is \"gelu\"; only \"silu\" is served"},
      {kNano, {{"hidden_act", "silu"}}, "hidden_act is \"silu\"; only \"relu2\" is served"},
      {kMimo,
       {{"add_full_attention_sink_bias", true}},
       "add_full_attention_sink_bias is true; full layers are served without sinks"},
      {kMimo, {{"swa_head_dim", 16}}, "swa_head_dim is 16; only 24 is served"},
      {kMimo, {{"attention_chunk_size", 64}}, "attention_chunk_size is 64; only the sliding"},
      {kMistral4, {{"n_group", 2}}, "n_group is 2; Mistral-4 is served with 1 only"},
      {kStep, {{"gating", "per-channel"}}, "gating is \"per-channel\"; only true and"},
      {kStep, {{"rope_theta", {5e6, 1e4, 2e4, 1e4}}}, "layers of one kind with several values"},
      {kStep, {{"moe_router_activation", "softmax"}}, "only \"sigmoid\" is served"},
      {kStep, {{"norm_expert_weight", false}}, "norm_expert_weight is false; only true"},
      {kStep, {{"use_rope_layers", {0, 1}}}, "layers without rotation are not served"},
      {kStep,
       {{"yarn_only_types", {"full_attention", "sliding_attention"}}},
       "only full_attention is served"},
      {kOlmoHybrid,
       {{"layer_types", {"sliding_attention", "a", "b", "c"}}},
       "layer_types has \"sliding_attention\"; OLMo Hybrid is served with \"linear_attention\" "
       "and"},
      {kOlmoHybrid, {{"hidden_act", "gelu"}}, "hidden_act is \"gelu\"; only \"silu\" is served"},
      {kOlmoHybrid, {{"mlp_bias", true}}, "mlp_bias is true; OLMo Hybrid is served without it"},
      {kMiniMaxText,
       {{"postnorm", false}},
       "postnorm is false; MiniMax-Text is served with blocks"},
      {kMiniMaxText,
       {{"shared_intermediate_size", 64}},
       "shared_intermediate_size is 64; MiniMax-Text is served without it"},
      {kMiniMaxText,
       {{"layer_types", {"sliding_attention", "a", "b", "c"}}},
       "layer_types has \"sliding_attention\"; MiniMax-Text is served with \"linear_attention\" "
       "and"},
      {kJamba, {{"hidden_act", "gelu"}}, "hidden_act is \"gelu\"; only \"silu\" is served"},
      {kJamba, {{"attention_bias", true}}, "attention_bias is true; Jamba is served without it"},
      {kLfm, {{"conv_bias", true}}, "conv_bias is true; LFM2 is served without it"},
      {kLfm,
       {{"layer_types", {"conv", "sliding_attention", "conv", "conv"}}},
       "layer_types has \"sliding_attention\"; LFM2 is served with \"conv\" and "
       "\"full_attention\""},
      {kKimi, {{"moe_router_activation_func", "softmax"}}, "only \"sigmoid\" is served"},
      {kKimi, {{"mlp_layer_types", {"a", "b", "c", "d", "e", "f"}}}, "mlp_layer_types has \"a\""},
      {kKimi,
       {{"mla_use_nope", false}},
       "mla_use_nope is false; Kimi-Linear is served without positions; set it to true"},
      {kKimi,
       {{"scoring_func", "softmax"}, {"moe_router_activation_func", nullptr}},
       "only \"sigmoid\" is served"},
      {kKimi,
       {{"topk_method", "greedy"}},
       "topk_method is \"greedy\"; only \"noaux_tc\" is served"},
      {kKimi, {{"hidden_act", "gelu"}}, "hidden_act is \"gelu\""},
      {kKimi,
       {{"attention_bias", true}},
       "attention_bias is true; Kimi-Linear is served without it"},
      {kKimi,
       {{"use_grouped_topk", false}, {"num_expert_group", 2}, {"topk_group", 2}},
       "use_grouped_topk is false; the 2 groups are always used"},
  };
}

// kInvalidArgument.
std::vector<Refusal> wrong_values() {
  const char* const linear = "linear_attention";
  const char* const full = "full_attention";
  return {
      {kMistral,
       {{"use_sliding_window", false}, {"sliding_window", 24}},
       "use_sliding_window is false, but sliding_window is set: remove the one"},
      {kQwen2Moe,
       {{"shared_expert_intermediate_size", nullptr}},
       "shared_expert_intermediate_size is missing"},
      {kGptOss,
       {{"num_experts_per_tok", 5}},
       "num_experts_per_tok is 5, more than num_local_experts = 4"},
      {kMiniMax,
       {{"rotary_dim", 8}, {"partial_rotary_factor", 1.0}},
       "rotary_dim is 8, but partial_rotary_factor is 1 of head_dim = 16"},
      {kSmol, {{"no_rope_layers", {1, 0}}}, "no_rope_layers is [1,0], but num_hidden_layers is 4"},
      {kGemma3,
       {{"rope_local_base_freq", 5e3},
        {"rope_parameters",
         {{"full_attention", json::object()}, {"sliding_attention", {{"rope_theta", 1e4}}}}}},
       "rope_local_base_freq is 5000.0, but rope_theta of sliding_attention is 10000"},
      {kGemma4, {{"rope_parameters", nullptr}}, "rope_parameters is missing"},
      {kGemma4,
       {{"num_kv_shared_layers", 3}},
       "num_kv_shared_layers is 3, but no layer before them is of the same kind"},
      {kMimo, {{"hybrid_layer_pattern", {0, 1}}}, "hybrid_layer_pattern is [0,1], but num_hidden"},
      {kOlmoHybrid, {{"linear_num_value_heads", 6}}, "linear_num_value_heads is 6, not a multiple"},
      {kOlmoHybrid, {{"linear_allow_neg_eigval", 2}}, "linear_allow_neg_eigval is 2, not true or"},
      {kOlmoHybrid, {{"layer_types", {full}}}, "layer_types has 1 entries"},
      {kMiniMaxText, {{"attn_type_list", {0, 1, 0, 2}}}, "attn_type_list is 2, outside 0 to 1"},
      {kMiniMaxText,
       {{"attn_type_list", {0, 1}}},
       "attn_type_list is [0,1], but num_hidden_layers"},
      {kMiniMaxText,
       {{"attn_type_list", {0, 1, 0, 0}}, {"layer_types", {linear, full, linear, full}}},
       "attn_type_list is [0,1,0,0], which contradicts layer_types"},
      {kMiniMaxText,
       {{"mlp_beta_factor", 2}, {"layernorm_mlp_beta", 3}},
       "layernorm_mlp_beta is 3, but mlp_beta_factor is 2"},
      {kMiniMaxText,
       {{"rotary_dim", 8}, {"partial_rotary_factor", 1.0}},
       "rotary_dim is 8, but partial_rotary_factor is 1 of head_dim = 16"},
      {kJamba, {{"attn_layer_offset", 4}}, "attn_layer_offset is 4, beyond attn_layer_period = 4"},
      {kJamba, {{"expert_layer_period", 0}}, "expert_layer_period is 0, outside 1 to"},
      {kJamba, {{"mamba_d_state", 65}}, "mamba_d_state is 65, outside 1 to 64"},
      {kJamba, {{"mamba_dt_rank", "some"}}, "mamba_dt_rank is \"some\", not an integer"},
      {kJamba, {{"num_experts_per_tok", 5}}, "num_experts_per_tok is 5, more than num_experts = 4"},
      {kLfm, {{"conv_L_cache", 9}}, "conv_L_cache is 9, outside 2 to 8"},
      {kLfm,
       {{"full_attn_idxs", {1, 2}}},
       "full_attn_idxs is [1,2], which contradicts layer_types"},
      {kLfm, {{"full_attn_idxs", {4}}}, "full_attn_idxs is 4, outside 0 to 3"},
      {kLfm,
       {{"tie_embedding", false}, {"tie_word_embeddings", true}},
       "tie_embedding is false, which contradicts tie_word_embeddings"},
      {kLfmMoe, {{"layer_types", nullptr}}, "layer_types is missing"},
      {kLfmMoe, {{"num_experts_per_tok", 9}}, "num_experts_per_tok is 9, more than num_experts"},
      {kStep, {{"moe_layers_enum", "3;4"}}, "moe_layers_enum is \"3;4\", not a list of layers"},
      {kStep, {{"swiglu_limits", {1.0}}}, "swiglu_limits is [1.0], but num_hidden_layers is 4"},
      {kGptOss, {{"num_local_experts", 0}}, "num_local_experts is 0, outside 1 to"},
      {kGptOss,
       {{"num_local_experts", nullptr}, {"num_experts_per_tok", nullptr}},
       "num_local_experts is missing"},
      {kQwen35Moe, {{"num_experts", nullptr}}, "num_experts is missing"},
      {kQwen3Next, {{"head_dim", 30}}, "rotates 7 elements; an even number"},
      {kQwen3Next, {{"linear_num_key_heads", 0}}, "linear_num_key_heads is 0"},
      {kQwen3Next, {{"linear_num_value_heads", 3}}, "linear_num_value_heads is 3, not a multiple"},
      {kQwen3Next, {{"linear_conv_kernel_dim", 0}}, "linear_conv_kernel_dim is 0"},
      {kQwen3Next, {{"num_experts", -1}}, "num_experts is -1"},
      {kQwen3Next,
       {{"num_experts_per_tok", 9}},
       "num_experts_per_tok is 9, more than num_experts = 8"},
      {kQwen3Next, {{"num_experts_per_tok", 0}}, "num_experts_per_tok is 0"},
      {kQwen3Next, {{"moe_intermediate_size", 0}}, "moe_intermediate_size is 0"},
      {kQwen3Next, {{"norm_topk_prob", 2}}, "norm_topk_prob is 2, not true or false"},
      {kQwen3Next, {{"mlp_only_layers", {1.5}}}, "mlp_only_layers is 1.5, not an integer"},
      {kQwen3Next,
       {{"decoder_sparse_step", 0}},
       "decoder_sparse_step is 0, which divides no layer's number"},
      {kQwen3Next,
       {{"full_attention_interval", 0}},
       "full_attention_interval is 0, which divides no layer's number"},
      {kV3, {{"kv_lora_rank", nullptr}}, "kv_lora_rank is missing"},
      {kV3, {{"qk_rope_head_dim", 7}}, "rotates 7 elements"},
      {kV3, {{"n_group", 3}}, "n_group is 3, which does not divide 8 experts"},
      {kV3, {{"topk_group", 5}}, "topk_group is 5, more than n_group = 4"},
      {kV3, {{"topk_group", 1}}, "topk_group is 1, whose groups have fewer than 3 experts"},
      {kV3,
       {{"num_experts_per_tok", 9}},
       "num_experts_per_tok is 9, more than n_routed_experts = 8"},
      {kV2, {{"first_k_dense_replace", -1}}, "first_k_dense_replace is -1, outside 0 to"},
      {kV2,
       {{"moe_layer_freq", 0}},
       "moe_layer_freq is 0, which divides no layer's number; write 1"},
      {kV3, {{"num_nextn_predict_layers", 65}}, "num_nextn_predict_layers is 65, outside"},
      {kKimi, of_linear_attention("kda_layers", {1, 2, 3, 5}), "has layer 6 in 0 of"},
      {kKimi, of_linear_attention("full_attn_layers", {4, 5}), "has layer 5 in 2 of"},
      {kKimi, of_linear_attention("kda_layers", {0}), "kda_layers is 0, outside 1 to 6"},
      {kKimi, of_linear_attention("num_heads", 0), "num_heads is 0"},
      {kKimi,
       {{"layer_types", {full, linear, linear, full, linear, linear}}},
       "layer_types contradicts linear_attn_config's lists"},
      {kKimi, {{"layer_types", {full}}}, "layer_types has 1 entries"},
      {kKimi,
       {{"mlp_layer_types", {"sparse", "sparse", "sparse", "sparse", "sparse", "sparse"}}},
       "first_k_dense_replace is 1, which contradicts mlp_layer_types"},
  };
}

TEST(Refusals, NameTheKeyAndTheValue) {
  std::set<std::string> refused;
  for (const auto& [code, refusals] : {std::pair(StatusCode::kUnimplemented, unserved_values()),
                                       std::pair(StatusCode::kInvalidArgument, wrong_values())}) {
    for (const Refusal& refusal : refusals) {
      SCOPED_TRACE(std::string(refusal.architecture) + " " + refusal.changes.dump());
      json config = testing::small_of(refusal.architecture);
      ASSERT_TRUE(testing::refusal(config).ok()) << "before the change";
      refused.insert(testing::parse(config).family);
      config.update(refusal.changes, /*merge_objects=*/true);
      const Status status = testing::refusal(config);
      EXPECT_EQ(status.code(), code) << status.to_string();
      EXPECT_THAT(status.message(), HasSubstr(refusal.message));
    }
  }
  EXPECT_EQ(refused.size(), families().size()) << "a family without a row";
}

TEST(Refusals, SpareKeysThatChangeNothing) {
  const std::vector<std::pair<std::string_view, json>> spared = {
      {kQwen3, {{"use_qk_norm", true}}},
      {kKimi, {{"mla_use_output_gate", false}}},
      {kKimi, {{"attn_res_block_size", 0}}},
      {kKimi, {{"routed_expert_hidden_size", nullptr}}},
      {kKimi, of_linear_attention("gate_lower_bound", nullptr)},
      {kKimi, of_linear_attention("use_full_rank_gate", false)},
  };
  for (const auto& [architecture, changes] : spared) {
    json config = testing::small_of(architecture);
    config.update(changes, /*merge_objects=*/true);
    EXPECT_TRUE(testing::refusal(config).ok()) << architecture << " " << changes;
  }
}

}  // namespace
}  // namespace heddle::models
