// SPDX-License-Identifier: Apache-2.0
#include "models/gguf_translation.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
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

// Keys that change the computation of any architecture unless their value is 0.
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

// The tensor with the divisor of each rotary frequency, which files of Llama 3.1 and later have in
// place of the rule (rope_type llama3).
constexpr std::string_view kRopeFactors = "rope_freqs.weight";

// The hub's shape of a stored tensor. A shape of another rank is returned unchanged; loading then
// reports the mismatch.
Shape hub_shape(const Shape& stored, GgufShape shape) {
  if (shape == GgufShape::kOneRow && stored.rank() == 1) return {1, stored[0]};
  if (shape == GgufShape::kVector) return {stored.num_elements()};
  if (shape == GgufShape::kConvolution && stored.rank() == 2) return {stored[0], 1, stored[1]};
  return stored;
}

// The divisor that the llama3 rule gives for the frequency of pair i of `width` / 2.
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

// Finds the llama3 rule that gives the stored divisors. In published files only the rule's factor
// varies; it equals the largest divisor.
void translate_rope_factors(GgufTranslation& gguf, double theta, int64_t width) {
  const std::vector<float> divisors = gguf.plain_values(kRopeFactors);
  if (divisors.empty()) return;
  const double factor = static_cast<double>(*std::ranges::max_element(divisors));
  bool follows = std::ssize(divisors) == width / 2 && factor >= 1;
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
}

// Control tokens that end a chat turn, for files whose metadata names only another end token.
constexpr std::string_view kTurnEnds[] = {"<|im_end|>",    "<|eot_id|>",      "<|eom_id|>",
                                          "<end_of_turn>", "<|endoftext|>",   "<|end_of_text|>",
                                          "<|call|>",      "<turn|>",         "<|tool_response>",
                                          "<|user|>",      "<|observation|>", "<|end|>"};

// If the vocabulary has this token, "<|end|>" only ends a part of an answer.
constexpr std::string_view kAnswerEnd = "<|return|>";

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
  constexpr int64_t kControl = 3, kUserDefined = 4;
  const size_t count = *tokens && *types ? std::min((*tokens)->size(), (*types)->size()) : 0;
  const bool has_parts = count > 0 && std::ranges::find(**tokens, kAnswerEnd) != (*tokens)->end();
  for (size_t id = 0; id < count; ++id) {
    const int64_t type = (**types)[id];
    const std::string_view token = (**tokens)[id];
    if (type != kControl && type != kUserDefined) continue;
    if (has_parts && token == "<|end|>") continue;
    if (std::ranges::find(kTurnEnds, token) != std::end(kTurnEnds)) {
      ends.insert(static_cast<int64_t>(id));
    }
  }
  if (!ends.empty()) gguf.set("eos_token_id", std::vector<int64_t>(ends.begin(), ends.end()));
}

// Copies the constants of yarn that the file has.
void translate_yarn(GgufTranslation& gguf, nlohmann::json& scaling) {
  for (const auto& [key, hub] :
       {std::pair("yarn_beta_fast", "beta_fast"), std::pair("yarn_beta_slow", "beta_slow"),
        std::pair("yarn_attn_factor", "attention_factor")}) {
    if (const auto value = gguf.number(fmt::format("rope.scaling.{}", key))) scaling[hub] = *value;
  }
  constexpr std::string_view kExtrapolation = "rope.scaling.yarn_ext_factor";
  const double extrapolation = gguf.number(kExtrapolation).value_or(1);
  if (extrapolation != 1) {
    gguf.refuse(kExtrapolation, fmt::format("{}", extrapolation), "only 1 is served");
  }
  // the converter stores mscale_all_dim / 10; in published models mscale has the same value
  if (const auto tenth = gguf.number("rope.scaling.yarn_log_multiplier"); tenth && *tenth != 0) {
    const double mscale = std::round(*tenth * 10 * 1e6) / 1e6;
    scaling["mscale"] = scaling["mscale_all_dim"] = mscale;
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
  const std::optional<int64_t> value = checked(model_.metadata().integer(full_key(key)));
  if (!value || is_size(key, *value)) return value;
  return std::nullopt;
}

bool GgufTranslation::is_size(std::string_view key, int64_t value) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (value >= -1 && value <= kMost) return true;
  fail(data_loss(fmt::format("{} is {}, more than {}", readable(full_key(key)), value, kMost)));
  return false;
}

std::optional<double> GgufTranslation::number(std::string_view key) {
  return checked(model_.metadata().number(full_key(key)));
}

