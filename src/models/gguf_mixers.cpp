// SPDX-License-Identifier: Apache-2.0
#include "models/gguf_mixers.h"

#include <algorithm>

namespace heddle::models {

namespace {

constexpr auto kNegated = checkpoint::GgufChange::kNegatedExponent;

// The row order of files with tiled value heads, with `width` rows per value head: row r of the
// i-th value head of key head k in the hub is stored at (i, k, r).
quant::RowOrder tiled_heads(int64_t key_heads, int64_t value_heads, int64_t width) {
  return {.middle = value_heads / key_heads,
          .inner = width,
          .group_step = width,
          .middle_step = key_heads * width,
          .inner_step = 1};
}

}  // namespace

void translate_delta_nets(GgufTranslation& gguf, GgufValueHeads order) {
  gguf.set_layer_kinds("layer_types", gguf.layers_with("attn_q.weight"), "full_attention",
                       "linear_attention");
  gguf.integer("full_attention_interval");  // redundant: the layers' tensors show their kinds
  gguf.booleans_of_layers("attention.recurrent_layers");
  const int64_t key_heads = std::max<int64_t>(gguf.required("ssm.group_count"), 1);
  const int64_t value_heads = std::max<int64_t>(gguf.required("ssm.time_step_rank"), 1);
  const int64_t key_dim = gguf.required("ssm.state_size");
  const int64_t value_dim = std::max<int64_t>(gguf.required("ssm.inner_size") / value_heads, 1);
  gguf.set("linear_num_key_heads", key_heads);
  gguf.set("linear_num_value_heads", value_heads);
  gguf.set("linear_key_head_dim", key_dim);
  gguf.set("linear_value_head_dim", value_dim);
  gguf.set("linear_conv_kernel_dim", gguf.required("ssm.conv_kernel"));
  gguf.in_layers({{.stored = "ssm_norm", .hub = "linear_attn.norm"}});
  if (order == GgufValueHeads::kAsInHub || value_heads <= key_heads) {
    gguf.in_layers({
        {.stored = "attn_qkv", .hub = "linear_attn.in_proj_qkv"},
        {.stored = "attn_gate", .hub = "linear_attn.in_proj_z"},
        {.stored = "ssm_beta", .hub = "linear_attn.in_proj_b"},
        {.stored = "ssm_alpha", .hub = "linear_attn.in_proj_a"},
        {.stored = "ssm_conv1d", .hub = "linear_attn.conv1d", .shape = GgufShape::kConvolution},
        {.stored = "ssm_out", .hub = "linear_attn.out_proj"},
    });
    gguf.tensors_in_layers({
        {.stored = "ssm_a", .hub = "linear_attn.A_log", .change = kNegated},
        {.stored = "ssm_dt.bias", .hub = "linear_attn.dt_bias"},
    });
    return;
  }
  const int64_t keys = key_heads * key_dim;  // number of query rows; there are as many key rows
  const int64_t values = value_heads * value_dim;
  const quant::RowOrder wide = tiled_heads(key_heads, value_heads, value_dim);
  const quant::RowOrder narrow = tiled_heads(key_heads, value_heads, 1);
  const auto add_parts = [&](const std::string& stored, const std::string& ending,
                             GgufShape shape) {
    const std::string hub = "linear_attn.";
    gguf.in_layers({
        {.stored = stored, .hub = hub + "q_" + ending, .shape = shape, .rows = {0, keys}},
        {.stored = stored, .hub = hub + "k_" + ending, .shape = shape, .rows = {keys, keys}},
        {.stored = stored,
         .hub = hub + "v_" + ending,
         .order = wide,
         .shape = shape,
         .rows = {2 * keys, values}},
    });
  };
  add_parts("attn_qkv", "proj", GgufShape::kAsStored);
  add_parts("ssm_conv1d", "conv1d", GgufShape::kConvolution);
  gguf.in_layers({
      {.stored = "attn_gate", .hub = "linear_attn.g_proj", .order = wide},
      {.stored = "ssm_beta", .hub = "linear_attn.b_proj", .order = narrow},
      {.stored = "ssm_alpha", .hub = "linear_attn.a_proj", .order = narrow},
      {.stored = "ssm_out", .hub = "linear_attn.out_proj", .columns = wide},
  });
  gguf.tensors_in_layers({
      {.stored = "ssm_a", .hub = "linear_attn.A_log", .order = narrow, .change = kNegated},
      {.stored = "ssm_dt.bias", .hub = "linear_attn.dt_bias", .order = narrow},
  });
}

void add_gguf_mamba2(GgufTranslation& gguf, const std::string& scope) {
  gguf.in_layers({
      {.stored = "ssm_in", .hub = scope + "in_proj"},
      {.stored = "ssm_conv1d", .hub = scope + "conv1d", .shape = GgufShape::kConvolution},
      {.stored = "ssm_norm", .hub = scope + "norm", .shape = GgufShape::kVector},
      {.stored = "ssm_out", .hub = scope + "out_proj"},
  });
  gguf.tensors_in_layers({
      {.stored = "ssm_a", .hub = scope + "A_log", .change = kNegated, .shape = GgufShape::kVector},
      {.stored = "ssm_d", .hub = scope + "D", .shape = GgufShape::kVector},
      {.stored = "ssm_dt.bias", .hub = scope + "dt_bias"},
  });
}

}  // namespace heddle::models
