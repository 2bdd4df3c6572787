// SPDX-License-Identifier: Apache-2.0
// GgufTwin: one model with random numbers twice, as a folder in the hub's layout and as a GGUF file
// that a converter would make of it. The file is written from the format's description and from
// what is known of the converters, without anything that reads it.
//
// A matrix is drawn as blocks, row by row; the hub has what these stand for.
#pragma once

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/gguf_fixture.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/seeded_tensors_fixture.h"
#include "models/registry.h"
#include "quant/block_fixture.h"

namespace heddle::testing {

// How the matrices of a file are stored.
struct GgufForm {
  std::string_view name;
  uint32_t type;                           // the format's number of it
  std::optional<quant::BlockType> blocks;  // none: fp32, bf16 or fp16
};

inline constexpr GgufForm kGgufForms[] = {
    {"F32", 0, std::nullopt},
    {"F16", 1, std::nullopt},
    {"BF16", 30, std::nullopt},
    {"Q4_0", 2, quant::BlockType::kQ4_0},
    {"Q4_1", 3, quant::BlockType::kQ4_1},
    {"Q5_0", 6, quant::BlockType::kQ5_0},
    {"Q5_1", 7, quant::BlockType::kQ5_1},
    {"Q8_0", 8, quant::BlockType::kQ8_0},
    {"MXFP4", 39, quant::BlockType::kMxfp4},
    {"Q4_K", 12, quant::BlockType::kQ4K},
    {"Q5_K", 13, quant::BlockType::kQ5K},
    {"Q6_K", 14, quant::BlockType::kQ6K},
};

inline const GgufForm& gguf_form(std::string_view name) {
  for (const GgufForm& form : kGgufForms) {
    if (form.name == name) return form;
  }
  ADD_FAILURE() << name;
  return kGgufForms[0];
}

class GgufTwin {
 public:
  // The form of each matrix, by its hub name.
  using FormOf = std::function<GgufForm(std::string_view hub_name)>;

  GgufTwin(nlohmann::json config, std::string_view gguf_architecture, const FormOf& form_of)
      : config_(std::move(config)), architecture_(gguf_architecture) {
    const auto parsed = models::parse_config(config_.dump());
    EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
    heads_ = config_.at("num_attention_heads");
    kv_heads_ = config_.value("num_key_value_heads", heads_);
    head_dim_ = parsed->head_dim;
    const auto model = models::create_model(*parsed);
    const auto specs = model->weight_specs();
    for (auto& [name, tensor] : checkpoint::testing::seeded_tensors(specs)) {
      matrices_.emplace(name, store(name, std::move(tensor), form_of(name)));
    }
    write_sizes();
    write_tensors();
    write_folder();
  }

  [[nodiscard]] std::filesystem::path hub() const { return folder_.path() / "hub"; }

  [[nodiscard]] std::filesystem::path gguf() const { return folder_.path() / "model.gguf"; }

  // For more metadata; write_gguf() writes the file again.
  checkpoint::testing::GgufWriter& writer() { return writer_; }

  void write_gguf() { folder_.write("model.gguf", writer_.file()); }

 private:
  // A hub tensor, as the hub has it and row by row as the file has it.
  struct Matrix {
    Tensor values;
    GgufForm form;
    int64_t rows = 1;
    std::vector<std::byte> bytes;

    [[nodiscard]] std::span<const std::byte> row(int64_t index) const {
      const size_t size = bytes.size() / static_cast<size_t>(rows);
      return std::span(bytes).subspan(static_cast<size_t>(index) * size, size);
    }
  };

  static void round_to(const GgufForm& form, float& value, std::byte* target) {
    if (form.type == 0) std::memcpy(target, &value, sizeof(value));
    if (form.type == 1) {
      const F16 half = to_f16(value);
      std::memcpy(target, &half, sizeof(half));
      value = to_float(half);
    }
    if (form.type == 30) {
      const Bf16 half = to_bf16(value);
      std::memcpy(target, &half, sizeof(half));
      value = to_float(half);
    }
  }

  // Vectors, convolutions and routers are fp32 in every file; rows that are no whole blocks of a
  // large type have one with small blocks.
  Matrix store(const std::string& name, Tensor tensor, GgufForm form) {
    if (name.ends_with("experts.gate_up_proj") || name.ends_with("experts.down_proj")) {
      return store_input_major(std::move(tensor), form, name.ends_with("gate_up_proj"));
    }
    if (name.ends_with("kv_b_proj.weight")) return store_latents(name, std::move(tensor), form);
    const Shape shape = tensor.shape();
    constexpr std::string_view kSmall[] = {
        ".gate.weight",  "router.weight",    "shared_expert_gate.weight", "router.layer.weight",
        "conv1d.weight", "conv.conv.weight", "router.proj.weight"};
    const bool small =
        shape.rank() < 2 ||
        std::ranges::any_of(kSmall, [&](std::string_view end) { return name.ends_with(end); });
    if (small) form = gguf_form("F32");
    if (name.ends_with("norm.weight")) change_norm(name, tensor.span<float>());
    Matrix matrix = store_rows(name, std::move(tensor), form);
    if (is_tiled() && name.ends_with("linear_attn.out_proj.weight")) untile_columns(matrix);
    return matrix;
  }