std::optional<std::string> GgufTranslation::text(std::string_view key) {
  const auto value = checked(model_.metadata().text(full_key(key)));
  return value ? std::optional<std::string>(*value) : std::nullopt;
}

std::optional<bool> GgufTranslation::boolean(std::string_view key) {
  return checked(model_.metadata().boolean(full_key(key)));
}

template <typename T>
std::vector<T> GgufTranslation::of_layers(std::string_view key,
                                          std::optional<std::vector<T>> values) {
  if (!values || values->empty()) return {};
  const auto count = static_cast<size_t>(num_layers());
  if (values->size() == 1) values->resize(count, values->front());
  if (values->size() < count) {
    fail(data_loss(fmt::format("{} has {} values for {} layers; convert the model again",
                               readable(full_key(key)), values->size(), count)));
    return {};
  }
  values->resize(count);
  return *std::move(values);
}

std::vector<int64_t> GgufTranslation::integers_of_layers(std::string_view key) {
  return of_layers(key, checked(model_.metadata().integers(full_key(key))));
}

std::vector<bool> GgufTranslation::booleans_of_layers(std::string_view key) {
  return of_layers(key, checked(model_.metadata().booleans(full_key(key))));
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
  int64_t same = 0;
  for (const int64_t value : *values) {
    if (!is_size(key, value)) return std::nullopt;
    if (value == 0 || value == same) continue;
    if (same != 0) {
      refuse(key, fmt::format("{} in some layers and {} in others", same, value),
             "only one value for all layers is served");
      break;
    }
    same = value;
  }
  return same;
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
  const int64_t predicting = integer("nextn_predict_layers").value_or(0);
  const int64_t stored = std::clamp<int64_t>(required("block_count"), 0, checkpoint::kLayers.high);
  return stored - std::clamp<int64_t>(predicting, 0, stored);
}

void GgufTranslation::in_layers(const std::vector<GgufModule>& modules) {
  for (const GgufModule& module : modules) {
    for (int64_t layer = 0; layer < num_layers(); ++layer) {
      add_module(module, fmt::format("blk.{}.{}", layer, module.stored),
                 fmt::format("{}layers.{}.{}", hub_prefix_, layer, module.hub));
    }
  }
}

void GgufTranslation::tensors_in_layers(const std::vector<GgufModule>& tensors) {
  for (const GgufModule& tensor : tensors) {
    for (int64_t layer = 0; layer < num_layers(); ++layer) {
      add_tensor(tensor, fmt::format("blk.{}.{}", layer, tensor.stored),
                 fmt::format("{}layers.{}.{}", hub_prefix_, layer, tensor.hub));
    }
  }
}

void GgufTranslation::outside(const GgufModule& module) {
  add_module(module, module.stored, module.hub);
}

void GgufTranslation::tensor_outside(const GgufModule& tensor) {
  add_tensor(tensor, tensor.stored, tensor.hub);
}

std::vector<bool> GgufTranslation::layers_with(std::string_view name) {
  std::vector<bool> found;
  for (int64_t layer = 0; layer < num_layers(); ++layer) {
    found.push_back(model_.find(fmt::format("blk.{}.{}", layer, name)).has_value());
  }
  return found;
}

bool GgufTranslation::has_in_layers(std::string_view name) {
  const std::vector<bool> layers = layers_with(name);
  return std::ranges::find(layers, true) != layers.end();
}

void GgufTranslation::set_layer_kinds(std::string_view hub_key, const std::vector<bool>& layers,
                                      std::string_view kind, std::string_view other_kind) {
  std::vector<std::string> kinds;
  for (const bool is_kind : layers) kinds.emplace_back(is_kind ? kind : other_kind);
  set(hub_key, kinds);
}

std::vector<float> GgufTranslation::plain_values(std::string_view name) {
  const std::optional<GgufModel::Stored> stored = model_.find(name);
  if (!stored) return {};
  if (stored->tensor->type->dtype != DType::kF32) {
    fail(unimplemented(fmt::format("tensor {} is stored as {}; only F32 is served", readable(name),
                                   stored->tensor->type->name)));
    return {};
  }
  std::vector<float> values(static_cast<size_t>(stored->tensor->shape.num_elements()));
  std::memcpy(values.data(), stored->data, values.size() * sizeof(float));
  leave_out(std::string(name));
  return values;
}

void GgufTranslation::leave_out_predicting_layers() {
  const int64_t first = num_layers();
  for (const std::string_view name : model_.names()) {
    constexpr std::string_view kBlock = "blk.";
    if (!name.starts_with(kBlock)) continue;
    int64_t layer = 0;
    std::from_chars(name.data() + kBlock.size(), name.data() + name.size(), layer);
    if (layer >= first) leave_out(std::string(name));
  }
}

