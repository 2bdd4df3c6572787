// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding as a checkpoint configures it, and the frequencies that follow.
// Su et al., "RoFormer", arXiv:2104.09864; Peng et al., "YaRN", arXiv:2309.00071.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <heddle/status.h>

namespace heddle::checkpoint {

class ConfigReader;

enum class RopeType : uint8_t { kDefault, kLinear, kLlama3, kYarn, kProportional, kLongRope };

[[nodiscard]] std::string_view to_string(RopeType type);  // "default", "linear", ...

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000;
  double partial_rotary_factor = 1;              // the part of each head that is rotated
  double factor = 1;                             // context extension, every type but default
  int64_t original_max_position_embeddings = 0;  // before extension; 0 where nothing reads it

  // llama3
  double low_freq_factor = 1;
  double high_freq_factor = 4;

  // yarn
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;
  std::optional<double> attention_factor;  // also for longrope
  double mscale = 0;                       // 0: not given
  double mscale_all_dim = 0;

  // longrope only (Ding et al., "LongRoPE", arXiv:2402.13753): divisors of the frequency of each
  // pair, [rotary_width / 2]. `divisors` is for sequences of up to original_max_position_embeddings
  // tokens. `long_divisors` is for all rows of longer sequences; empty if no sequence can be
  // longer.
  std::vector<double> divisors = {};
  std::vector<double> long_divisors = {};

  // Queries at position p are multiplied by 1 + beta ln(1 + floor(p / original length)) (Ministral
  // 3); 0: not at all.
  double query_scale_beta = 0;

  bool operator==(const RopeConfig&) const = default;
};

// The settings of a model's layers.
struct RopeConfigs {
  RopeConfig rope;                         // all layers, or those with full attention
  std::optional<RopeConfig> sliding = {};  // sliding-window layers, if they differ
};

// Reads three spellings: `rope_parameters {...}`, the same with one set for each kind of layer
// (full_attention, sliding_attention), and `rope_scaling {...}` with `rope_theta` and
// `partial_rotary_factor` beside it, and `rope_local_base_freq` for `slides`, models with sliding
// layers. `defaults` are the theta and the partial_rotary_factor of files that have none; a theta
// of 0 for the sliding layers is that of the others;
// `max_position_embeddings` stands in where the original length is not given. Errors stay in the
// reader. Error: kUnimplemented for types that change with the sequence (dynamic, longrope: a
// family that serves one of its tables reads it itself) and unknown ones.
RopeConfigs read_rope_configs(ConfigReader& root, const RopeConfigs& defaults, bool slides,
                              int64_t max_position_embeddings);

// Rotated elements of each head: the leading `head_dim * partial_rotary_factor`, rounded down; for
// the proportional type all of them, most by an angle of 0.
[[nodiscard]] int64_t rotary_width(const RopeConfig& rope, int64_t head_dim);

// Sequences of up to this many tokens use longrope's short divisors; 0: there is no limit.
[[nodiscard]] int64_t short_rope_tokens(const RopeConfig& rope);

struct RopeFrequencies {
  std::vector<float> inverse;  // [rotary_width / 2]: radians per position of each pair of elements
  // The same frequencies with the long divisors of longrope; empty: there are none.
  std::vector<float> inverse_of_long;
  float attention_factor = 1;  // multiplies both cosine and sine
};

// The factor of attention scores beside 1 / sqrt(width) where yarn gives mscale_all_dim
// (the DeepSeek families): (0.1 * mscale_all_dim * ln(factor) + 1)^2; 1 everywhere else.
[[nodiscard]] double yarn_score_factor(const RopeConfig& rope);

// Computed in double, rounded once. `head_dim` must give an even rotary width of at least 2.
[[nodiscard]] RopeFrequencies inverse_frequencies(const RopeConfig& rope, int64_t head_dim);

}  // namespace heddle::checkpoint
