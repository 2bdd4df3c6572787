// SPDX-License-Identifier: Apache-2.0
#include "models/gguf_translation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/config_reader.h"
#include "checkpoint/readable.h"

namespace heddle::models {

namespace {

using checkpoint::GgufChange;
using checkpoint::GgufModel;
using checkpoint::readable;

// Keys of any architecture that change what a model computes; 0 changes nothing.
constexpr std::string_view kChangingKeys[] = {
    "logit_scale",
    "embedding_scale",
    "residual_scale",
    "attention.scale",
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "attention.sliding_window",
    "attention.q_lora_rank",
    "attention.kv_lora_rank",
    "attention.temperature_length",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "expert_count",
    "expert_shared_count",
    "expert_gating_func",
    "expert_weights_scale",
    "leading_dense_block_count",
    "nextn_predict_layers",
    "ssm.conv_kernel",
    "rope.scaling.yarn_log_multiplier",
    "rope.scale_linear",
};

// Llama 3.1 and later store what divides each frequency instead of the rule (rope_type llama3).
constexpr std::string_view kRopeFactors = "rope_freqs.weight";

// A shape of another rank stays as it is: loading says what does not fit.
Shape hub_shape(const Shape& stored, GgufShape shape) {
  if (shape == GgufShape::kOneRow && stored.rank() == 1) return {1, stored[0]};
  if (shape == GgufShape::kConvolution && stored.rank() == 2) return {stored[0], 1, stored[1]};
  return stored;
}

std::vector<float> floats_of(const GgufModel::Stored& stored) {
  std::vector<float> values(static_cast<size_t>(stored.tensor->shape.num_elements()));
  std::memcpy(values.data(), stored.data, values.size() * sizeof(float));
  return values;
}

// The number by which the rule divides the frequency of pair i of `width` / 2.
double stretched_divisor(double theta, int64_t width, size_t i, double factor) {
  constexpr double kLow = 1;
  constexpr double kHigh = 4;
  constexpr double kOriginal = 8192;
  const double frequency =
      std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(width));
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < kOriginal / kHigh) return 1;
  if (wavelength > kOriginal / kLow) return factor;
  const double kept = (kOriginal / wavelength - kLow) / (kHigh - kLow);
  return 1 / ((1 - kept) / factor + kept);
}

// All published files follow the rule with the same constants but for the factor, which is the
// largest divisor.
void translate_rope_factors(GgufTranslation& gguf, const GgufModel::Stored& stored, double theta,
                            int64_t width) {
  const bool is_plain =
      stored.tensor->type->dtype == DType::kF32 && stored.tensor->shape.num_elements() == width / 2;
  const std::vector<float> divisors = is_plain ? floats_of(stored) : std::vector<float>();
  const double factor =
      divisors.empty() ? 0 : static_cast<double>(*std::ranges::max_element(divisors));
  bool follows = is_plain && factor >= 1;
  for (size_t i = 0; follows && i < divisors.size(); ++i) {
    const double expected = stretched_divisor(theta, width, i, factor);
    follows = std::abs(static_cast<double>(divisors[i]) - expected) <= 1e-4 * expected;
  }
  if (!follows) {
    gguf.fail(unimplemented(fmt::format(
        "tensor {} has other divisors of rotary frequencies than the rule of rope_type llama3; "
        "only these are served",
        readable(kRopeFactors))));
    return;
  }
  gguf.set("rope_scaling", nlohmann::json{{"rope_type", "llama3"},
                                          {"factor", factor},
                                          {"low_freq_factor", 1.0},
                                          {"high_freq_factor", 4.0},
                                          {"original_max_position_embeddings", 8192}});
  gguf.leave_out(std::string(kRopeFactors));
}

// Control tokens by which chats end a turn, where the metadata names another end.
constexpr std::string_view kTurnEnds[] = {"<|im_end|>",    "<|eot_id|>",    "<|eom_id|>",
                                          "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",
                                          "<|call|>"};