void GgufTranslation::add_tensor(const GgufModule& module, const std::string& stored,
                                 const std::string& hub) {
  const std::optional<GgufModel::Stored> found = model_.find(stored);
  if (!found) return;
  checkpoint::GgufSource source{.hub = hub,
                                .stored = stored,
                                .shape = hub_shape(found->tensor->shape, module.shape),
                                .order = module.order,
                                .columns = module.columns,
                                .as_numbers = module.as_numbers,
                                .change = module.change};
  if (module.rows.count > 0) {
    if (!has_rows(stored, found->tensor->shape, 0, module.rows)) return;
    source.order.first += module.rows.first;
    std::vector<int64_t> dims(source.shape.dims().begin(), source.shape.dims().end());
    dims.front() = module.rows.count;
    source.shape = Shape(std::span<const int64_t>(dims));
  }
  sources_.push_back(std::move(source));
}

bool GgufTranslation::has_rows(const std::string& stored, const Shape& shape, int dimension,
                               const GgufRows& rows) {
  if (rows.first >= 0 && rows.first + rows.count <= shape[dimension]) return true;
  fail(data_loss(fmt::format(
      "tensor {} is {}, which has no rows {} to {} that the metadata's sizes ask for; convert the "
      "model again",
      readable(stored), shape.to_string(), rows.first, rows.first + rows.count)));
  return false;
}

void GgufTranslation::add_experts(const GgufModule& module, const std::string& stored,
                                  const std::string& hub, const Shape& shape) {
  const bool is_matrix = stored.ends_with(".weight");
  if (shape.rank() != (is_matrix ? 3 : 2)) {
    if (is_matrix) {
      fail(data_loss(fmt::format("tensor {} is {}; that of all experts has three dimensions",
                                 readable(stored), shape.to_string())));
    }
    return;
  }
  if (module.rows.count > 0 && !has_rows(stored, shape, 1, module.rows)) return;
  const int64_t num_rows = is_matrix ? shape[1] : 1;
  const int64_t count = module.rows.count > 0 ? module.rows.count : num_rows;
  for (int64_t expert = 0; expert < shape[0]; ++expert) {
    std::string of_expert = hub;
    of_expert.replace(hub.find('#'), 1, std::to_string(expert));
    sources_.push_back({.hub = std::move(of_expert),
                        .stored = stored,
                        .shape = is_matrix ? Shape{count, shape[2]} : Shape{shape[1]},
                        .order = {.first = expert * num_rows + module.rows.first}});
  }
}

