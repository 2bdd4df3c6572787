// SPDX-License-Identifier: Apache-2.0
#include "models/zamba2/zamba2_mixer.h"

#include <cmath>

#include <fmt/format.h>

#include "models/layers/linear.h"

namespace heddle::models {

using checkpoint::CutPart;
using graph::GraphRootScope;
using graph::GraphScope;
using graph::Value;

namespace {

constexpr const char* kZamba2MambaNorm = "input_layernorm";
constexpr const char* kZamba2Projections[] = {"q", "k", "v"};

}  // namespace

std::string SharedBlockMixer::shared_scope() const { return fmt::format("shared.{}.", use_.block); }

std::vector<int64_t> SharedBlockMixer::widths() const {
  const int64_t keys = config_.num_kv_heads * config_.head_dim;
  return {config_.num_heads * config_.head_dim, keys, keys};
}

Value SharedBlockMixer::attention(graph::GraphBuilder& g, Value both, const LayerInputs& inputs,
                                  const CacheLayer& cache) const {
  std::vector<Value> qkv;
  {
    const GraphRootScope shared(g, shared_scope());
    both = g.rms_norm(both, "input_layernorm", config_.epsilon);
    qkv = g.split(linear(g, both, "qkv_proj"), widths());
  }
  if (qkv.size() != 3) return {};
  if (config_.adapts_attention) {
    const int64_t rank = config_.adapter_rank;
    const std::vector<Value> low = g.split(linear(g, both, "qkv_adapter"), {rank, rank, rank});
    if (low.size() != 3) return {};
    for (size_t i = 0; i < 3; ++i) {
      qkv[i] = g.add(qkv[i], linear(g, low[i], std::string(kZamba2Projections[i]) + "_adapter"));
    }
  }
  for (size_t i = 0; i < 2 && config_.rotates; ++i) {
    qkv[i] = g.rope(qkv[i], inputs.positions, inputs.rope_tables[0], config_.head_dim,
                    config_.rope_factor);
  }
  // Scores are scaled for half the head width: heads are twice as wide as those of the hidden size.
  return g.apply1("paged_attention", qkv,
                  {{"num_kv_heads", static_cast<double>(config_.num_kv_heads)},
                   {"head_dim", static_cast<double>(config_.head_dim)},
                   {"scale", 1 / std::sqrt(static_cast<double>(config_.head_dim) / 2)},
                   {"window", 0},
                   {"layer", static_cast<double>(cache.pages)}});
}

Value SharedBlockMixer::build(graph::GraphBuilder& g, Value x, const LayerInputs& inputs,
                              const CacheLayer& cache) const {
  const Value o = attention(g, g.concat(x, inputs.own.front()), inputs, cache);
  if (!o.valid()) return {};
  Value f, gate_up, t;
  {
    const GraphRootScope shared(g, shared_scope());
    f = g.rms_norm(linear(g, o, "o_proj"), "pre_ff_layernorm", config_.epsilon);
    gate_up = linear(g, f, "gate_up");
  }
  gate_up = g.add(gate_up, linear(g, linear(g, f, "gate_up_adapter_in"), "gate_up_adapter"));
  {
    const GraphRootScope shared(g, shared_scope());
    t = linear(g, g.gated("erf_gelu_mul", gate_up), "down");
  }
  const Value u = g.rms_norm(g.add(x, linear(g, t, "linear")), kZamba2MambaNorm, config_.epsilon);
  const GraphScope scope(g, mamba_.scope());
  return mamba_.build(g, u, inputs, cache);
}

void SharedBlockMixer::add_weights(std::vector<checkpoint::WeightSpec>& specs,
                                   const std::string& ours, const std::string& hub) const {
  const int64_t H = config_.hidden_size;
  const int64_t I = config_.intermediate_size;
  const int64_t rank = config_.adapter_rank;
  const std::string decoder = hub + "mamba_decoder.";
  // "model.layers.7." becomes "model.layers."
  const std::string layers = hub.substr(0, hub.rfind('.', hub.size() - 2) + 1);
  const std::string block = fmt::format("{}{}.shared_transformer.", layers, use_.first_layer);
  if (use_.is_first) {
    const size_t before = specs.size();
    add_shared_weights(specs, block);
    for (size_t i = before; i < specs.size(); ++i) specs[i].num_uses = use_.num_uses;
  }
  add_linear_weights(specs, ours + "linear", {{hub + "linear", H}}, H);
  add_norm_weight(specs, ours + kZamba2MambaNorm, decoder + "input_layernorm.weight", H, 0);
  mamba_.add_weights(specs, ours + std::string(mamba_.scope()), decoder + "mamba.");
  const auto adapter = [&](const std::string& module, int which) {
    return fmt::format("{}{}_adapter_list.{}.{}", block, module, use_.number, which);
  };
  const std::string feed_forward = "feed_forward.gate_up_proj";
  add_linear_weights(specs, ours + "gate_up_adapter_in", {{adapter(feed_forward, 0), rank}}, H);
  add_linear_weights(specs, ours + "gate_up_adapter", {{adapter(feed_forward, 1), 2 * I}}, rank,
                     rows_cut({{I}, {I}}));
  if (!config_.adapts_attention) return;
  std::vector<HubLinear> low;
  for (size_t i = 0; i < 3; ++i) {
    const std::string module = fmt::format("self_attn.linear_{}", kZamba2Projections[i]);
    low.push_back({adapter(module, 0), rank});
    const CutPart heads{widths()[i], config_.head_dim,
                        i == 0 ? checkpoint::PartCut::kEqual : checkpoint::PartCut::kCopied};
    add_linear_weights(specs, fmt::format("{}{}_adapter", ours, kZamba2Projections[i]),
                       {{adapter(module, 1), widths()[i]}}, rank, rows_cut({heads}));
  }
  add_linear_weights(specs, ours + "qkv_adapter", low, 2 * H);
}

void SharedBlockMixer::add_shared_weights(std::vector<checkpoint::WeightSpec>& specs,
                                          const std::string& hub) const {
  const int64_t H = config_.hidden_size;
  const int64_t I = config_.intermediate_size;
  const int64_t D = config_.head_dim;
  const std::string ours = shared_scope();
  constexpr auto kCopied = checkpoint::PartCut::kCopied;
  const std::vector<int64_t> parts = widths();
  add_norm_weight(specs, ours + "input_layernorm", hub + "input_layernorm.weight", 2 * H, 0);
  add_linear_weights(specs, ours + "qkv_proj",
                     {{hub + "self_attn.q_proj", parts[0]},
                      {hub + "self_attn.k_proj", parts[1]},
                      {hub + "self_attn.v_proj", parts[2]}},
                     2 * H,
                     rows_cut({{parts[0], D}, {parts[1], D, kCopied}, {parts[2], D, kCopied}}));
  add_linear_weights(specs, ours + "o_proj", {{hub + "self_attn.o_proj", H}}, parts[0],
                     columns_cut({{parts[0], D}}));
  add_norm_weight(specs, ours + "pre_ff_layernorm", hub + "pre_ff_layernorm.weight", H, 0);
  add_linear_weights(specs, ours + "gate_up", {{hub + "feed_forward.gate_up_proj", 2 * I}}, H,
                     rows_cut({{I}, {I}}));
  add_linear_weights(specs, ours + "down", {{hub + "feed_forward.down_proj", H}}, I,
                     columns_cut({{I}}));
}

void SharedBlockMixer::derive_weights(const checkpoint::LoadedWeights& weights,
                                      const std::string& ours, DerivedWeights& derived) const {
  mamba_.derive_weights(weights, ours + std::string(mamba_.scope()), derived);
}

CacheLayer SharedBlockMixer::add_layer(CacheNeeds& needs) const {
  CacheLayer layer = mamba_.add_layer(needs);
  layer.pages = needs.add_kv_layer(
      {.num_heads = config_.num_kv_heads, .head_dim = config_.head_dim}, /*window=*/0);
  return layer;
}

}  // namespace heddle::models
