// SPDX-License-Identifier: Apache-2.0
// GgufTwin: one model with random numbers twice, as a folder in the hub's layout and as a GGUF file
// that a converter would make of it. The file is written from the format's description and from
// what is known of the converters, without anything that reads it.
//
// A matrix is drawn as blocks, row by row; the hub has what these stand for.
#pragma once

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
    const Shape shape = tensor.shape();
    const bool small = shape.rank() < 2 || name.find("conv1d") != std::string::npos ||
                       name.ends_with("mlp.gate.weight") || name.ends_with("router.weight") ||
                       name.ends_with("shared_expert_gate.weight") ||
                       name.ends_with("block_sparse_moe.gate.weight");
    if (small) form = gguf_form("F32");
    const std::span<float> values = tensor.span<float>();
    if (name.ends_with("norm.weight")) change_norm(name, values);
    return store_rows(name, std::move(tensor), form);
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
    const bool zero_centred = architecture_ == "qwen3next" || architecture_ == "gemma3";
    return zero_centred && name.find("linear_attn.norm") == std::string_view::npos;
  }

  // Rounds as a number does to which 1 is added and from which it is taken again.
  void change_norm(std::string_view name, std::span<float> values) const {
    if (!adds_one(name)) return;
    for (float& value : values) value = (value + 1) - 1;
  }

  void write_sizes() {
    writer_.text("general.architecture", architecture_);
    const auto u32 = [&](std::string_view key, std::string_view hub) {
      if (config_.contains(hub)) {
        writer_.u32(fmt::format("{}.{}", architecture_, key), config_.at(hub).get<uint32_t>());
      }
    };
    u32("block_count", "num_hidden_layers");
    u32("context_length", "max_position_embeddings");
    u32("embedding_length", "hidden_size");
    u32("feed_forward_length", "intermediate_size");
    u32("attention.head_count", "num_attention_heads");
    u32("attention.head_count_kv", "num_key_value_heads");
    u32("attention.sliding_window", "sliding_window");
    u32("expert_count", config_.contains("num_experts") ? "num_experts" : "num_local_experts");
    u32("expert_used_count", "num_experts_per_tok");
    u32("expert_feed_forward_length",
        architecture_ == "gpt-oss" ? "intermediate_size" : "moe_intermediate_size");
    u32("expert_shared_feed_forward_length", "shared_expert_intermediate_size");
    u32("ssm.conv_kernel", "linear_conv_kernel_dim");
    u32("ssm.state_size", "linear_key_head_dim");
    u32("ssm.group_count", "linear_num_key_heads");
    u32("ssm.time_step_rank", "linear_num_value_heads");
    if (config_.contains("linear_value_head_dim")) {
      writer_.u32(architecture_ + ".ssm.inner_size",
                  config_.at("linear_value_head_dim").get<uint32_t>() *
                      config_.at("linear_num_value_heads").get<uint32_t>());
    }
    const auto head_dim = static_cast<uint32_t>(head_dim_);
    writer_.u32(architecture_ + ".attention.key_length", head_dim);
    writer_.u32(architecture_ + ".attention.value_length", head_dim);
    writer_.u32(architecture_ + ".rope.dimension_count",
                static_cast<uint32_t>(head_dim * config_.value("partial_rotary_factor", 1.0)));
    writer_.f32(architecture_ + ".rope.freq_base", config_.value("rope_theta", 10000.0f));
    writer_.f32(architecture_ + ".attention.layer_norm_rms_epsilon",
                config_.value("rms_norm_eps", 1e-6f));
  }

  // ---- The converter ----

  void write_tensors() {
    for (const auto& [name, matrix] : matrices_) {
      if (name == "model.embed_tokens.weight") write("token_embd.weight", matrix);
      if (name == "lm_head.weight") write("output.weight", matrix);
      if (name == "model.norm.weight") write("output_norm.weight", matrix, name);
      if (!name.starts_with("model.layers.")) continue;
      const size_t end = name.find('.', 13);
      const std::string layer = name.substr(13, end - 13);
      write_in_layer(fmt::format("blk.{}.", layer), name.substr(end + 1), name, matrix);
    }
    for (auto& [name, experts] : experts_) write_experts(name, experts);
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
    } else if (part == "linear_attn.A_log") {
      Tensor decay(matrix.values.shape(), DType::kF32);
      for (int64_t i = 0; i < decay.num_elements(); ++i) {
        const auto at = static_cast<size_t>(i);
        decay.span<float>()[at] = -std::exp(matrix.values.span<const float>()[at]);
      }
      writer_.tensor(block + "ssm_a", decay.shape(), decay.span<const float>());
    } else {
      const std::string stored = stored_name(part);
      if (stored.empty()) return ADD_FAILURE() << "no name for " << name;
      write(block + stored, matrix, name);
    }
  }

  [[nodiscard]] std::string stored_name(const std::string& part) const {
    const bool renamed =
        architecture_ == "gemma3" || architecture_ == "qwen3next" || architecture_ == "gpt-oss";
    const std::map<std::string, std::string> names = {
        {"input_layernorm", "attn_norm"},
        {"post_attention_layernorm", renamed ? "post_attention_norm" : "ffn_norm"},
        {"pre_feedforward_layernorm", "ffn_norm"},
        {"post_feedforward_layernorm", "post_ffw_norm"},
        {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},
        {"self_attn.o_proj", "attn_output"},
        {"self_attn.q_norm", "attn_q_norm"},
        {"self_attn.k_norm", "attn_k_norm"},
        {"mlp.gate_proj", "ffn_gate"},
        {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},
        {"mlp.gate", "ffn_gate_inp"},
        {"mlp.router", "ffn_gate_inp"},
        {"block_sparse_moe.gate", "ffn_gate_inp"},
        {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
        {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
        {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
        {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
        {"linear_attn.in_proj_ba", "ssm_ba"},
        {"linear_attn.conv1d", "ssm_conv1d"},
        {"linear_attn.norm", "ssm_norm"},
        {"linear_attn.out_proj", "ssm_out"},
    };
    if (part == "linear_attn.dt_bias") return "ssm_dt.bias";
    if (part == "self_attn.sinks") return "attn_sinks.weight";
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
    if (hub.ends_with("conv1d.weight")) shape = {shape[0], shape[2]};
    if (hub.ends_with("shared_expert_gate.weight")) shape = Shape{shape[1]};
    const bool queries = hub.find(".q_proj.") != std::string::npos;
    if (architecture_ == "llama" && (queries || hub.find(".k_proj.") != std::string::npos)) {
      return write_pairs(stored, matrix, queries ? heads_ : kv_heads_);
    }
    writer_.tensor(stored, shape, matrix.form.type, matrix.bytes);
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
    writer_.tensor(stored, shape, matrix.form.type, bytes);
  }

  // Rows of each key head, its q, k, v and z, become all q, k and v, and all z.
  void write_qkvz(const std::string& block, const Matrix& matrix) {
    const int64_t key_heads = config_.at("linear_num_key_heads");
    const int64_t key_dim = config_.at("linear_key_head_dim");
    const int64_t values = config_.at("linear_num_value_heads").get<int64_t>() / key_heads *
                           config_.at("linear_value_head_dim").get<int64_t>();
    const int64_t group = 2 * key_dim + 2 * values;
    std::vector<std::byte> qkv, z;
    const auto append = [&](std::vector<std::byte>& to, int64_t begin, int64_t count) {
      for (int64_t head = 0; head < key_heads; ++head) {
        for (int64_t i = 0; i < count; ++i) {
          const auto row = matrix.row(head * group + begin + i);
          to.insert(to.end(), row.begin(), row.end());
        }
      }
    };
    append(qkv, 0, key_dim);
    append(qkv, key_dim, key_dim);
    append(qkv, 2 * key_dim, values);
    append(z, 2 * key_dim + values, values);
    const int64_t width = matrix.values.shape()[1];
    writer_.tensor(block + "attn_qkv.weight", {key_heads * (2 * key_dim + values), width},
                   matrix.form.type, qkv);
    writer_.tensor(block + "attn_gate.weight", {key_heads * values, width}, matrix.form.type, z);
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
  checkpoint::testing::GgufWriter writer_;
};

}  // namespace heddle::testing