  // kv_b_proj [heads * (keys + values), latent]: the file has the values' rows, and those of the
  // keys with rows and columns exchanged.
  Matrix store_latents(const std::string& name, Tensor tensor, const GgufForm& form) {
    const int64_t keys = config_.at("qk_nope_head_dim"), values = config_.at("v_head_dim");
    const int64_t latent = tensor.shape()[1];
    Tensor of_keys({heads_ * latent, keys}, DType::kF32);
    Tensor of_values({heads_ * values, latent}, DType::kF32);
    const auto each = [&](Tensor& key_rows, Tensor& value_rows, const auto& visit) {
      for (int64_t row = 0; row < heads_ * (keys + values); ++row) {
        const int64_t head = row / (keys + values), in_head = row % (keys + values);
        for (int64_t c = 0; c < latent; ++c) {
          const auto at = static_cast<size_t>(row * latent + c);
          const int64_t other = in_head < keys ? (head * latent + c) * keys + in_head
                                               : (head * values + in_head - keys) * latent + c;
          Tensor& stored = in_head < keys ? key_rows : value_rows;
          visit(tensor.span<float>()[at], stored.span<float>()[static_cast<size_t>(other)]);
        }
      }
    };
    each(of_keys, of_values, [](float& hub, float& stored) { stored = hub; });
    Matrix first = store_rows(name + "k", std::move(of_keys), form);
    Matrix second = store_rows(name + "v", std::move(of_values), form);
    each(first.values, second.values, [](float& hub, float& stored) { hub = stored; });
    latents_.emplace(name, std::pair(std::move(first), std::move(second)));
    return {.values = std::move(tensor), .form = form, .rows = 1, .bytes = {}};
  }

  // Value heads of a delta net, which the hub has key head by key head: the converter of later
  // models stores the first of each key head, then the second of each.
  [[nodiscard]] bool is_tiled() const { return architecture_.starts_with("qwen35"); }

  [[nodiscard]] int64_t stored_head(int64_t head) const {
    const int64_t keys = config_.at("linear_num_key_heads");
    const int64_t each = config_.at("linear_num_value_heads").get<int64_t>() / keys;
    return is_tiled() ? head % each * keys + head / each : head;
  }

  // The rows of value heads, of `width` each, in the file's order.
  template <typename Append>
  void each_stored_head_row(int64_t width, const Append& append) const {
    const int64_t heads = config_.at("linear_num_value_heads");
    std::vector<int64_t> order(static_cast<size_t>(heads));
    for (int64_t head = 0; head < heads; ++head) {
      order[static_cast<size_t>(stored_head(head))] = head;
    }
    for (const int64_t head : order) {
      for (int64_t i = 0; i < width; ++i) append(head, i);
    }
  }

  // The matrix was drawn in the file's order of columns; the hub has its own.
  void untile_columns(Matrix& matrix) const {
    const int64_t width = config_.at("linear_value_head_dim");
    const int64_t columns = matrix.values.shape()[1];
    const std::span<float> values = matrix.values.span<float>();
    const std::vector<float> stored(values.begin(), values.end());
    for (size_t i = 0; i < stored.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const int64_t column = at % columns;
      values[i] = stored[static_cast<size_t>(at - column + stored_head(column / width) * width +
                                             column % width)];
    }
  }

  static Matrix store_rows(const std::string& name, Tensor tensor, GgufForm form) {
    const Shape shape = tensor.shape();
    const int64_t width = shape[shape.rank() - 1];
    if (form.blocks && width % quant::size_of(*form.blocks).columns != 0) form = gguf_form("Q8_0");
    Matrix matrix{.form = form};
    matrix.rows = shape.rank() > 1 ? shape.num_elements() / width : 1;
    const std::span<float> values = tensor.span<float>();
    const auto count = static_cast<int64_t>(values.size());
    if (!form.blocks) {
      const int64_t size = form.type == 0 ? 4 : 2;
      matrix.bytes.resize(static_cast<size_t>(count * size));
      for (int64_t i = 0; i < count; ++i) {
        round_to(form, values[static_cast<size_t>(i)], matrix.bytes.data() + i * size);
      }
    } else {
      const auto [columns, size] = quant::size_of(*form.blocks);
      matrix.bytes = quant::testing::random_blocks(*form.blocks, count / columns,
                                                   std::hash<std::string>()(name));
      for (int64_t i = 0; i < count; ++i) {
        values[static_cast<size_t>(i)] =
            static_cast<float>(quant::testing::block_element(*form.blocks, matrix.bytes.data(), i));
      }
    }
    matrix.values = std::move(tensor);
    return matrix;
  }

  // Experts that the hub stores input by input, [E, inputs, outputs], and where these are of two
  // projections one output of each in turn. Rows of the file are outputs, of gate before up.
  static Matrix store_input_major(Tensor tensor, const GgufForm& form, bool is_of_two) {
    const Shape shape = tensor.shape();
    const int64_t experts = shape[0], inputs = shape[1], outputs = shape[2];
    Tensor rows({experts * outputs, inputs}, DType::kF32);
    const std::span<float> hub = tensor.span<float>();
    const auto place = [&](int64_t e, int64_t output, int64_t input) {
      const int64_t half = outputs / 2;
      const int64_t column = is_of_two ? output % half * 2 + output / half : output;
      return static_cast<size_t>((e * inputs + input) * outputs + column);
    };
    const auto each = [&](const auto& visit) {
      for (int64_t e = 0; e < experts; ++e) {
        for (int64_t output = 0; output < outputs; ++output) {
          for (int64_t input = 0; input < inputs; ++input) {
            const int64_t at = (e * outputs + output) * inputs + input;
            visit(hub[place(e, output, input)], rows.span<float>()[static_cast<size_t>(at)]);
          }
        }
      }
    };
    each([](float& in_hub, float& in_row) { in_row = in_hub; });
    Matrix matrix = store_rows("experts", std::move(rows), form);
    const std::span<float> drawn = matrix.values.span<float>();
    for (size_t i = 0; i < drawn.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      hub[place(at / inputs / outputs, at / inputs % outputs, at % inputs)] = drawn[i];
    }
    matrix.values = std::move(tensor);
    return matrix;
  }

