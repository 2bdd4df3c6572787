// SPDX-License-Identifier: Apache-2.0
#include "models/gemma4/gemma4_gguf.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/readable.h"

namespace heddle::models {

namespace {

// The fraction of each head that full layers rotate: the frequencies of the other pairs are divided
// by 1e30.
double rotated_share(GgufTranslation& gguf) {
  constexpr std::string_view kDivisors = "rope_freqs.weight";
  const std::vector<float> divisors = gguf.plain_values(kDivisors);
  if (divisors.empty()) return 1;
  const auto is_none = [](float divisor) { return divisor >= 1e29f; };
  const auto first_none = std::ranges::find_if(divisors, is_none);
  if (!std::all_of(divisors.begin(), first_none, [](float divisor) { return divisor == 1; }) ||
      !std::all_of(first_none, divisors.end(), is_none)) {
    gguf.fail(unimplemented(
        fmt::format("tensor {} has other divisors of rotary frequencies than 1 and 1e30; only "
                    "these are served",
                    checkpoint::readable(kDivisors))));
  }
  return static_cast<double>(first_none - divisors.begin()) / static_cast<double>(divisors.size());
}

// In the metadata the head widths are those of full layers; sliding layers have keys of their own.
void translate_gemma4_heads(GgufTranslation& gguf, const std::vector<bool>& slides) {
  gguf.set("num_attention_heads", gguf.required("attention.head_count"));
  const int64_t full = gguf.required("attention.key_length");
  const int64_t sliding = gguf.integer("attention.key_length_swa").value_or(full);
  gguf.set("global_head_dim", full);
  gguf.set("head_dim", sliding);
  for (const auto& [key, width] :
       {std::pair("attention.value_length", full), std::pair("attention.value_length_swa", sliding),
        std::pair("rope.dimension_count", full), std::pair("rope.dimension_count_swa", sliding)}) {
    const int64_t stored = gguf.integer(key).value_or(width);
    if (stored != width) {
      gguf.refuse(key, fmt::format("{}", stored), fmt::format("only {} is served", width));
    }
  }
  const std::vector<int64_t> heads = gguf.integers_of_layers("attention.head_count_kv");
  for (size_t i = 0; i < heads.size(); ++i) {
    gguf.set(slides[i] ? "num_key_value_heads" : "num_global_key_value_heads", heads[i]);
  }
  const std::vector<bool> own_keys = gguf.layers_with("attn_k.weight");
  const std::vector<bool> own_values = gguf.layers_with("attn_v.weight");
  bool keys_are_values = false;
  for (size_t i = 0; i < slides.size(); ++i) {
    keys_are_values = keys_are_values || (!slides[i] && own_keys[i] && !own_values[i]);
  }
  gguf.set("attention_k_eq_v", keys_are_values);
}

void translate_gemma4_mlps(GgufTranslation& gguf) {
  const std::vector<int64_t> widths = gguf.integers_of_layers("feed_forward_length");
  if (widths.empty()) return;
  gguf.set("intermediate_size", widths.front());
  gguf.set("use_double_wide_mlp", widths.back() == 2 * widths.front());
  gguf.integer("expert_feed_forward_length");
  const int64_t experts = gguf.integer("expert_count").value_or(0);
  gguf.set("enable_moe_block", experts > 0);
  if (experts == 0) return;
  gguf.set("num_experts", experts);
  gguf.set("top_k_experts", gguf.required("expert_used_count"));
  gguf.set("moe_intermediate_size", gguf.required("expert_feed_forward_length"));
  gguf.in_layers({
      {.stored = "ffn_gate_inp", .hub = "router.proj"},
      {.stored = "pre_ffw_norm_2", .hub = "pre_feedforward_layernorm_2"},
      {.stored = "post_ffw_norm_1", .hub = "post_feedforward_layernorm_1"},
      {.stored = "post_ffw_norm_2", .hub = "post_feedforward_layernorm_2"},
  });
  gguf.tensors_in_layers({
      {.stored = "ffn_gate_inp.scale", .hub = "router.scale"},
      {.stored = "ffn_down_exps.scale", .hub = "router.per_expert_scale"},
  });
  add_gguf_experts(gguf, "");
}

void translate_per_layer_inputs(GgufTranslation& gguf) {
  gguf.set("hidden_size_per_layer_input",
           gguf.integer("embedding_length_per_layer_input").value_or(0));
  if (const auto table = gguf.tensor("per_layer_token_embd.weight")) {
    gguf.set("vocab_size_per_layer_input", table->tensor->shape[0]);
  }
  gguf.outside({.stored = "per_layer_token_embd", .hub = "model.embed_tokens_per_layer"});
  gguf.outside({.stored = "per_layer_model_proj", .hub = "model.per_layer_model_projection"});
  gguf.outside({.stored = "per_layer_proj_norm", .hub = "model.per_layer_projection_norm"});
  gguf.in_layers({
      {.stored = "inp_gate", .hub = "per_layer_input_gate"},
      {.stored = "proj", .hub = "per_layer_projection"},
      {.stored = "post_norm", .hub = "post_per_layer_input_norm"},
  });
}

}  // namespace

void translate_gemma4(GgufTranslation& gguf) {
  translate_transformer(gguf, {.architecture = "Gemma4ForCausalLM",
                               .own_heads = true,
                               .own_rope = true,
                               .mlp_norm = "post_attention_norm"});
  gguf.in_layers({
      {.stored = "ffn_norm", .hub = "pre_feedforward_layernorm"},
      {.stored = "post_ffw_norm", .hub = "post_feedforward_layernorm"},
  });
  gguf.tensors_in_layers({{.stored = "layer_output_scale.weight", .hub = "layer_scalar"}});
  gguf.set("hidden_activation", "gelu_pytorch_tanh");
  gguf.set("torch_dtype", "bfloat16");
  gguf.copy_number("final_logit_softcapping", "final_logit_softcapping");
  gguf.copy_integer("attention.shared_kv_layers", "num_kv_shared_layers");
  std::vector<bool> slides = gguf.booleans_of_layers("attention.sliding_window_pattern");
  slides.resize(static_cast<size_t>(gguf.num_layers()));
  gguf.set_layer_kinds("layer_types", slides, "sliding_attention", "full_attention");
  gguf.set("sliding_window", gguf.required("attention.sliding_window"));
  translate_gemma4_heads(gguf, slides);
  translate_gemma4_mlps(gguf);
  translate_per_layer_inputs(gguf);
  const double theta = gguf.number("rope.freq_base").value_or(1e6);
  const double sliding_theta = gguf.number("rope.freq_base_swa").value_or(1e4);
  gguf.set("rope_parameters",
           nlohmann::json{
               {"full_attention",
                {{"rope_type", "proportional"},
                 {"partial_rotary_factor", rotated_share(gguf)},
                 {"rope_theta", theta}}},
               {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", sliding_theta}}}});
}

}  // namespace heddle::models
