// SPDX-License-Identifier: Apache-2.0
// EagleReference: a network of EAGLE with random weights, in files for heddle-tiny, and what it
// computes, in double precision and slot by slot.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/safetensors.h"
#include "support/tensors.h"

namespace heddle::testing {

class EagleReference {
 public:
  using Vector = std::vector<double>;

  // Writes config.json and model.safetensors to the folder. `embedding` and `head`, [V, H], are the
  // model's.
  EagleReference(const std::filesystem::path& folder, const TensorView& embedding,
                 const TensorView& head)
      : embedding_(to_doubles(embedding)), head_(to_doubles(head)), vocab_size_(head.shape[0]) {
    const std::pair<const char*, Shape> shapes[] = {
        {"fc.weight", {kWidth, 2 * kWidth}},
        {"fc.bias", {kWidth}},
        {"layers.0.self_attn.q_proj.weight", {kHeads * kHeadDim, kWidth}},
        {"layers.0.self_attn.q_proj.bias", {kHeads * kHeadDim}},
        {"layers.0.self_attn.k_proj.weight", {kKvHeads * kHeadDim, kWidth}},
        {"layers.0.self_attn.k_proj.bias", {kKvHeads * kHeadDim}},
        {"layers.0.self_attn.v_proj.weight", {kKvHeads * kHeadDim, kWidth}},
        {"layers.0.self_attn.v_proj.bias", {kKvHeads * kHeadDim}},
        {"layers.0.self_attn.o_proj.weight", {kWidth, kHeads * kHeadDim}},
        {"layers.0.post_attention_layernorm.weight", {kWidth}},
        {"layers.0.mlp.gate_proj.weight", {kInner, kWidth}},
        {"layers.0.mlp.up_proj.weight", {kInner, kWidth}},
        {"layers.0.mlp.down_proj.weight", {kWidth, kInner}}};
    std::vector<Tensor> tensors;
    std::vector<checkpoint::NamedTensor> named;
    tensors.reserve(std::size(shapes));
    for (const auto& [name, shape] : shapes) {
      tensors.push_back(random_tensor(shape, DType::kF32, 100 + tensors.size()));
      const float scale = shape.rank() == 2 ? 1.5f / std::sqrt(static_cast<float>(shape[1])) : 0.5f;
      float* values = tensors.back().view().as<float>();
      for (int64_t i = 0; i < shape.num_elements(); ++i) values[i] *= scale;
      named.push_back({name, tensors.back().view()});
      weights_[name] = to_doubles(tensors.back().view());
    }
    EXPECT_TRUE(checkpoint::write_safetensors(folder / "model.safetensors", named).ok());
    const nlohmann::json config = {{"architectures", {"LlamaForCausalLMEagle"}},
                                   {"vocab_size", vocab_size_},
                                   {"hidden_size", kWidth},
                                   {"intermediate_size", kInner},
                                   {"num_hidden_layers", 1},
                                   {"num_attention_heads", kHeads},
                                   {"num_key_value_heads", kKvHeads},
                                   {"head_dim", kHeadDim},
                                   {"max_position_embeddings", 8192},
                                   {"rms_norm_eps", kEpsilon},
                                   {"rope_theta", kTheta},
                                   {"qkv_bias", true}};
    std::ofstream(folder / "config.json") << config.dump();
  }