  [[nodiscard]] bool adds_one(std::string_view name) const {
    const bool zero_centred =
        architecture_ == "qwen3next" || architecture_ == "gemma3" || is_tiled();
    return zero_centred && name.find("linear_attn.norm") == std::string_view::npos;
  }

  // Rounds as a number does to which 1 is added and from which it is taken again.
  void change_norm(std::string_view name, std::span<float> values) const {
    if (!adds_one(name)) return;
    for (float& value : values) value = (value + 1) - 1;
  }

  template <typename T>
  T hub_value(std::initializer_list<std::string_view> keys, T fallback) const {
    for (const std::string_view key : keys) {
      if (config_.contains(key)) return config_.at(key).template get<T>();
    }
    return fallback;
  }

  void write_u32(std::string_view key, std::initializer_list<std::string_view> hub) {
    const int64_t value = hub_value<int64_t>(hub, -1);
    if (value >= 0) {
      writer_.u32(fmt::format("{}.{}", architecture_, key), static_cast<uint32_t>(value));
    }
  }

  void write_f32(std::string_view key, std::string_view hub) {
    if (config_.contains(hub)) {
      writer_.f32(fmt::format("{}.{}", architecture_, key), config_.at(hub).get<float>());
    }
  }

  void write_sizes() {
    writer_.text("general.architecture", architecture_);
    write_u32("block_count", {"num_hidden_layers"});
    write_u32("context_length", {"max_position_embeddings"});
    write_u32("embedding_length", {"hidden_size"});
    write_u32("feed_forward_length", {"intermediate_size"});
    write_u32("attention.head_count", {"num_attention_heads"});
    write_u32("attention.sliding_window", {"sliding_window"});
    write_experts_sizes();
    write_recurrent_sizes();
    for (const auto& [key, hub] : {std::pair("embedding_scale", "embedding_multiplier"),
                                   {"residual_scale", "residual_multiplier"},
                                   {"attention.scale", "attention_multiplier"},
                                   {"logit_scale", "logits_scaling"},
                                   {"logit_scale", "logit_scale"},
                                   {"attention.layer_norm_epsilon", "layer_norm_eps"},
                                   {"final_logit_softcapping", "final_logit_softcapping"}}) {
      write_f32(key, hub);
    }
    writer_.f32(architecture_ + ".attention.layer_norm_rms_epsilon",
                hub_value<float>({"layer_norm_epsilon", "norm_eps", "rms_norm_eps"}, 1e-6f));
    writer_.f32(architecture_ + ".rope.freq_base", config_.value("rope_theta", 10000.0f));
    write_rope_scaling();
    if (config_.contains("kv_lora_rank")) return write_latent_sizes();
    if (architecture_ == "gemma4") return write_gemma4_sizes();
    write_u32("attention.head_count_kv", {"num_key_value_heads"});
    const auto head_dim = static_cast<uint32_t>(head_dim_);
    writer_.u32(architecture_ + ".attention.key_length", head_dim);
    writer_.u32(architecture_ + ".attention.value_length", head_dim);
    writer_.u32(architecture_ + ".rope.dimension_count",
                hub_value<uint32_t>(
                    {"rotary_dim"},
                    static_cast<uint32_t>(head_dim * config_.value("partial_rotary_factor", 1.0))));
  }

  void write_rope_scaling() {
    const auto found = config_.find("rope_scaling");
    if (found == config_.end() || !found->is_object()) return;
    const nlohmann::json& scaling = *found;
    if (scaling.value("rope_type", "") != "yarn") return;
    const std::string key = architecture_ + ".rope.scaling.";
    writer_.text(key + "type", "yarn");
    writer_.f32(key + "factor", scaling.at("factor"));
    writer_.u32(key + "original_context_length", scaling.at("original_max_position_embeddings"));
    writer_.f32(key + "yarn_beta_fast", scaling.at("beta_fast"));
    writer_.f32(key + "yarn_log_multiplier", 0.1f * scaling.at("mscale_all_dim").get<float>());
  }

