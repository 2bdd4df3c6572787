// SPDX-License-Identifier: Apache-2.0
#include "support/dense_model.h"

#include <cstdint>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "core/check.h"
#include "core/dtype.h"

namespace heddle::testing {
namespace {

constexpr std::string_view kConfig = R"({
  "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "dtype": "bfloat16", "hidden_act": "silu",
  "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "layer_types": ["full_attention", "full_attention", "full_attention"],
  "max_position_embeddings": 2048, "max_window_layers": 28, "sliding_window": null, "use_sliding_window": false,
  "rms_norm_eps": 1e-06, "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
  "tie_word_embeddings": false, "vocab_size": 320, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0
})";

struct Weight {
  std::string name;
  std::vector<int64_t> shape;
};

std::vector<Weight> weights() {
  std::vector<Weight> all = {{"lm_head.weight", {320, 64}},
                             {"model.embed_tokens.weight", {320, 64}}};
  for (int layer = 0; layer < 3; ++layer) {
    const auto add = [&](std::string_view name, std::vector<int64_t> shape) {
      all.push_back({fmt::format("model.layers.{}.{}", layer, name), std::move(shape)});
    };
    add("input_layernorm.weight", {64});
    add("mlp.down_proj.weight", {64, 96});
    add("mlp.gate_proj.weight", {96, 64});
    add("mlp.up_proj.weight", {96, 64});
    add("post_attention_layernorm.weight", {64});
    for (const auto& [name, rows] : {std::pair("q", 64), {"k", 32}, {"v", 32}}) {
      add(fmt::format("self_attn.{}_proj.weight", name), {rows, 64});
      add(fmt::format("self_attn.{}_proj.bias", name), {rows});
    }
    add("self_attn.o_proj.weight", {64, 64});
  }
  all.push_back({"model.norm.weight", {64}});
  return all;
}

// Sums of twelve uniform numbers are nearly normal, and the same with every standard library.
double nearly_normal(std::mt19937& generator) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += static_cast<uint32_t>(generator()) / 4294967296.0;
  return sum;
}

void write_weights(const std::filesystem::path& path) {
  std::string header = "{";
  std::vector<Bf16> values;
  for (const Weight& weight : weights()) {
    int64_t count = 1;
    for (const int64_t size : weight.shape) count *= size;
    const size_t begin = values.size() * sizeof(Bf16);
    std::seed_seq seed(weight.name.begin(), weight.name.end());
    std::mt19937 generator(seed);
    const bool is_norm = weight.name.ends_with("norm.weight");
    for (int64_t i = 0; i < count; ++i) {
      const double value = nearly_normal(generator);
      values.push_back(to_bf16(static_cast<float>(is_norm ? 1 + 0.2 * value : 0.15 * value)));
    }
    header += fmt::format(R"({}"{}":{{"dtype":"BF16","shape":[{}],"data_offsets":[{},{}]}})",
                          header.size() > 1 ? "," : "", weight.name, fmt::join(weight.shape, ","),
                          begin, values.size() * sizeof(Bf16));
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << header;
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(Bf16)));
  HEDDLE_CHECK(file.good());
}

class DenseModel {
 public:
  DenseModel()
      : folder_(std::filesystem::temp_directory_path() /
                fmt::format("heddle_dense_model_{}", getpid())) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "config.json") << kConfig;
    std::ofstream(folder_ / "generation_config.json")
        << R"({"bos_token_id": 1, "eos_token_id": 2})";
    write_weights(folder_ / "model.safetensors");
  }

  ~DenseModel() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  DenseModel(const DenseModel&) = delete;
  DenseModel& operator=(const DenseModel&) = delete;

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

}  // namespace

const std::filesystem::path& dense_model() {
  static const DenseModel model;
  return model.folder();
}

}  // namespace heddle::testing