void translate_ends(GgufTranslation& gguf, const checkpoint::GgufMetadata& metadata) {
  std::set<int64_t> ends;
  for (const char* key : {"eos", "eot", "eom"}) {
    const auto id = metadata.integer(fmt::format("tokenizer.ggml.{}_token_id", key));
    if (!id.ok()) return gguf.fail(id.status());
    if (*id) ends.insert(**id);
  }
  const auto tokens = metadata.texts("tokenizer.ggml.tokens");
  const auto types = metadata.integers("tokenizer.ggml.token_type");
  if (!tokens.ok()) return gguf.fail(tokens.status());
  if (!types.ok()) return gguf.fail(types.status());
  constexpr int64_t kControl = 3;
  const size_t count = *tokens && *types ? std::min((*tokens)->size(), (*types)->size()) : 0;
  for (size_t id = 0; id < count; ++id) {
    if ((**types)[id] != kControl) continue;
    if (std::ranges::find(kTurnEnds, (**tokens)[id]) != std::end(kTurnEnds)) {
      ends.insert(static_cast<int64_t>(id));
    }
  }
  if (!ends.empty()) gguf.set("eos_token_id", std::vector<int64_t>(ends.begin(), ends.end()));
}

void translate_rope(GgufTranslation& gguf, int64_t head_dim) {
  const double theta = gguf.number("rope.freq_base").value_or(10000);
  gguf.set("rope_theta", theta);
  const int64_t width = gguf.integer("rope.dimension_count").value_or(head_dim);
  if (width != head_dim) {
    gguf.set("partial_rotary_factor", static_cast<double>(width) / static_cast<double>(head_dim));
  }
  const std::string type = gguf.text("rope.scaling.type").value_or("none");
  const double factor = gguf.number("rope.scaling.factor").value_or(1);
  const std::optional<int64_t> original = gguf.integer("rope.scaling.original_context_length");
  const double attention = gguf.number("rope.scaling.attn_factor").value_or(1);
  if (type != "none" && attention != 1) {
    gguf.refuse("rope.scaling.attn_factor", fmt::format("{}", attention), "only 1 is served");
  }
  if (type == "linear" || type == "yarn") {
    nlohmann::json scaling = {{"rope_type", type}, {"factor", factor}};
    if (original && type == "yarn") scaling["original_max_position_embeddings"] = *original;
    gguf.set("rope_scaling", std::move(scaling));
  } else if (type != "none") {
    gguf.refuse("rope.scaling.type", readable(type), "served are none, linear and yarn");
  }
  if (const auto stored = gguf.tensor(kRopeFactors)) {
    translate_rope_factors(gguf, *stored, theta, width);
  }
}

}  // namespace

std::string GgufTranslation::full_key(std::string_view key) {
  std::string full = fmt::format("{}.{}", architecture_, key);
  asked_for_.insert(full);
  return full;
}

template <typename T>
std::optional<T> GgufTranslation::checked(Result<std::optional<T>> value) {
  if (value.ok()) return *value;
  fail(value.status());
  return std::nullopt;
}

std::optional<int64_t> GgufTranslation::integer(std::string_view key) {
  return checked(model_.metadata().integer(full_key(key)));
}

std::optional<double> GgufTranslation::number(std::string_view key) {
  return checked(model_.metadata().number(full_key(key)));
}

std::optional<std::string> GgufTranslation::text(std::string_view key) {
  const auto value = checked(model_.metadata().text(full_key(key)));
  return value ? std::optional<std::string>(*value) : std::nullopt;
}

int64_t GgufTranslation::required(std::string_view key) {
  const std::optional<int64_t> value = integer(key);
  if (!value) {
    fail(
        data_loss(fmt::format("the metadata has no {}; download the file again, or convert the "
                              "model again",
                              readable(full_key(key)))));
  }
  return value.value_or(1);
}

std::optional<int64_t> GgufTranslation::same_in_all_layers(std::string_view key) {
  const auto values = checked(model_.metadata().integers(full_key(key)));
  if (!values || values->empty()) return std::nullopt;
  if (std::ranges::adjacent_find(*values, std::ranges::not_equal_to()) != values->end()) {
    refuse(key,
           fmt::format("{} in some layers and {} in others", values->front(),
                       *std::ranges::find_if(
                           *values, [&](int64_t value) { return value != values->front(); })),
           "only one value for all layers is served");
  }
  return values->front();
}

