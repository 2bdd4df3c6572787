// SPDX-License-Identifier: Apache-2.0
// OpRegistry: finds ops by name. The list below has all ops that a model may use, family by family:
// op {inputs} -> output, then attributes. "->" is omitted if an op has one output with the shape of
// its first input.
//
//   attention: `layer` is an index into ForwardContext::kv_layers
//     paged_attention        {q, k, v}         num_kv_heads, head_dim, scale, window, layer
//     paged_attention_sinks  {q, k, v, sinks}  the same
//     attention_to_pages     {q}               the same: keys and values were appended by a node
//                                              with this layer before
//     latent_attention       {q, latent} -> [T, Nq*value_dim]  value_dim, scale, layer
//     absorb_query           {q, weight}       num_heads, key_dim   (attention/latent_projection.h)
//     expand_values          {o, weight}       num_heads, key_dim
//     segment_attention     {q, k, v, segments [T, 2] i32}  head_dim, scale
//   In latent attention all heads of q [T, Nq*D] attend to one row [T, D] per token, whose first
//   value_dim channels are the value. Prefill and decode use the same, absorbed form: on the CPU
//   expanding a prompt's latents to keys and values per head would save about 70% of attention's
//   products at DeepSeek-V3's sizes, but prefill and decode would differ in their bits.
//   absorb_query turns queries per head into queries for latent rows; expand_values turns the
//   output of latent attention into values per head.
//
//   collective:  all_reduce, all_reduce_bits {x}; gather_columns {x [T, n]} -> [T, width]  each
//   elementwise: add, mul {a, b}; sigmoid, gelu, erf_gelu, squared_relu {x}; scale, softcap {x}
//   factor;
//                sigmoid_mul {x, gate}; silu_mul, gelu_mul, erf_gelu_mul {gate_up [T, 2I]};
//                bounded_silu_mul {gate_up} limit
//   embedding:   embedding {ids, table} -> [T, H]
//                weighted_rows {table, rows [T, K] i32, weights [T, K] f32} -> [T, H]
//                place_rows, add_placed_rows {x, rows [T] i32, staged [S, H]} -> [T, H]
//   gemm:        linear {x [T, K], weight [N, K]} -> [T, N]
//                linear_bias {x, weight, bias [N] f32} -> [T, N]
//                adapter_shrink {x, a, slots, scales} -> [T, J] f32   (gemm/adapter_product.h)
//                adapter_expand {y, h, b, parts, slots}               first
//                Both take the first T of at least as many slots.
//   layout:      columns {x} start, width; concat {a, b}; logit_rows {x} -> [R, H];
//                join_rows {x [n*T, H]} count -> [T, n*H]
//
//   linear attention: `layer` is an index into ForwardContext::state_layers
//     causal_conv1d     {x, weight}                          layer; silu (0: no activation)
//     causal_conv1d_bias  {x, weight, bias}                  the same
//     gated_delta_rule  {qkv, a, b, neg_exp_a_log, dt_bias} -> [T, Nv*Dv]
//                                                num_key_heads, key_dim, value_dim, layer;
//                                                beta_scale (1 where it is left out)
//     decayed_linear_attention  {vkq, a, decay, dt_bias, skip} -> [T, Nv*Dv]
//                                                num_key_heads, key_dim, value_dim, layer,
//                                                dt_low, dt_high
//     constant_decay_attention  {vkq, decay} -> [T, Nv*Dv]
//                                                num_key_heads, key_dim, value_dim, layer
//     selective_scan    {x, dt, b, c, z, neg_exp_a_log, dt_bias, skip}   layer
//     gated_rms_norm, sigmoid_gated_rms_norm  {x, z, weight}  epsilon; group_width, gate_first
//   The decay of gated_delta_rule is one per key channel if a and dt_bias are key_dim times as wide
//   as b.
//
//   moe:
//     routed_moe            {x, router_logits, w13, w2}                     top_k, normalize
//     routed_moe_bias       {x, router_logits, w13, w2, w13_bias, w2_bias}  top_k, normalize,
//                                                             swiglu_limit, swiglu_alpha
//     routed_moe_scaled     {x, router_logits, w13, w2, expert_scales}      top_k, normalize
//     routed_moe_scored     {x, router_logits, w13, w2}                     top_k, normalize,
//                                          sigmoid, groups, groups_kept, group_terms, scale;
//                                          sum_epsilon (1e-20 where it is left out);
//                                          nearness (only for a sparsemixer)
//     routed_moe_corrected  {x, router_logits, w13, w2, correction}         the same
//     first_expert (only for ranks): w13 and w2 are of the experts from there on, the others add
//     nothing; with terms = 1 -> [T, top_k * H], the terms of the sum apart
//     all but the second: geglu (1: GELU for SiLU), bounded_swiglu (a limit), squared_relu (1: w13
//     is [E, I, H], without gates), or neither
//
//   norm: rms_norm {x, weight}  epsilon; add_rms_norm {residual, x, weight} -> {residual, y}
//         layer_norm {x, weight}, layer_norm_bias {x, weight, bias}  epsilon
//   rope: rope {x, positions, inverse_frequencies}                       head_dim, factor
//         qk_norm_rope {x, norm_weight, positions, inverse_frequencies}  the same, epsilon
//         rope_channels {x, positions, inverse_frequencies}    the same, first_channel, interleaved
//         rope_axes {x, positions [T, A] i32, inverse_frequencies, axes [R/2] i32}
//                                                              head_dim, factor
//         position_scale {positions} -> [T, 1] f32                       beta, length
//
// Threading: immutable after construction.
#pragma once

#include <map>
#include <string_view>

#include "ops/op_def.h"

namespace heddle::ops {

class OpRegistry {
 public:
  // Aborts if a name exists already or an op has no `infer`.
  void add(std::span<const OpDef> ops);

  [[nodiscard]] const OpDef* find(std::string_view name) const;  // null if there is none

  [[nodiscard]] const std::map<std::string_view, const OpDef*>& all() const { return by_name_; }

 private:
  std::map<std::string_view, const OpDef*> by_name_;
};

// All ops of this build. A new family is declared below and added in registry.cpp.
const OpRegistry& builtin_ops();

std::span<const OpDef> adapter_ops();
std::span<const OpDef> attention_ops();
std::span<const OpDef> collective_ops();
std::span<const OpDef> elementwise_ops();
std::span<const OpDef> embedding_ops();
std::span<const OpDef> weighted_rows_ops();
std::span<const OpDef> place_rows_ops();
std::span<const OpDef> gemm_ops();
std::span<const OpDef> layout_ops();
std::span<const OpDef> linear_attention_ops();
std::span<const OpDef> moe_ops();
std::span<const OpDef> norm_ops();
std::span<const OpDef> layer_norm_ops();
std::span<const OpDef> rope_ops();

}  // namespace heddle::ops
