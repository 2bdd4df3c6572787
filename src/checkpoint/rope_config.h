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

// the name in config files: "default", "linear", ...
[[nodiscard]] std::string_view to_string(RopeType type);

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000;
  double partial_rotary_factor = 1;              // fraction of each head's elements that is rotated
  double factor = 1;                             // factor of the context extension, for every type
                                                 // but default
  int64_t original_max_position_embeddings = 0;  // context length before extension; 0 if the type
                                                 // does not use it

  // llama3 only: the bounds of its frequency ramp.
  double low_freq_factor = 1;
  double high_freq_factor = 4;

  // Settings of yarn only.
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;
  std::optional<double> attention_factor;  // multiplies cosine and sine; for yarn and longrope
  double mscale = 0;                       // yarn's mscale; 0: not in the file
  double mscale_all_dim = 0;

  // longrope only (Ding et al., "LongRoPE", arXiv:2402.13753): divisors of the frequency of each
  // pair, [rotary_width / 2]. `divisors` is for sequences of up to original_max_position_embeddings
  // tokens. `long_divisors` is for all rows of longer sequences; empty if no sequence can be
  // longer.
  std::vector<double> divisors = {};
  std::vector<double> long_divisors = {};

  // Models with vision: the number of pairs that are rotated by each part of a position (time, row,
  // column). Empty: a position is one number.
  std::vector<int64_t> sections = {};
  // The pairs of the three sections alternate; otherwise those of a section are adjacent.
  bool interleaves_sections = false;

  // Queries at position p are multiplied by 1 + beta ln(1 + floor(p / original length)) (Ministral
  // 3). 0: queries are not scaled.
  double query_scale_beta = 0;

  bool operator==(const RopeConfig&) const = default;
};

// The rotary settings of a model's layers, by kind of layer.
struct RopeConfigs {
  RopeConfig rope;                         // rope of all layers or, if `sliding` is set, of those
                                           // with full attention
  std::optional<RopeConfig> sliding = {};  // rope of the sliding-window layers if theirs is another
};

// Reads three spellings: `rope_parameters {...}`; the same with one set for each kind of layer
// (full_attention, sliding_attention); and `rope_scaling {...}` with separate keys `rope_theta`,
// `partial_rotary_factor` and, if the model has sliding layers (`slides`), `rope_local_base_freq`.
// `defaults` has the theta and the partial_rotary_factor of files without these keys; a default
// theta of 0 for sliding layers means that of the other layers. `max_position_embeddings` is used
// if the original length is absent. Errors are stored in the reader: kUnimplemented for unknown
// types and for those that change with the sequence (dynamic, longrope; a family that serves one of
// longrope's tables reads it itself).
RopeConfigs read_rope_configs(ConfigReader& root, const RopeConfigs& defaults, bool slides,
                              int64_t max_position_embeddings);

// Rotated elements of each head: the leading `head_dim * partial_rotary_factor`, rounded down; for
// the proportional type all of them, most by an angle of 0.
[[nodiscard]] int64_t rotary_width(const RopeConfig& rope, int64_t head_dim);

// The longest sequence, in tokens, that uses longrope's short divisors; 0: no limit.
[[nodiscard]] int64_t short_rope_tokens(const RopeConfig& rope);

// The part of a position (0: time, 1: row, 2: column) that rotates each of `num_pairs` pairs, from
// the sections. If they are interleaved, pair c is rotated by part c % 3 as long as that part's
// section has pairs left, else by time. Error: kInvalidArgument if there are not three sections or
// their sum is not `num_pairs`.
[[nodiscard]] Result<std::vector<int32_t>> rope_axes(const RopeConfig& rope, int64_t num_pairs);

struct RopeFrequencies {
  std::vector<float> inverse;  // [rotary_width / 2]: radians per position of each pair of elements
  // Frequencies with the long divisors of longrope, laid out as `inverse`; empty if there are none.
  std::vector<float> inverse_of_long;
  float attention_factor = 1;  // multiplies both cosine and sine
};

// The factor on attention scores, in addition to 1 / sqrt(width), of models whose yarn settings
// have mscale_all_dim (the DeepSeek families): (0.1 * mscale_all_dim * ln(factor) + 1)^2. 1 for all
// other models.
[[nodiscard]] double yarn_score_factor(const RopeConfig& rope);

// Computed in double and rounded once. `head_dim` must result in an even rotary width of at least
// 2.
[[nodiscard]] RopeFrequencies inverse_frequencies(const RopeConfig& rope, int64_t head_dim);

}  // namespace heddle::checkpoint
