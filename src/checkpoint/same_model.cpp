// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/same_model.h"

#include <string>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>

namespace heddle::checkpoint {

namespace {

// Compares values one after the other and remembers the first difference.
class Comparison {
 public:
  template <typename T>
  void field(std::string_view name, const T& used, const T& other) {
    if (!status_.ok() || used == other) return;
    if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      status_ = differs_from_used(fmt::format("{} is {}, and {} in use", name, other, used));
    } else {
      status_ = differs_from_used(fmt::format("{} differ from those in use", name));
    }
  }

  [[nodiscard]] const Status& status() const { return status_; }

 private:
  Status status_;
};

KvCacheScheme kv_cache_of(const ModelConfig& config) {
  return config.quantization ? config.quantization->kv_cache : KvCacheScheme::kNone;
}

}  // namespace

Status differs_from_used(std::string_view difference) {
  return invalid_argument(
      fmt::format("{}; to serve this checkpoint, start an engine with it", difference));
}

Status check_same_model(const ModelConfig& used, const ModelConfig& other) {
  Comparison c;
  c.field("the architecture", used.architecture, other.architecture);
  c.field("vocab_size", used.vocab_size, other.vocab_size);
  c.field("hidden_size", used.hidden_size, other.hidden_size);
  c.field("intermediate_size", used.intermediate_size, other.intermediate_size);
  c.field("num_hidden_layers", used.num_layers, other.num_layers);
  c.field("num_attention_heads", used.num_attention_heads, other.num_attention_heads);
  c.field("num_key_value_heads", used.num_key_value_heads, other.num_key_value_heads);
  c.field("head_dim", used.head_dim, other.head_dim);
  c.field("max_position_embeddings", used.max_position_embeddings, other.max_position_embeddings);
  c.field("rms_norm_eps", used.rms_norm_eps, other.rms_norm_eps);
  c.field("attention_bias", used.attention_bias, other.attention_bias);
  c.field("tie_word_embeddings", used.tie_word_embeddings, other.tie_word_embeddings);
  c.field("the settings of rotary embeddings", used.rope, other.rope);
  c.field("the settings of rotary embeddings in sliding layers", used.sliding_rope,
          other.sliding_rope);
  c.field("the kinds of layers", used.layer_kinds, other.layer_kinds);
  c.field("sliding_window", used.sliding_window, other.sliding_window);
  c.field("the layers with experts", used.is_moe_layer, other.is_moe_layer);
  c.field("the settings of latent attention", used.latent_attention, other.latent_attention);
  c.field("the settings of linear attention", used.linear_attention, other.linear_attention);
  c.field("the settings of experts", used.moe, other.moe);
  c.field("the settings of the family", used.own, other.own);
  c.field("the formats of the KV cache", kv_cache_of(used), kv_cache_of(other));
  return c.status();
}

}  // namespace heddle::checkpoint