  void write_experts_sizes() {
    write_u32("expert_count",
              {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"});
    write_u32("expert_used_count", {"num_experts_per_tok", "top_k_experts", "moe_k"});
    const bool is_mlps = architecture_ == "gpt-oss" || architecture_ == "minimax-m2";
    write_u32("expert_feed_forward_length",
              {is_mlps ? "intermediate_size" : "moe_intermediate_size"});
    write_u32("expert_shared_feed_forward_length",
              {"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
               "shared_intermediate_size"});
    write_u32("expert_shared_count", {"n_shared_experts", "moe_num_shared_experts"});
    write_u32("leading_dense_block_count",
              {"first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"});
    write_u32("interleave_moe_layer_step", {"moe_layer_interval"});
    write_u32("expert_group_count", {"n_group"});
    write_u32("expert_group_used_count", {"topk_group"});
    write_f32("expert_weights_scale", "routed_scaling_factor");
    write_u32("moe_latent_size", {"moe_latent_size"});
    if (config_.contains("n_routed_experts")) {
      writer_.boolean(architecture_ + ".expert_weights_norm",
                      config_.value("norm_topk_prob", true));
    }
    if (config_.value("scoring_func", "") == "sigmoid") {
      writer_.u32(architecture_ + ".expert_gating_func", 2);
    }
  }

  void write_recurrent_sizes() {
    if (is_tiled()) writer_.integers(architecture_ + ".rope.dimension_sections", {11, 11, 10, 0});
    write_u32("shortconv.l_cache", {"conv_L_cache"});
    write_u32("ssm.conv_kernel", {"linear_conv_kernel_dim", "mamba_d_conv", "conv_kernel"});
    write_u32("ssm.state_size", {"linear_key_head_dim", "mamba_d_state", "ssm_state_size"});
    write_u32("ssm.group_count", {"linear_num_key_heads", "mamba_n_groups", "n_groups"});
    write_u32("ssm.time_step_rank", {"linear_num_value_heads", "mamba_n_heads", "mamba_num_heads"});
    const auto heads =
        hub_value<uint32_t>({"linear_num_value_heads", "mamba_n_heads", "mamba_num_heads"}, 0);
    if (heads == 0) return;
    writer_.u32(architecture_ + ".ssm.inner_size",
                heads * hub_value<uint32_t>(
                            {"linear_value_head_dim", "mamba_d_head", "mamba_head_dim"}, 0));
  }

  // As attention with one head of keys, which are the latents; what they become is *_mla.
  void write_latent_sizes() {
    const auto size = [&](const char* key) { return config_.at(key).get<uint32_t>(); };
    const uint32_t latent = size("kv_lora_rank"), rotated = size("qk_rope_head_dim");
    const auto write = [&](const char* key, uint32_t value) {
      writer_.u32(fmt::format("{}.{}", architecture_, key), value);
    };
    write("attention.head_count_kv", 1);
    write("attention.kv_lora_rank", latent);
    write_u32("attention.q_lora_rank", {"q_lora_rank"});
    write("attention.key_length", latent + rotated);
    write("attention.value_length", latent);
    write("attention.key_length_mla", size("qk_nope_head_dim") + rotated);
    write("attention.value_length_mla", size("v_head_dim"));
    write("rope.dimension_count", rotated);
  }

  void write_gemma4_sizes() {
    const auto write = [&](const char* key, uint32_t value) {
      writer_.u32("gemma4." + std::string(key), value);
    };
    const auto full = config_.at("global_head_dim").get<uint32_t>();
    for (const char* key :
         {"attention.key_length", "attention.value_length", "rope.dimension_count"}) {
      write(key, full);
      writer_.u32(fmt::format("gemma4.{}_swa", key), static_cast<uint32_t>(head_dim_));
    }
    write("embedding_length_per_layer_input",
          config_.at("hidden_size_per_layer_input").get<uint32_t>());
    write("attention.shared_kv_layers", config_.at("num_kv_shared_layers").get<uint32_t>());
    writer_.f32("gemma4.rope.freq_base_swa", 1e4f);
    std::string pattern;
    std::vector<int32_t> heads;
    for (const auto& kind : config_.at("layer_types")) {
      const bool slides = kind == "sliding_attention";
      pattern.push_back(slides ? '\1' : '\0');
      heads.push_back(config_.value(slides ? "num_key_value_heads" : "num_global_key_value_heads",
                                    static_cast<int32_t>(kv_heads_)));
    }
    constexpr uint32_t kBoolean = 7, kArray = 9;
    writer_.raw("gemma4.attention.sliding_window_pattern", kArray,
                writer_.bytes_of(kBoolean) +
                    writer_.bytes_of(static_cast<uint64_t>(pattern.size())) + pattern);
    writer_.integers("gemma4.attention.head_count_kv", heads);
    std::vector<float> divisors(full / 2, 1e30f);
    std::fill_n(divisors.begin(), divisors.size() / 4, 1.0f);  // a quarter of each head rotates
    writer_.tensor("rope_freqs.weight", {std::ssize(divisors)}, divisors);
  }

  // ---- The converter ----

  void write_tensors() {
    for (const auto& [name, matrix] : matrices_) {
      const std::map<std::string_view, const char*> outside = {
          {"model.embed_tokens.weight", "token_embd.weight"},
          {"backbone.embeddings.weight", "token_embd.weight"},
          {"lm_head.weight", "output.weight"},
          {"model.norm.weight", "output_norm.weight"},
          {"backbone.norm_f.weight", "output_norm.weight"},
          {"model.embedding_norm.weight", "token_embd_norm.weight"},
          {"model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
          {"model.per_layer_model_projection.weight", "per_layer_model_proj.weight"},
          {"model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight"}};
      if (const auto found = outside.find(name); found != outside.end()) {
        write(found->second, matrix, name);
        continue;
      }
      const size_t begin = name.find("layers.") + 7;
      const size_t end = name.find('.', begin);
      const std::string layer = name.substr(begin, end - begin);
      write_in_layer(fmt::format("blk.{}.", layer), name.substr(end + 1), name, matrix);
    }
    for (auto& [name, experts] : experts_) {
      if (architecture_ != "gemma4" || name.ends_with("down_exps.weight")) {
        write_experts(name, experts);
      } else if (const size_t at = name.find("ffn_gate_exps"); at != std::string::npos) {
        write_joined_experts(name.substr(0, at), experts);
      }
    }
  }

  void write_in_layer(const std::string& block, const std::string& part, const std::string& name,
                      const Matrix& matrix) {
    const bool is_one_expert = part.find("experts.") != std::string::npos &&
                               std::isdigit(part[part.find("experts.") + 8]) != 0;
    if (is_one_expert) {
      collect_expert(block, part, matrix);
    } else if (part.starts_with("mlp.experts.gate_up_proj") ||
               part.starts_with("mlp.experts.down_proj")) {
      write_input_major(block, part, matrix);
    } else if (part == "linear_attn.in_proj_qkvz.weight") {
      write_qkvz(block, matrix);
    } else if (part == "linear_attn.in_proj_ba.weight" && is_tiled()) {
      write_ba(block, matrix);
    } else if (part == "linear_attn.conv1d.weight") {
      write_convolution(block, matrix);
    } else if (part.ends_with("A_log") || part.ends_with(".dt_bias") || part.ends_with(".D")) {
      write_head_numbers(block, part, matrix);
    } else if (part == "self_attn.kv_b_proj.weight") {
      const auto& [keys, values] = latents_.at(name);
      const int64_t latent = config_.at("kv_lora_rank");
      writer_.tensor(block + "attn_k_b.weight", {heads_, latent, keys.values.shape()[1]},
                     keys.form.type, keys.bytes);
      writer_.tensor(block + "attn_v_b.weight", {heads_, values.values.shape()[0] / heads_, latent},
                     values.form.type, values.bytes);
    } else if (part == "shared_mlp.input_linear.weight") {
      const bool experts = config_.value("num_local_experts", 0) > 0;
      write_halves(block, matrix, experts ? "ffn_gate_shexp" : "ffn_gate",
                   experts ? "ffn_up_shexp" : "ffn_up");
    } else {
      const std::string stored = stored_name(part);
      if (stored.empty()) return ADD_FAILURE() << "no name for " << name;
      write(block + stored, matrix, name);
    }
  }

  [[nodiscard]] std::string stored_name(const std::string& part) const {
    constexpr std::string_view kRenamed[] = {"gemma3",    "gemma4",  "qwen3next", "qwen35",
                                             "qwen35moe", "gpt-oss", "glm4moe",   "seed_oss",
                                             "olmo2",     "exaone4"};
    const bool renamed = std::ranges::find(kRenamed, architecture_) != std::end(kRenamed);
    const bool shared = config_.value("num_local_experts", 0) > 0;
    const std::map<std::string, std::string> names = {
        {"input_layernorm", "attn_norm"},
        {"operator_norm", "attn_norm"},
        {"norm", "attn_norm"},
        {"ffn_norm", "ffn_norm"},
        {"post_attention_layernorm", renamed ? "post_attention_norm" : "ffn_norm"},
        {"pre_feedforward_layernorm", "ffn_norm"},
        {"post_feedforward_layernorm", "post_ffw_norm"},
        {"pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
        {"post_feedforward_layernorm_1", "post_ffw_norm_1"},
        {"post_feedforward_layernorm_2", "post_ffw_norm_2"},
        {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},
        {"self_attn.o_proj", "attn_output"},
        {"self_attn.out_proj", "attn_output"},
        {"self_attn.qkv_proj", "attn_qkv"},
        {"self_attn.q_norm", "attn_q_norm"},
        {"self_attn.k_norm", "attn_k_norm"},
        {"self_attn.q_layernorm", "attn_q_norm"},
        {"self_attn.k_layernorm", "attn_k_norm"},
        {"self_attn.q_a_proj", "attn_q_a"},
        {"self_attn.q_a_layernorm", "attn_q_a_norm"},
        {"self_attn.q_b_proj", "attn_q_b"},
        {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
        {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
        {"mlp.gate_proj", "ffn_gate"},
        {"mlp.up_proj", "ffn_up"},
        {"mlp.gate_up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},
        {"feed_forward.w1", "ffn_gate"},
        {"feed_forward.w3", "ffn_up"},
        {"feed_forward.w2", "ffn_down"},
        {"mlp.gate", "ffn_gate_inp"},
        {"mlp.router", "ffn_gate_inp"},
        {"router.proj", "ffn_gate_inp"},
        {"feed_forward.gate", "ffn_gate_inp"},
        {"block_sparse_moe.gate", "ffn_gate_inp"},
        {"block_sparse_moe.router.layer", "ffn_gate_inp"},
        {"shared_mlp.output_linear", shared ? "ffn_down_shexp" : "ffn_down"},
        {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
        {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
        {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
        {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
        {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
        {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
        {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
        {"linear_attn.in_proj_ba", "ssm_ba"},
        {"linear_attn.norm", "ssm_norm"},
        {"linear_attn.out_proj", "ssm_out"},
        {"mamba.in_proj", "ssm_in"},
        {"mamba.conv1d", "ssm_conv1d"},
        {"mamba.norm", "ssm_norm"},
        {"mamba.out_proj", "ssm_out"},
        {"conv.in_proj", "shortconv.in_proj"},
        {"conv.conv", "shortconv.conv"},
        {"conv.out_proj", "shortconv.out_proj"},
        {"mixer.q_proj", "attn_q"},
        {"mixer.k_proj", "attn_k"},
        {"mixer.v_proj", "attn_v"},
        {"mixer.o_proj", "attn_output"},
        {"mixer.in_proj", "ssm_in"},
        {"mixer.conv1d", "ssm_conv1d"},
        {"mixer.norm", "ssm_norm"},
        {"mixer.out_proj", "ssm_out"},
        {"mixer.up_proj", "ffn_up"},
        {"mixer.down_proj", "ffn_down"},
        {"mixer.gate", "ffn_gate_inp"},
        {"mixer.shared_experts.up_proj", "ffn_up_shexp"},
        {"mixer.shared_experts.down_proj", "ffn_down_shexp"},
        {"mixer.fc1_latent_proj", "ffn_latent_down"},
        {"mixer.fc2_latent_proj", "ffn_latent_up"},
        {"per_layer_input_gate", "inp_gate"},
        {"per_layer_projection", "proj"},
        {"post_per_layer_input_norm", "post_norm"},
    };
    if (part.ends_with("e_score_correction_bias")) return "exp_probs_b.bias";
    if (part == "self_attn.sinks") return "attn_sinks.weight";
    if (part == "layer_scalar") return "layer_output_scale.weight";
    if (part == "router.scale") return "ffn_gate_inp.scale";
    if (part == "router.per_expert_scale") return "ffn_down_exps.scale";
    const size_t dot = part.rfind('.');
    const auto found = names.find(part.substr(0, dot));
    return found == names.end() ? std::string() : found->second + part.substr(dot);
  }

  void write(const std::string& stored, const Matrix& matrix, const std::string& hub = {}) {
    if (hub.ends_with("norm.weight") && adds_one(hub)) {
      std::vector<float> plus_one;
      for (const float value : matrix.values.span<const float>()) plus_one.push_back(value + 1);
      return writer_.tensor(stored, matrix.values.shape(), plus_one);
    }
    Shape shape = matrix.values.shape();
    if (hub.ends_with("conv1d.weight") || hub.ends_with("conv.conv.weight")) {
      shape = {shape[0], shape[2]};
    }
    const bool mamba_norm =
        hub.ends_with("mamba.norm.weight") || hub.ends_with("mixer.norm.weight");
    if (mamba_norm) {
      const auto groups = hub_value<int64_t>({"mamba_n_groups", "n_groups"}, 1);
      shape = {groups, shape[0] / groups};
    }
    if (hub.ends_with("shared_expert_gate.weight")) shape = Shape{shape[1]};
    const bool queries = hub.find(".q_proj.") != std::string::npos;
    constexpr std::string_view kPairs[] = {"llama", "granite", "granitemoe", "granitehybrid",
                                           "smollm3"};
    const bool pairs = std::ranges::find(kPairs, architecture_) != std::end(kPairs);
    if (pairs && (queries || hub.find(".k_proj.") != std::string::npos)) {
      return write_pairs(stored, matrix, queries ? heads_ : kv_heads_);
    }
    if (stored.find("attn_") != std::string::npos) {
      return write_attention(stored, shape, matrix.form.type, matrix.bytes);
    }
    writer_.tensor(stored, shape, matrix.form.type, matrix.bytes);
  }

  // Two architectures stand for the converter's option to join queries, keys and values.
  void write_attention(const std::string& stored, const Shape& shape, uint32_t type,
                       std::span<const std::byte> bytes) {
    const size_t at = stored.find("attn_") + 5;
    const bool is_part = stored[at + 1] == '.' && std::string_view("qkv").find(stored[at]) < 3;
    if (!is_part || (architecture_ != "seed_oss" && architecture_ != "smollm3")) {
      return writer_.tensor(stored, shape, type, bytes);
    }
    std::string joined = stored;
    joined.replace(at, 1, "qkv");
    auto& parts = joined_[joined];
    parts.push_back({stored, shape, type, {bytes.begin(), bytes.end()}});
    if (parts.size() < 3) return;
    const bool alike = parts[0].type == parts[1].type && parts[1].type == parts[2].type;
    std::ranges::sort(parts, [](const Part& a, const Part& b) {
      constexpr std::string_view kOrder = "qkv";
      const size_t letter = a.name.find("attn_") + 5;
      return kOrder.find(a.name[letter]) < kOrder.find(b.name[letter]);
    });
    std::vector<std::byte> all;
    int64_t rows = 0;
    for (const Part& part : parts) {
      if (!alike) writer_.tensor(part.name, part.shape, part.type, part.bytes);
      all.insert(all.end(), part.bytes.begin(), part.bytes.end());
      rows += part.shape[0];
    }
    if (!alike) return;
    writer_.tensor(joined, shape.rank() == 1 ? Shape{rows} : Shape{rows, shape[1]}, type, all);
  }

  // [heads, 2, half, ...] becomes [heads, half, 2, ...].
  void write_pairs(const std::string& stored, const Matrix& matrix, int64_t heads) {
    const Shape& shape = matrix.values.shape();
    const int64_t half = shape[0] / heads / 2;
    const size_t size = matrix.bytes.size() / static_cast<size_t>(shape[0]);
    std::vector<std::byte> bytes;
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t i = 0; i < half; ++i) {
        for (int64_t side = 0; side < 2; ++side) {
          const auto row = static_cast<size_t>((head * 2 + side) * half + i);
          const auto from = std::span(matrix.bytes).subspan(row * size, size);
          bytes.insert(bytes.end(), from.begin(), from.end());
        }
      }
    }
    write_attention(stored, shape, matrix.form.type, bytes);
  }

  // Rows of each key head, its q, k, v and z, become all q, k and v, and all z.
  void write_qkvz(const std::string& block, const Matrix& matrix) {
    const int64_t key_heads = config_.at("linear_num_key_heads");
    const int64_t key_dim = config_.at("linear_key_head_dim");
    const int64_t each = config_.at("linear_num_value_heads").get<int64_t>() / key_heads;
    const int64_t value_dim = config_.at("linear_value_head_dim");
    const int64_t values = each * value_dim;
    const int64_t group = 2 * key_dim + 2 * values;
    std::vector<std::byte> qkv, z;
    const auto append = [&](std::vector<std::byte>& to, int64_t index) {
      const auto row = matrix.row(index);
      to.insert(to.end(), row.begin(), row.end());
    };
    for (const int64_t first : {int64_t{0}, key_dim}) {
      for (int64_t i = 0; i < key_heads * key_dim; ++i) {
        append(qkv, i / key_dim * group + first + i % key_dim);
      }
    }
    const auto append_values = [&](std::vector<std::byte>& to, int64_t first) {
      each_stored_head_row(value_dim, [&](int64_t head, int64_t i) {
        append(to, head / each * group + first + head % each * value_dim + i);
      });
    };
    append_values(qkv, 2 * key_dim);
    append_values(z, 2 * key_dim + values);
    const int64_t width = matrix.values.shape()[1];
    writer_.tensor(block + "attn_qkv.weight", {key_heads * (2 * key_dim + values), width},
                   matrix.form.type, qkv);
    writer_.tensor(block + "attn_gate.weight", {key_heads * values, width}, matrix.form.type, z);
  }

  // Rows of each key head, the b of its value heads and their a, become all b and all a.
  void write_ba(const std::string& block, const Matrix& matrix) {
    const int64_t heads = config_.at("linear_num_value_heads");
    const int64_t each = heads / config_.at("linear_num_key_heads").get<int64_t>();
    for (const int64_t side : {0, 1}) {
      std::vector<std::byte> rows;
      each_stored_head_row(1, [&](int64_t head, int64_t) {
        const auto row = matrix.row(head / each * 2 * each + side * each + head % each);
        rows.insert(rows.end(), row.begin(), row.end());
      });
      writer_.tensor(block + (side == 0 ? "ssm_beta.weight" : "ssm_alpha.weight"),
                     {heads, matrix.values.shape()[1]}, matrix.form.type, rows);
    }
  }

  // [channels, 1, window]: of queries and keys, then of value heads.
  void write_convolution(const std::string& block, const Matrix& matrix) {
    const Shape& shape = matrix.values.shape();
    const int64_t width = config_.at("linear_value_head_dim");
    const int64_t values = width * config_.at("linear_num_value_heads").get<int64_t>();
    const int64_t keys = shape[0] - values, window = shape[2];
    const std::span<const float> all = matrix.values.span<const float>();
    std::vector<float> stored(all.begin(), all.begin() + keys * window);
    each_stored_head_row(width, [&](int64_t head, int64_t i) {
      const auto row = all.subspan(static_cast<size_t>((keys + head * width + i) * window),
                                   static_cast<size_t>(window));
      stored.insert(stored.end(), row.begin(), row.end());
    });
    writer_.tensor(block + "ssm_conv1d.weight", {shape[0], window}, stored);
  }

  // Numbers of each head of a recurrence. Those of Mamba-2 but its dt_bias are columns.
  void write_head_numbers(const std::string& block, const std::string& part, const Matrix& matrix) {
    const std::span<const float> hub = matrix.values.span<const float>();
    std::vector<float> stored(hub.begin(), hub.end());
    const bool is_delta_net = part.starts_with("linear_attn.");
    for (size_t i = 0; i < stored.size(); ++i) {
      const size_t at =
          is_delta_net ? static_cast<size_t>(stored_head(static_cast<int64_t>(i))) : i;
      stored[at] = part.ends_with("A_log") ? -std::exp(hub[i]) : hub[i];
    }
    const int64_t heads = std::ssize(stored);
    if (part.ends_with("dt_bias")) return writer_.tensor(block + "ssm_dt.bias", {heads}, stored);
    writer_.tensor(block + (part.ends_with(".D") ? "ssm_d" : "ssm_a"),
                   is_delta_net ? Shape{heads} : Shape{heads, 1}, stored);
  }

  // The upper and the lower half of a matrix's rows.
  void write_halves(const std::string& block, const Matrix& matrix, const std::string& upper,
                    const std::string& lower) {
    const Shape half{matrix.values.shape()[0] / 2, matrix.values.shape()[1]};
    const auto bytes = std::span<const std::byte>(matrix.bytes);
    writer_.tensor(block + upper + ".weight", half, matrix.form.type,
                   bytes.first(bytes.size() / 2));
    writer_.tensor(block + lower + ".weight", half, matrix.form.type, bytes.last(bytes.size() / 2));
  }

  // All experts of a layer, or their biases.
  void write_input_major(const std::string& block, const std::string& part, const Matrix& matrix) {
    const Shape& shape = matrix.values.shape();
    const int64_t experts = shape[0];
    const bool is_of_two = part.find("gate_up") != std::string::npos;
    if (part.ends_with("bias")) {
      if (!is_of_two) return write(block + "ffn_down_exps.bias", matrix);
      const std::span<const float> both = matrix.values.span<const float>();
      for (const int64_t side : {0, 1}) {
        std::vector<float> own;
        for (auto i = static_cast<size_t>(side); i < both.size(); i += 2) own.push_back(both[i]);
        writer_.tensor(block + (side == 0 ? "ffn_gate_exps.bias" : "ffn_up_exps.bias"),
                       {experts, shape[1] / 2}, own);
      }
      return;
    }
    if (!is_of_two) {
      return writer_.tensor(block + "ffn_down_exps.weight", {experts, shape[2], shape[1]},
                            matrix.form.type, matrix.bytes);
    }
    const int64_t half = shape[2] / 2;
    const size_t size = matrix.bytes.size() / static_cast<size_t>(experts * 2);
    for (const size_t side : {size_t{0}, size_t{1}}) {
      std::vector<std::byte> own;
      for (size_t e = 0; e < static_cast<size_t>(experts); ++e) {
        const auto from = std::span(matrix.bytes).subspan((2 * e + side) * size, size);
        own.insert(own.end(), from.begin(), from.end());
      }
      writer_.tensor(block + (side == 0 ? "ffn_gate_exps.weight" : "ffn_up_exps.weight"),
                     {experts, half, shape[1]}, matrix.form.type, own);
    }
  }

  // "mlp.experts.3.up_proj.weight" or "block_sparse_moe.experts.3.w3.weight".
  void collect_expert(const std::string& block, const std::string& part, const Matrix& matrix) {
    const size_t begin = part.find("experts.") + 8;
    const size_t dot = part.find('.', begin);
    const std::string projection = part.substr(dot + 1, part.rfind('.') - dot - 1);
    const std::map<std::string, std::string> names = {
        {"gate_proj", "ffn_gate_exps"}, {"up_proj", "ffn_up_exps"}, {"down_proj", "ffn_down_exps"},
        {"w1", "ffn_gate_exps"},        {"w3", "ffn_up_exps"},      {"w2", "ffn_down_exps"}};
    experts_[block + names.at(projection) + ".weight"][std::stoi(part.substr(begin, dot - begin))] =
        &matrix;
  }

  void write_experts(const std::string& name, const std::map<int, const Matrix*>& experts) {
    const Matrix& first = *experts.begin()->second;
    std::vector<std::byte> bytes;
    for (const auto& [index, matrix] : experts) {
      bytes.insert(bytes.end(), matrix->bytes.begin(), matrix->bytes.end());
    }
    const Shape& shape = first.values.shape();
    writer_.tensor(name, {static_cast<int64_t>(experts.size()), shape[0], shape[1]},
                   first.form.type, bytes);
  }

  // Gate and up of each expert in one matrix.
  void write_joined_experts(const std::string& block, const std::map<int, const Matrix*>& gates) {
    std::vector<std::byte> bytes;
    for (const auto& [index, gate] : gates) {
      const Matrix& up = *experts_.at(block + "ffn_up_exps.weight").at(index);
      bytes.insert(bytes.end(), gate->bytes.begin(), gate->bytes.end());
      bytes.insert(bytes.end(), up.bytes.begin(), up.bytes.end());
    }
    const Matrix& first = *gates.begin()->second;
    const Shape& shape = first.values.shape();
    writer_.tensor(block + "ffn_gate_up_exps.weight", {std::ssize(gates), 2 * shape[0], shape[1]},
                   first.form.type, bytes);
  }

  void write_folder() {
    std::filesystem::create_directories(hub());
    folder_.write("hub/config.json", config_.dump());
    std::vector<checkpoint::NamedTensor> tensors;
    for (auto& [name, matrix] : matrices_) {
      if (name.ends_with("A_log")) {
        // As it is after -exp() was rounded to fp32, and so is its logarithm.
        for (float& value : matrix.values.span<float>()) value = std::log(std::exp(value));
      }
      tensors.push_back({name, matrix.values.view()});
    }
    EXPECT_TRUE(checkpoint::write_safetensors(hub() / "model.safetensors", tensors).ok());
    write_gguf();
  }

  checkpoint::testing::TemporaryFolder folder_;
  nlohmann::json config_;
  std::string architecture_;
  int64_t heads_ = 0;
  int64_t kv_heads_ = 0;
  int64_t head_dim_ = 0;
  std::map<std::string, Matrix> matrices_;  // by hub name
  std::map<std::string, std::map<int, const Matrix*>> experts_;

  struct Part {
    std::string name;
    Shape shape;
    uint32_t type;
    std::vector<std::byte> bytes;
  };

  std::map<std::string, std::vector<Part>> joined_;  // parts seen, by the name of the whole
  std::map<std::string, std::pair<Matrix, Matrix>> latents_;  // of keys and values, by hub name
  checkpoint::testing::GgufWriter writer_;
};

}  // namespace heddle::testing
