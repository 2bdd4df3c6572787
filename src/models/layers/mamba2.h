// SPDX-License-Identifier: Apache-2.0
// Mamba-2: a short convolution over values, keys and queries, and a recurrence over one matrix
// S [P, N] per head that decays by one number a token. Dao and Gu, "Transformers are SSMs",
// arXiv:2405.21060.
//     [z; x; B; C; dt] = W_in u        [x; B; C] = silu(conv([x; B; C]))
//     dt = clamp(softplus(dt + dt_bias))      S <- exp(-exp(A_log) dt) S + (dt x) B'
//     y = W_out norm(S C + D x, z)            a norm gated by silu(z), in one of four forms
// x has P channels a head, B and C N channels for each group of heads.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"
#include "models/layers/block.h"

namespace heddle::models {

// num_heads is a multiple of num_groups.
struct Mamba2Config {
  int64_t num_heads = 0;
  int64_t head_dim = 0;    // channels per head, P
  int64_t state_size = 0;  // size of the state per channel, N
  int64_t num_groups = 1;
  int64_t conv_kernel = 4;
  bool conv_bias = true;
  bool in_bias = false;
  bool out_bias = false;
  double dt_low = 0;
  double dt_high = std::numeric_limits<double>::infinity();

  // Numbers of channels: of x and of z; of B and of C; of the convolution.
  [[nodiscard]] int64_t inner() const { return num_heads * head_dim; }

  [[nodiscard]] int64_t group_width() const { return num_groups * state_size; }

  [[nodiscard]] int64_t conv_channels() const { return inner() + 2 * group_width(); }

  bool operator==(const Mamba2Config&) const = default;
};

// The norm after the recurrence; its weight has one number per channel.
enum class Mamba2Norm : uint8_t {
  kGateFirst,        // norm of y silu(z)
  kGroupsGateFirst,  // norm of y silu(z), per group
  kGroupsNormFirst,  // norm of y per group, times silu(z)
  kNone,             // no norm: y silu(z)
};

struct Mamba2Options {
  Mamba2Norm norm = Mamba2Norm::kGateFirst;
  double epsilon = 1e-5;
  std::array<double, 5> factors = {1, 1, 1, 1, 1};  // factors on z, x, B, C and dt from W_in
};

class Mamba2 final : public Mixer {
 public:
  Mamba2(const Mamba2Config& config, int64_t hidden_size, const Mamba2Options& options)
      : config_(config), hidden_size_(hidden_size), options_(options) {}

  [[nodiscard]] std::string_view scope() const override { return "mamba."; }

  // Derives "neg_exp_a_log" from "A_log", and the convolution's weights times the factors of its
  // inputs.
  void derive_weights(const checkpoint::LoadedWeights& weights, const std::string& ours,
                      DerivedWeights& derived) const override;
  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override;
  CacheLayer add_layer(CacheNeeds& needs) const override;
  graph::Value build(graph::GraphBuilder& g, graph::Value x, const LayerInputs& inputs,
                     const CacheLayer& cache) const override;

 private:
  [[nodiscard]] bool scales_inputs() const;
  graph::Value gated_norm(graph::GraphBuilder& g, graph::Value y, graph::Value z) const;

  Mamba2Config config_;
  int64_t hidden_size_;
  Mamba2Options options_;
};

// Reads mamba_n_heads, mamba_d_head, mamba_d_state, mamba_n_groups, mamba_d_conv, mamba_expand,
// mamba_conv_bias, mamba_proj_bias and time_step_limit. `inner_key`: a key that may give the number
// of channels of x, or empty. Errors are stored in the reader.
Mamba2Config read_mamba2(checkpoint::ConfigReader& reader, const checkpoint::ModelConfig& config,
                         std::string_view inner_key = {});

// Reads time_step_limit or mamba_dt_limit, the bounds of dt in every form of the recurrence;
// without either key, dt is not clamped. time_step_min, time_step_max and time_step_floor concern
// only the initial weights.
void read_time_step_limit(checkpoint::ConfigReader& reader, Mamba2Config& mamba);

// Checks that the groups share the heads evenly and that there are not too many channels. Errors
// are stored in the reader.
void check_mamba2(checkpoint::ConfigReader& reader, const Mamba2Config& mamba,
                  std::string_view groups_key);

}  // namespace heddle::models