void GgufTranslation::copy_integer(std::string_view key, std::string_view hub_key) {
  if (const auto value = integer(key)) set(hub_key, *value);
}

void GgufTranslation::copy_number(std::string_view key, std::string_view hub_key) {
  if (const auto value = number(key)) set(hub_key, *value);
}

void GgufTranslation::refuse(std::string_view key, std::string_view value,
                             std::string_view remedy) {
  fail(unimplemented(fmt::format("{} is {}; {}", full_key(key), value, remedy)));
}

int64_t GgufTranslation::num_layers() {
  return std::clamp<int64_t>(required("block_count"), 0, checkpoint::kLayers.high);
}

void GgufTranslation::in_layers(std::span<const GgufModule> modules) {
  for (const GgufModule& module : modules) {
    for (int64_t layer = 0; layer < num_layers(); ++layer) {
      add_module(module, fmt::format("blk.{}.{}", layer, module.stored),
                 fmt::format("model.layers.{}.{}", layer, module.hub));
    }
  }
}

void GgufTranslation::outside(const GgufModule& module) {
  add_module(module, std::string(module.stored), std::string(module.hub));
}

void GgufTranslation::add_module(const GgufModule& module, const std::string& stored,
                                 const std::string& hub) {
  for (const std::string_view ending : {".weight", ".bias"}) {
    const std::string name = stored + std::string(ending);
    const std::optional<GgufModel::Stored> found = model_.find(name);
    if (!found) continue;
    const Shape& shape = found->tensor->shape;
    const size_t mark = hub.find('#');
    if (mark == std::string::npos) {
      add({.hub = hub + std::string(ending),
           .stored = name,
           .shape = hub_shape(shape, module.shape),
           .order = module.order,
           .change = module.change});
      continue;
    }
    const bool is_matrix = ending == ".weight";
    if (shape.rank() != (is_matrix ? 3 : 2)) {
      if (is_matrix) {
        fail(data_loss(fmt::format("tensor {} is {}; that of all experts has three dimensions",
                                   readable(name), shape.to_string())));
      }
      continue;
    }
    const int64_t num_rows = is_matrix ? shape[1] : 1;
    for (int64_t expert = 0; expert < shape[0]; ++expert) {
      std::string of_expert = hub;
      of_expert.replace(mark, 1, std::to_string(expert));
      add({.hub = of_expert + std::string(ending),
           .stored = name,
           .shape = is_matrix ? Shape{shape[1], shape[2]} : Shape{shape[1]},
           .order = {.first = expert * num_rows}});
    }
  }
}

std::vector<std::string> GgufTranslation::unread_keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : model_.metadata().values()) {
    if (key.starts_with(architecture_ + ".") && !asked_for_.contains(key)) {
      keys.push_back(readable(key));
    }
  }
  return keys;
}

Status GgufTranslation::finish() {
  for (const std::string_view key : kChangingKeys) {
    if (asked_for_.contains(fmt::format("{}.{}", architecture_, key))) continue;
    const std::optional<double> value = number(key);
    if (value.value_or(0) != 0) {
      refuse(key, fmt::format("{}", *value), "the family is served without it");
    }
  }
  return status_;
}

quant::RowOrder paired_halves(int64_t head_dim) {
  return {.middle = 2,
          .inner = head_dim / 2,
          .group_step = head_dim,
          .middle_step = 1,
          .inner_step = 2};
}

