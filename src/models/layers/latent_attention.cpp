// SPDX-License-Identifier: Apache-2.0
#include "models/layers/latent_attention.h"

#include <algorithm>
#include <cmath>

#include "checkpoint/config_reader.h"
#include "checkpoint/convert.h"
#include "models/layers/linear.h"
#include "models/layers/rope_table.h"
#include "quant/dequantise.h"

namespace heddle::models {

using graph::Value;

namespace {

// Epsilon of the two inner norms: transformers' classes never pass rms_norm_eps to them.
constexpr double kInnerEpsilon = 1e-6;

// The hub's name of the projection from latents to keys and values.
constexpr std::string_view kProjection = "kv_b_proj";

// Dequantises a weight [N, K] to fp32 or, in a 16-bit run, to bf16.
Tensor dense(const TensorView& weight) {
  const int64_t K = weight.shape[1];
  const auto rounds = [](const auto& part) { return part.packed.may_round_x; };
  const DType dtype =
      std::ranges::any_of(weight.packed->parts, rounds) ? DType::kBf16 : DType::kF32;
  Tensor result(weight.shape, dtype);
  std::vector<float> row(static_cast<size_t>(K));
  for (const quant::PackedWeight::Part& part : weight.packed->parts) {
    for (int64_t i = 0; i < part.num_rows; ++i) {
      quant::dequantise_row(part.packed, i, 0, K, row.data());
      auto* target =
          static_cast<std::byte*>(result.view().data) + bytes_of(dtype, (part.first_row + i) * K);
      checkpoint::convert_elements(row.data(), DType::kF32, target, dtype, K);
    }
  }
  return result;
}

}  // namespace

LatentAttention::LatentAttention(const checkpoint::ModelConfig& config)
    : latent_(*config.latent_attention),
      hidden_size_(config.hidden_size),
      num_heads_(config.num_attention_heads),
      rope_factor_(models::rope_factor({config.rope, config.head_dim})),
      scales_queries_(config.rope.query_scale_beta != 0),
      scale_(1.0 /
             std::sqrt(static_cast<double>(latent_.qk_nope_head_dim + latent_.qk_rope_head_dim))) {
  if (latent_.rotates) scale_ *= checkpoint::yarn_score_factor(config.rope);
}

Value LatentAttention::build(graph::GraphBuilder& g, Value x, const LayerInputs& inputs,
                             const CacheLayer& cache) const {
  const int64_t Dn = latent_.qk_nope_head_dim;
  const int64_t Dr = latent_.qk_rope_head_dim;
  const int64_t C = latent_.kv_lora_rank;
  const auto rotate = [&](Value heads, int64_t head_dim) {
    if (!latent_.rotates) return heads;
    return g.rope_channels(heads, inputs.positions, inputs.rope_tables.front(), head_dim,
                           head_dim - Dr, latent_.rope_interleave, rope_factor_);
  };
  const int64_t heads_here = checkpoint::own_range({num_heads_}, g.rank()).count;
  const int64_t queries = latent_.q_lora_rank > 0 ? latent_.q_lora_rank : heads_here * (Dn + Dr);
  const std::vector<Value> in = g.split(linear(g, x, "in_proj"), {queries, C, Dr});
  if (in.size() != 3) return {};
  Value q = in[0];
  if (latent_.q_lora_rank > 0) q = linear(g, g.rms_norm(q, "q_a_norm", kInnerEpsilon), "q_b_proj");
  q = rotate(q, Dn + Dr);
  if (scales_queries_) q = g.mul(q, inputs.query_scale);
  const Value c = g.rms_norm(in[1], "kv_a_norm", kInnerEpsilon);
  const Value k_pe = rotate(in[2], Dr);

  const ops::Attrs heads{{"num_heads", static_cast<double>(heads_here)},
                         {"key_dim", static_cast<double>(Dn)}};
  const Value absorbed = head_products(g, "absorb_query", q, kProjection, heads);
  const Value o = g.apply1("latent_attention", {absorbed, g.concat(c, k_pe)},
                           {{"value_dim", static_cast<double>(C)},
                            {"scale", scale_},
                            {"layer", static_cast<double>(cache.pages)}});
  return summed_linear(g, head_products(g, "expand_values", o, kProjection, heads), "o_proj",
                       hidden_size_);
}

void LatentAttention::derive_weights(const checkpoint::LoadedWeights& weights,
                                     const std::string& ours, DerivedWeights& derived) const {
  const TensorView& stored = weights[ours + std::string(kProjection)];
  if (stored.dtype != DType::kPacked) return;
  // One product reads the weight's rows, another its columns; packed rows support only the first.
  derived.emplace_back(ours + std::string(kProjection) + std::string(kDenseEnding), dense(stored));
}

CacheLayer LatentAttention::add_layer(CacheNeeds& needs) const {
  const KvShape shape{
      .num_heads = 1, .head_dim = latent_.kv_lora_rank + latent_.qk_rope_head_dim, .value_dim = 0};
  return {.pages = needs.add_kv_layer(shape, /*window=*/0)};
}

// GGUF files store the key part and the value part of this projection separately, the key part
// transposed.
checkpoint::Assembly LatentAttention::split_projection(const std::string& hub) const {
  const int64_t C = latent_.kv_lora_rank;
  const int64_t keys = latent_.qk_nope_head_dim, values = latent_.v_head_dim;
  checkpoint::HubPiece of_keys{.tensor = {hub + "k_b_proj.weight", {num_heads_, C, keys}},
                               .form = checkpoint::RowForm::kInputMajor};
  checkpoint::HubPiece of_values{.tensor = {hub + "v_b_proj.weight", {num_heads_, values, C}}};
  for (int64_t head = 0; head < num_heads_; ++head) {
    const int64_t first = head * (keys + values);
    of_keys.runs.push_back({.source_row = head * keys, .target_row = first, .num_rows = keys});
    of_values.runs.push_back(
        {.source_row = head * values, .target_row = first + keys, .num_rows = values});
  }
  return {std::move(of_keys), std::move(of_values)};
}

void LatentAttention::add_weights(std::vector<checkpoint::WeightSpec>& specs,
                                  const std::string& ours, const std::string& hub) const {
  const int64_t H = hidden_size_;
  const int64_t C = latent_.kv_lora_rank;
  const bool low_rank = latent_.q_lora_rank > 0;
  const int64_t query_dim = latent_.qk_nope_head_dim + latent_.qk_rope_head_dim;
  const int64_t latent_rows = C + latent_.qk_rope_head_dim;
  // Every rank has the whole latents.
  const auto in_cut =
      low_rank
          ? checkpoint::WeightCut()
          : rows_cut({{query_rows(), query_dim}, {latent_rows, 1, checkpoint::PartCut::kWhole}});
  // One product of x: [queries, or their latent | latent | shared key part].
  add_linear_weights(specs, ours + "in_proj",
                     {{hub + (low_rank ? "q_a_proj" : "q_proj"), query_rows()},
                      {hub + "kv_a_proj_with_mqa", latent_rows}},
                     H, in_cut);
  if (low_rank) {
    add_norm_weight(specs, ours + "q_a_norm", hub + "q_a_layernorm.weight", latent_.q_lora_rank, 0);
    add_linear_weights(specs, ours + "q_b_proj", {{hub + "q_b_proj", query_width()}},
                       latent_.q_lora_rank, rows_cut({{query_width(), query_dim}}));
  }
  add_norm_weight(specs, ours + "kv_a_norm", hub + "kv_a_layernorm.weight", C, 0);
  const int64_t kv_dim = latent_.qk_nope_head_dim + latent_.v_head_dim;
  const int64_t value_width = num_heads_ * latent_.v_head_dim;
  add_linear_weights(specs, ours + std::string(kProjection),
                     {{hub + "kv_b_proj", num_heads_ * kv_dim}}, C,
                     rows_cut({{num_heads_ * kv_dim, kv_dim}}));
  specs.back().packing = checkpoint::Packing::kColumns;
  specs.back().alternatives.push_back(split_projection(hub));
  add_linear_weights(specs, ours + "o_proj", {{hub + "o_proj", H}}, value_width,
                     columns_cut({{value_width, latent_.v_head_dim}}));
}

void read_latent_attention(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config) {
  using checkpoint::kHeadDim;
  checkpoint::LatentAttentionConfig latent;
  if (reader.has("q_lora_rank")) {
    latent.q_lora_rank = reader.integer("q_lora_rank", std::nullopt, checkpoint::kWidth);
  }
  latent.kv_lora_rank = reader.integer("kv_lora_rank", std::nullopt, {1, 8192});
  latent.qk_nope_head_dim = reader.integer("qk_nope_head_dim", std::nullopt, kHeadDim);
  latent.qk_rope_head_dim = reader.integer("qk_rope_head_dim", std::nullopt, kHeadDim);
  latent.v_head_dim = reader.integer("v_head_dim", std::nullopt, kHeadDim);
  latent.rope_interleave = reader.boolean("rope_interleave", true);
  config.latent_attention = latent;
  config.head_dim = latent.qk_rope_head_dim;
}

}  // namespace heddle::models