void GgufTranslation::add_module(const GgufModule& module, const std::string& stored,
                                 const std::string& hub) {
  for (const char* ending : {".weight", ".bias"}) {
    const std::optional<GgufModel::Stored> found = model_.find(stored + ending);
    if (found && hub.find('#') != std::string::npos) {
      add_experts(module, stored + ending, hub + ending, found->tensor->shape);
    } else {
      add_tensor(module, stored + ending, hub + ending);
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
  if (head_dim < 2 || head_dim % 2 != 0) return {};
  return {.middle = 2,
          .inner = head_dim / 2,
          .group_step = head_dim,
          .middle_step = 1,
          .inner_step = 2};
}

namespace {

void translate_sizes(GgufTranslation& gguf, const GgufTransformer& transformer) {
  gguf.set("architectures", nlohmann::json::array({std::string(transformer.architecture)}));
  const auto table = gguf.tensor("token_embd.weight");
  if (table && table->tensor->shape.rank() == 2) gguf.set("vocab_size", table->tensor->shape[0]);
  if (!table) {
    gguf.fail(data_loss(
        "the file has no tensor \"token_embd.weight\": a vocabulary, or a part of a model; "
        "download the model's own file"));
  }
  gguf.set("tie_word_embeddings", !gguf.tensor("output.weight").has_value());
  gguf.set("hidden_size", gguf.required("embedding_length"));
  gguf.set("num_hidden_layers", gguf.num_layers());
  gguf.copy_integer("context_length", "max_position_embeddings");
  gguf.copy_number("attention.layer_norm_rms_epsilon", "rms_norm_eps");
  gguf.integer("vocab_size");  // redundant: equals the size of the embedding table
}

int64_t translate_heads(GgufTranslation& gguf) {
  const int64_t num_heads = gguf.same_in_all_layers("attention.head_count").value_or(1);
  gguf.set("num_attention_heads", num_heads);
  gguf.set("num_key_value_heads",
           gguf.same_in_all_layers("attention.head_count_kv").value_or(num_heads));
  if (const auto width = gguf.same_in_all_layers("feed_forward_length")) {
    gguf.set("intermediate_size", *width);
  }
  const int64_t head_dim =
      gguf.integer("attention.key_length")
          .value_or(gguf.required("embedding_length") / std::max<int64_t>(num_heads, 1));
  gguf.set("head_dim", head_dim);
  const int64_t value_dim = gguf.integer("attention.value_length").value_or(head_dim);
  if (value_dim != head_dim) {
    gguf.refuse("attention.value_length", fmt::format("{}", value_dim),
                fmt::format("only that of keys, {}, is served", head_dim));
  }
  return std::max<int64_t>(head_dim, 1);
}

// Adds queries, keys and values; some files fuse them where the hub has three tensors.
void add_attention(GgufTranslation& gguf, const GgufTransformer& transformer, int64_t head_dim) {
  const GgufHubNames& names = transformer.names;
  const quant::RowOrder heads =
      transformer.pairs_rows ? paired_halves(head_dim) : quant::RowOrder();
  gguf.in_layers({
      {.stored = "attn_q", .hub = names.attention + "q_proj", .order = heads},
      {.stored = "attn_k", .hub = names.attention + "k_proj", .order = heads},
      {.stored = "attn_v", .hub = names.attention + "v_proj"},
      {.stored = "attn_output", .hub = names.attention + names.output},
      {.stored = "attn_q_norm", .hub = names.attention + names.q_norm, .change = transformer.norms},
      {.stored = "attn_k_norm", .hub = names.attention + names.k_norm, .change = transformer.norms},
  });
  if (!names.qkv.empty()) {
    gguf.in_layers({{.stored = "attn_qkv", .hub = names.attention + names.qkv}});
  }
}

// Splits queries, keys and values that the converter fused (--fuse-qkv). In recurrent layers a
// tensor of this name is something else.
void split_joined_attention(GgufTranslation& gguf, const GgufTransformer& transformer,
                            int64_t head_dim) {
  if (!transformer.names.qkv.empty() || gguf.has_in_layers("ssm_conv1d.weight")) return;
  const int64_t queries = head_dim * gguf.same_in_all_layers("attention.head_count").value_or(1);
  const int64_t keys = head_dim * gguf.same_in_all_layers("attention.head_count_kv").value_or(1);
  const quant::RowOrder heads =
      transformer.pairs_rows ? paired_halves(head_dim) : quant::RowOrder();
  const std::string& scope = transformer.names.attention;
  gguf.in_layers({
      {.stored = "attn_qkv", .hub = scope + "q_proj", .order = heads, .rows = {0, queries}},
      {.stored = "attn_qkv", .hub = scope + "k_proj", .order = heads, .rows = {queries, keys}},
      {.stored = "attn_qkv", .hub = scope + "v_proj", .rows = {queries + keys, keys}},
  });
}

}  // namespace

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
    if (type == "yarn") translate_yarn(gguf, scaling);
    gguf.set("rope_scaling", std::move(scaling));
  } else if (type != "none") {
    gguf.refuse("rope.scaling.type", readable(type), "served are none, linear and yarn");
  }
  translate_rope_factors(gguf, theta, width);
}

void translate_factors(GgufTranslation& gguf) {
  gguf.copy_number("embedding_scale", "embedding_multiplier");
  gguf.copy_number("residual_scale", "residual_multiplier");
  gguf.copy_number("attention.scale", "attention_multiplier");
  gguf.copy_number("logit_scale", "logits_scaling");
}

void translate_transformer(GgufTranslation& gguf, const GgufTransformer& transformer) {
  const GgufHubNames& names = transformer.names;
  translate_sizes(gguf, transformer);
  const int64_t head_dim = transformer.own_heads ? 1 : translate_heads(gguf);
  if (!transformer.own_rope) translate_rope(gguf, head_dim);
  translate_ends(gguf, gguf.metadata());
  gguf.leave_out_predicting_layers();
  gguf.outside({.stored = "token_embd", .hub = names.embeddings});
  gguf.outside({.stored = "output_norm", .hub = names.norm, .change = transformer.norms});
  gguf.outside({.stored = "output", .hub = "lm_head"});
  add_attention(gguf, transformer, head_dim);
  if (!transformer.own_heads) split_joined_attention(gguf, transformer, head_dim);
  gguf.in_layers({
      {.stored = "attn_norm", .hub = names.input_norm, .change = transformer.norms},
      {.stored = transformer.mlp_norm, .hub = names.mlp_norm, .change = transformer.norms},
      {.stored = "ffn_gate", .hub = names.gate},
      {.stored = "ffn_up", .hub = names.up},
      {.stored = "ffn_down", .hub = names.down},
  });
}

