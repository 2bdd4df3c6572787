// SPDX-License-Identifier: Apache-2.0
// Qwen3-Next: a hybrid of gated delta networks and gated attention (layers/gated_hybrid.h); all
// feed-forward blocks are mixtures of experts with a shared one, unless the config says otherwise.
//
// All norms but the one inside the delta network are zero-centred: loaded as 1 + w.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "checkpoint/config_reader.h"
#include "models/gguf_mixers.h"
#include "models/layers/decoder.h"
#include "models/layers/expert_config.h"
#include "models/layers/gated_hybrid.h"
#include "models/model.h"

namespace heddle::models {

namespace {

void read_qwen3_next_config(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config) {
  read_gated_hybrid(reader, config);
  const std::string_view count = reader.spelling("num_experts", "num_local_experts");
  read_stepped_experts(reader, config,
                       {.count = {count, 512},
                        .per_token = {"num_experts_per_tok", 10},
                        .width = {"moe_intermediate_size", 512}});
  const int64_t shared =
      reader.integer("shared_expert_intermediate_size", 512, {0, checkpoint::kWidth.high});
  if (!config.moe) return;
  config.moe->shared_intermediate_size = shared;
  config.moe->gated_shared_expert = true;
  config.moe->normalize_top_k = reader.boolean("norm_topk_prob", true);
}

std::unique_ptr<const Model> create_qwen3_next(const checkpoint::ModelConfig& config) {
  // The multi-token-prediction head is a draft model; a plain forward pass does not use it.
  return make_decoder(config, {.norm_offset = 1, .ignored_prefixes = {"mtp."}},
                      gated_hybrid_layers(config));
}

// The converter separates what the hub interleaves by key head, except ssm_ba, stores -exp(A_log),
// and adds 1 to the weights of zero-centred norms.
void translate_qwen3_next(GgufTranslation& gguf) {
  constexpr auto kOneAdded = checkpoint::GgufChange::kOneAdded;
  translate_transformer(gguf, {.architecture = "Qwen3NextForCausalLM",
                               .norms = kOneAdded,
                               .mlp_norm = "post_attention_norm"});
  translate_experts(gguf);
  translate_shared_expert(gguf);
  translate_delta_nets(gguf, GgufValueHeads::kAsInHub);
  // Each key head has the b rows of its value heads, then their a rows.
  const int64_t value_heads = std::max<int64_t>(gguf.required("ssm.time_step_rank"), 1);
  const int64_t each = value_heads / std::max<int64_t>(gguf.required("ssm.group_count"), 1);
  const quant::RowOrder b{.inner = each, .group_step = 2 * each, .inner_step = 1};
  quant::RowOrder a = b;
  a.first = each;
  const GgufRows half{.count = value_heads};
  gguf.in_layers({
      {.stored = "ssm_ba", .hub = "linear_attn.in_proj_b", .order = b, .rows = half},
      {.stored = "ssm_ba", .hub = "linear_attn.in_proj_a", .order = a, .rows = half},
  });
}

}  // namespace

Family qwen3_next() {
  return {.name = "Qwen3-Next",
          .architectures = {"Qwen3NextForCausalLM"},
          .model_types = {{"qwen3_next", "Qwen3NextForCausalLM"}},
          .read_config = read_qwen3_next_config,
          .create = create_qwen3_next,
          .create_head = gated_hybrid_head,
          .gguf = {{"qwen3next", translate_qwen3_next}}};
}

}  // namespace heddle::models