  // Slots from `position` on are forgotten, and that one is computed: `id` is the token behind it,
  // `vector` [H] what it reads. Returns what the next slot would read.
  Vector slot(int64_t position, int32_t id, std::span<const double> vector) {
    keys_.resize(static_cast<size_t>(position));
    values_.resize(static_cast<size_t>(position));
    Vector in(embedding_.begin() + id * kWidth, embedding_.begin() + (id + 1) * kWidth);
    in.insert(in.end(), vector.begin(), vector.end());
    Vector x = linear("fc", in);
    Vector q = linear("layers.0.self_attn.q_proj", x);
    keys_.push_back(linear("layers.0.self_attn.k_proj", x));
    values_.push_back(linear("layers.0.self_attn.v_proj", x));
    rotate(q, position);
    rotate(keys_.back(), position);
    add(x, linear("layers.0.self_attn.o_proj", attend(q)));
    double squares = 0;
    for (const double value : x) squares += value * value;
    const Vector& scale = weights_.at("layers.0.post_attention_layernorm.weight");
    Vector normed = x;
    for (size_t i = 0; i < normed.size(); ++i) {
      normed[i] *= scale[i] / std::sqrt(squares / kWidth + kEpsilon);
    }
    Vector inner = linear("layers.0.mlp.gate_proj", normed);
    const Vector up = linear("layers.0.mlp.up_proj", normed);
    for (size_t i = 0; i < inner.size(); ++i) inner[i] *= up[i] / (1 + std::exp(-inner[i]));
    add(x, linear("layers.0.mlp.down_proj", inner));
    return x;
  }

  // Of a slot that gave `vector`.
  [[nodiscard]] Vector logits(const Vector& vector) const {
    return product(head_, vector, vocab_size_);
  }

 private:
  static constexpr int64_t kWidth = 256, kInner = 96, kHeads = 4, kKvHeads = 2, kHeadDim = 48;
  static constexpr double kEpsilon = 1e-5, kTheta = 10000;

  static Vector product(const Vector& weight, const Vector& x, int64_t rows) {
    Vector y(static_cast<size_t>(rows));
    for (size_t row = 0; row < y.size(); ++row) {
      for (size_t i = 0; i < x.size(); ++i) y[row] += weight[row * x.size() + i] * x[i];
    }
    return y;
  }

  static void add(Vector& to, const Vector& other) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += other[i];
  }

  [[nodiscard]] Vector linear(const std::string& name, const Vector& x) const {
    const Vector& weight = weights_.at(name + ".weight");
    Vector y = product(weight, x, std::ssize(weight) / std::ssize(x));
    const auto bias = weights_.find(name + ".bias");
    if (bias != weights_.end()) add(y, bias->second);
    return y;
  }

  // Halves of each head are the pairs.
  static void rotate(Vector& heads, int64_t position) {
    constexpr size_t kHalf = kHeadDim / 2;
    for (size_t head = 0; head < heads.size(); head += kHeadDim) {
      for (size_t i = 0; i < kHalf; ++i) {
        const double angle = static_cast<double>(position) *
                             std::pow(kTheta, -2.0 * static_cast<double>(i) / kHeadDim);
        double& a = heads[head + i];
        double& b = heads[head + kHalf + i];
        const double first = a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + a * std::sin(angle);
        a = first;
      }
    }
  }

  [[nodiscard]] Vector attend(const Vector& q) const {
    Vector out(q.size());
    for (int64_t head = 0; head < kHeads; ++head) {
      const int64_t from = head / (kHeads / kKvHeads) * kHeadDim, to = head * kHeadDim;
      Vector weights;
      double total = 0;
      for (const Vector& key : keys_) {
        double score = 0;
        for (int64_t i = 0; i < kHeadDim; ++i) {
          score += q[static_cast<size_t>(to + i)] * key[static_cast<size_t>(from + i)];
        }
        weights.push_back(std::exp(score / std::sqrt(double{kHeadDim})));
        total += weights.back();
      }
      for (size_t slot = 0; slot < values_.size(); ++slot) {
        for (int64_t i = 0; i < kHeadDim; ++i) {
          out[static_cast<size_t>(to + i)] +=
              weights[slot] / total * values_[slot][static_cast<size_t>(from + i)];
        }
      }
    }
    return out;
  }

  Vector embedding_, head_;
  int64_t vocab_size_;
  std::map<std::string, Vector> weights_;
  std::vector<Vector> keys_, values_;  // by slot
};

}  // namespace heddle::testing