void add_gguf_experts(GgufTranslation& gguf, const std::string& scope,
                      const std::vector<std::string>& gate_up_down) {
  const std::string expert = scope + "experts.#.";
  const std::string gate = expert + gate_up_down[0], up = expert + gate_up_down[1];
  const int64_t dense = gguf.same_in_all_layers("feed_forward_length").value_or(0);
  const int64_t width = gguf.integer("expert_feed_forward_length").value_or(dense);
  gguf.in_layers({
      {.stored = "ffn_gate_exps", .hub = gate},
      {.stored = "ffn_up_exps", .hub = up},
      {.stored = "ffn_gate_up_exps", .hub = gate, .rows = {0, width}},
      {.stored = "ffn_gate_up_exps", .hub = up, .rows = {width, width}},
      {.stored = "ffn_down_exps", .hub = expert + gate_up_down[2]},
  });
}

void add_gguf_shared_expert(GgufTranslation& gguf, const std::string& scope) {
  gguf.in_layers({
      {.stored = "ffn_gate_shexp", .hub = scope + "gate_proj"},
      {.stored = "ffn_up_shexp", .hub = scope + "up_proj"},
      {.stored = "ffn_down_shexp", .hub = scope + "down_proj"},
  });
}

void translate_experts(GgufTranslation& gguf) {
  gguf.set("num_experts", gguf.required("expert_count"));
  gguf.set("num_experts_per_tok", gguf.required("expert_used_count"));
  gguf.set("moe_intermediate_size", gguf.required("expert_feed_forward_length"));
  gguf.in_layers({{.stored = "ffn_gate_inp", .hub = "mlp.gate"}});
  add_gguf_experts(gguf, "mlp.");
}

void translate_shared_expert(GgufTranslation& gguf) {
  gguf.set("shared_expert_intermediate_size", gguf.required("expert_shared_feed_forward_length"));
  gguf.in_layers({{.stored = "ffn_gate_inp_shexp",
                   .hub = "mlp.shared_expert_gate",
                   .shape = GgufShape::kOneRow}});
  add_gguf_shared_expert(gguf, "mlp.shared_expert.");
}

void translate_routed_experts(GgufTranslation& gguf, const std::string& scope) {
  gguf.set("n_routed_experts", gguf.required("expert_count"));
  gguf.set("num_experts_per_tok", gguf.required("expert_used_count"));
  gguf.set("moe_intermediate_size", gguf.required("expert_feed_forward_length"));
  gguf.copy_integer("expert_shared_count", "n_shared_experts");
  gguf.copy_integer("leading_dense_block_count", "first_k_dense_replace");
  gguf.copy_number("expert_weights_scale", "routed_scaling_factor");
  gguf.set("norm_topk_prob", gguf.boolean("expert_weights_norm").value_or(false));
  gguf.set("n_group", std::max<int64_t>(gguf.integer("expert_group_count").value_or(1), 1));
  gguf.set("topk_group", std::max<int64_t>(gguf.integer("expert_group_used_count").value_or(1), 1));
  gguf.in_layers({{.stored = "ffn_gate_inp", .hub = scope + "gate"}});
  gguf.tensors_in_layers(
      {{.stored = "exp_probs_b.bias", .hub = scope + "gate.e_score_correction_bias"}});
  add_gguf_experts(gguf, scope);
  add_gguf_shared_expert(gguf, scope + "shared_experts.");
}

void require_sigmoid_scores(GgufTranslation& gguf) {
  constexpr int64_t kSigmoid = 2;
  const int64_t scores = gguf.integer("expert_gating_func").value_or(kSigmoid);
  if (scores != kSigmoid) {
    gguf.refuse("expert_gating_func", fmt::format("{}", scores), "only 2, sigmoid, is served");
  }
}

void translate_windows(GgufTranslation& gguf, int64_t period) {
  std::vector<bool> slides = gguf.booleans_of_layers("attention.sliding_window_pattern");
  const int64_t window = gguf.integer("attention.sliding_window").value_or(0);
  const bool is_named = !slides.empty();
  slides.resize(static_cast<size_t>(gguf.num_layers()));
  for (size_t i = 0; i < slides.size(); ++i) {
    const bool in_period = static_cast<int64_t>(i + 1) % period != 0;
    slides[i] = window > 0 && (is_named ? slides[i] : in_period);
  }
  gguf.set_layer_kinds("layer_types", slides, "sliding_attention", "full_attention");
  if (window > 0) gguf.set("sliding_window", window);
}

}  // namespace heddle::models