void translate_transformer(GgufTranslation& gguf, const GgufTransformer& transformer) {
  gguf.set("architectures", nlohmann::json::array({std::string(transformer.architecture)}));
  const auto table = gguf.tensor("token_embd.weight");
  if (table && table->tensor->shape.rank() == 2) gguf.set("vocab_size", table->tensor->shape[0]);
  if (!table) {
    gguf.fail(data_loss(
        "the file has no tensor \"token_embd.weight\": a vocabulary, or a part of a model; "
        "download the model's own file"));
  }
  gguf.set("tie_word_embeddings", !gguf.tensor("output.weight").has_value());
  const int64_t hidden_size = gguf.required("embedding_length");
  const int64_t num_heads = gguf.same_in_all_layers("attention.head_count").value_or(1);
  gguf.set("hidden_size", hidden_size);
  gguf.set("num_hidden_layers", gguf.required("block_count"));
  gguf.set("num_attention_heads", num_heads);
  gguf.set("num_key_value_heads",
           gguf.same_in_all_layers("attention.head_count_kv").value_or(num_heads));
  if (const auto width = gguf.same_in_all_layers("feed_forward_length")) {
    gguf.set("intermediate_size", *width);
  }
  gguf.copy_integer("context_length", "max_position_embeddings");
  gguf.copy_number("attention.layer_norm_rms_epsilon", "rms_norm_eps");
  gguf.integer("vocab_size");  // the embedding table has it, too
  const int64_t head_dim =
      gguf.integer("attention.key_length").value_or(hidden_size / std::max<int64_t>(num_heads, 1));
  gguf.set("head_dim", head_dim);
  const int64_t value_dim = gguf.integer("attention.value_length").value_or(head_dim);
  if (value_dim != head_dim) {
    gguf.refuse("attention.value_length", fmt::format("{}", value_dim),
                fmt::format("only that of keys, {}, is served", head_dim));
  }
  translate_rope(gguf, head_dim);
  translate_ends(gguf, gguf.metadata());

  const bool pairs = transformer.pairs_rows && head_dim >= 2 && head_dim % 2 == 0;
  const quant::RowOrder heads = pairs ? paired_halves(head_dim) : quant::RowOrder();
  gguf.outside({.stored = "token_embd", .hub = "model.embed_tokens"});
  gguf.outside({.stored = "output_norm", .hub = "model.norm", .change = transformer.norms});
  gguf.outside({.stored = "output", .hub = "lm_head"});
  gguf.in_layers({
      {.stored = "attn_norm", .hub = "input_layernorm", .change = transformer.norms},
      {.stored = "attn_q", .hub = "self_attn.q_proj", .order = heads},
      {.stored = "attn_k", .hub = "self_attn.k_proj", .order = heads},
      {.stored = "attn_v", .hub = "self_attn.v_proj"},
      {.stored = "attn_output", .hub = "self_attn.o_proj"},
      {.stored = "attn_q_norm", .hub = "self_attn.q_norm", .change = transformer.norms},
      {.stored = "attn_k_norm", .hub = "self_attn.k_norm", .change = transformer.norms},
      {.stored = transformer.mlp_norm,
       .hub = "post_attention_layernorm",
       .change = transformer.norms},
      {.stored = "ffn_gate", .hub = "mlp.gate_proj"},
      {.stored = "ffn_up", .hub = "mlp.up_proj"},
      {.stored = "ffn_down", .hub = "mlp.down_proj"},
  });
}

void translate_experts(GgufTranslation& gguf) {
  gguf.set("num_experts", gguf.required("expert_count"));
  gguf.set("num_experts_per_tok", gguf.required("expert_used_count"));
  gguf.set("moe_intermediate_size", gguf.required("expert_feed_forward_length"));
  gguf.in_layers({
      {.stored = "ffn_gate_inp", .hub = "mlp.gate"},
      {.stored = "ffn_gate_exps", .hub = "mlp.experts.#.gate_proj"},
      {.stored = "ffn_up_exps", .hub = "mlp.experts.#.up_proj"},
      {.stored = "ffn_down_exps", .hub = "mlp.experts.#.down_proj"},
  });
}

void translate_shared_expert(GgufTranslation& gguf) {
  gguf.set("shared_expert_intermediate_size", gguf.required("expert_shared_feed_forward_length"));
  gguf.in_layers({
      {.stored = "ffn_gate_inp_shexp",
       .hub = "mlp.shared_expert_gate",
       .shape = GgufShape::kOneRow},
      {.stored = "ffn_gate_shexp", .hub = "mlp.shared_expert.gate_proj"},
      {.stored = "ffn_up_shexp", .hub = "mlp.shared_expert.up_proj"},
      {.stored = "ffn_down_shexp", .hub = "mlp.shared_expert.down_proj"},
  });
}

}  // namespace heddle::models
