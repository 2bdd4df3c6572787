// SPDX-License-Identifier: Apache-2.0
#include "models/layers/latent_attention.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/safetensors.h"

namespace heddle::models {
namespace {

using checkpoint::NamedTensor;

checkpoint::ModelConfig tiny_config() {
  checkpoint::ModelConfig config;
  config.hidden_size = 4;
  config.num_attention_heads = 2;
  config.head_dim = 2;
  config.latent_attention = {
      .kv_lora_rank = 64, .qk_nope_head_dim = 2, .qk_rope_head_dim = 2, .v_head_dim = 1};
  return config;
}

// The weights of one layer's mixer, its kv_b_proj [6, 64] as codes 1, 2, 3, ... with a scale of
// half the row's number.
class QuantisedLatentAttention {
 public:
  QuantisedLatentAttention() : mixer_(tiny_config()) {
    for (const char* name : {"q_proj", "kv_a_proj_with_mqa", "o_proj"}) {
      const Shape shape = std::string_view(name) == "q_proj"   ? Shape{8, 4}
                          : std::string_view(name) == "o_proj" ? Shape{4, 2}
                                                               : Shape{66, 4};
      add(std::string(name) + ".weight", checkpoint::testing::counting(shape, DType::kF32));
    }
    add("kv_a_layernorm.weight", checkpoint::testing::counting({64}, DType::kF32));
    Tensor codes({6, 64}, DType::kI8);
    for (int64_t i = 0; i < codes.num_elements(); ++i) {
      codes.span<int8_t>()[static_cast<size_t>(i)] = code(i / 64, i % 64);
    }
    add("kv_b_proj.weight", std::move(codes));
    Tensor scales({6, 1}, DType::kF32);
    for (size_t row = 0; row < 6; ++row) scales.span<float>()[row] = scale(row);
    add("kv_b_proj.weight_scale", std::move(scales));
  }

  static int8_t code(int64_t row, int64_t column) {
    return static_cast<int8_t>((row * 64 + column) % 101 - 50);
  }

  static float scale(size_t row) { return static_cast<float>(row + 1) / 2; }

  // The tensors that derive_weights() adds where weights run as `dtype`; none: as stored, in fp32.
  DerivedWeights derive(std::optional<DType> dtype) {
    std::vector<NamedTensor> named;
    for (size_t i = 0; i < names_.size(); ++i) named.push_back({names_[i], tensors_[i].view()});
    EXPECT_TRUE(write_safetensors(folder_.path() / "model.safetensors", named).ok());
    auto files = checkpoint::CheckpointFiles::open(folder_.path());
    EXPECT_TRUE(files.ok()) << files.status().to_string();
    auto quantization = checkpoint::parse_quantization_config({{"quant_method", "w8a8_int8"}});
    EXPECT_TRUE(quantization.ok()) << quantization.status().to_string();
    std::vector<checkpoint::WeightSpec> specs;
    mixer_.add_weights(specs, "self_attn.", "");
    auto weights = load_weights(std::make_unique<checkpoint::CheckpointFiles>(std::move(*files)),
                                specs, {.dtype = dtype, .quantization = &*quantization});
    EXPECT_TRUE(weights.ok()) << weights.status().to_string();
    DerivedWeights derived;
    if (weights.ok()) mixer_.derive_weights(*weights, "self_attn.", derived);
    return derived;
  }

 private:
  void add(std::string name, Tensor tensor) {
    names_.push_back(std::move(name));
    tensors_.push_back(std::move(tensor));
  }

  LatentAttention mixer_;
  checkpoint::testing::TemporaryFolder folder_;
  std::vector<std::string> names_;
  std::vector<Tensor> tensors_;
};

TEST(LatentAttention, MakesAQuantisedKeyAndValueProjectionPlainNumbers) {
  QuantisedLatentAttention layer;
  for (const std::optional<DType> asked :
       {std::optional(DType::kF32), std::optional(DType::kBf16), std::optional<DType>()}) {
    const DType dtype = asked.value_or(DType::kF32);
    const DerivedWeights derived = layer.derive(asked);
    ASSERT_EQ(derived.size(), 1u);
    EXPECT_EQ(derived[0].first, "self_attn.kv_b_proj_dense");
    const TensorView dense = derived[0].second.view();
    EXPECT_EQ(dense.dtype, dtype);
    ASSERT_EQ(dense.shape, (Shape{6, 64}));
    const std::vector<float> values = checkpoint::testing::floats(dense);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto row = static_cast<int64_t>(i) / 64, column = static_cast<int64_t>(i) % 64;
      const float exact = static_cast<float>(QuantisedLatentAttention::code(row, column)) *
                          QuantisedLatentAttention::scale(i / 64);
      ASSERT_EQ(values[i], dtype == DType::kF32 ? exact : to_float(to_bf16(exact))) << i;
    }
  }
}

}  // namespace
}  // namespace heddle::models
