// SPDX-License-Identifier: Apache-2.0
// A checkpoint's config.json as typed, checked values. ModelConfig itself holds the values that
// every decoder has; a feature that several families share is an optional part, present when the
// model has it; what one family alone has is a struct of the family's (FamilyValues).
//
// This folder knows the keys that files of all families share. A family says first how its files
// spell these (SharedKeys), then reads the keys that it spells in its own way, defaults differently
// or refuses (FamilyReader); models/registry.h joins the two.
//
// Threading: values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/status.h>

#include "checkpoint/config_reader.h"
#include "checkpoint/family_values.h"
#include "checkpoint/quantization_config.h"
#include "checkpoint/rope_config.h"
#include "core/dtype.h"

namespace heddle::checkpoint {

// A sliding layer attends to the last ModelConfig::sliding_window tokens, including its own. A
// convolution layer keeps only its last inputs.
enum class LayerKind : uint8_t {
  kLinearAttention,
  kFullAttention,
  kSlidingAttention,
  kShortConvolution
};

// Gated delta network layers. num_value_heads is a multiple of num_key_heads.
struct LinearAttentionConfig {
  int64_t num_key_heads = 0;
  int64_t num_value_heads = 0;
  int64_t key_head_dim = 0;
  int64_t value_head_dim = 0;
  int64_t conv_kernel = 0;
  double beta_scale = 1;  // 2: beta lies between 0 and 2

  [[nodiscard]] int64_t key_width() const { return num_key_heads * key_head_dim; }

  [[nodiscard]] int64_t value_width() const { return num_value_heads * value_head_dim; }

  bool operator==(const LinearAttentionConfig&) const = default;
};

// Attention over one latent row per token (DeepSeek-AI, "DeepSeek-V2", arXiv:2405.04434).
struct LatentAttentionConfig {
  int64_t q_lora_rank = 0;  // width that queries pass through; 0: they come from x
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;  // width of the part that all heads' keys share
  int64_t v_head_dim = 0;
  bool rotates = true;          // the shared part is rotated by position
  bool rope_interleave = true;  // rotates pairs of neighbouring channels

  bool operator==(const LatentAttentionConfig&) const = default;
};

// The choice of experts where it is not a plain softmax. The choice is limited to the best
// groups of experts, by their best expert or, with a correction, their two best.
struct RouterConfig {
  bool sigmoid = false;    // scores are sigmoids; otherwise a softmax
  bool corrected = false;  // a bias per expert is added for the choice, not for the weights
  int64_t num_groups = 1;
  int64_t groups_kept = 1;
  double scale = 1;            // multiplies the weights of the chosen experts
  double sum_epsilon = 1e-20;  // added to the divisor of the weights
  // The bound of a sparsemixer (ops/moe/moe_route.h); none: the router is not a sparsemixer.
  std::optional<double> nearness = {};

  bool operator==(const RouterConfig&) const = default;
};

// Mixture-of-experts layers.
struct MoeConfig {
  int64_t num_experts = 0;
  int64_t num_experts_per_token = 0;
  int64_t intermediate_size = 0;         // width of one routed expert
  int64_t shared_intermediate_size = 0;  // width of the shared expert; 0: none
  bool gated_shared_expert = false;    // the shared expert's output is multiplied by sigmoid(w . x)
  bool normalize_top_k = true;         // the chosen experts' weights are made to sum to one
  std::optional<RouterConfig> router;  // none: a plain softmax
  std::string router_name = "gate";    // the hub's name of a plain softmax router
  bool has_gates = true;               // experts are SwiGLU; otherwise max(W1 x, 0)^2
  bool input_major = false;            // tensors with all experts store transposed matrices
  int64_t latent_size = 0;  // projected width that the routed experts read; 0: they read x

  bool operator==(const MoeConfig&) const = default;
};

struct ModelConfig {
  std::string architecture;  // architectures[0]
  std::string family;        // for messages: "Qwen3"

  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  // width of dense MLP layers; 0 if there are none
  int64_t num_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;  // with latent attention: width of the rotated part
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  bool attention_bias = false;
  bool tie_word_embeddings = false;
  RopeConfig rope;                         // all layers, or those with full attention
  std::optional<RopeConfig> sliding_rope;  // sliding-window layers, if they differ
  std::optional<DType> dtype;              // dtype that the checkpoint declares

  std::vector<LayerKind> layer_kinds;                     // [num_layers]
  int64_t sliding_window = 0;                             // set iff some layer is kSlidingAttention
  std::vector<bool> is_moe_layer;                         // [num_layers]
  std::optional<LatentAttentionConfig> latent_attention;  // for kFullAttention layers
  std::optional<LinearAttentionConfig> linear_attention;  // only if some layer is kLinearAttention
  std::optional<MoeConfig> moe;                           // iff some layer is MoE

  FamilyValues own;  // values that only the family has

  std::vector<int64_t> eos_token_ids;
  std::optional<QuantizationConfig> quantization;  // quantization_config, or an older spelling

  // Contradictions in the folder's files, each with the value that is used. The caller that loads
  // the weights logs them once.
  std::vector<std::string> notes;

  // Number of layers of one kind, or of MoE layers.
  [[nodiscard]] int64_t num_layers_of(LayerKind kind) const;
  [[nodiscard]] int64_t num_moe_layers() const;

  // Tokens that layer `layer` attends to, including its own; 0: all.
  [[nodiscard]] int64_t window_of(int64_t layer) const;
};

// A file's names for its model. One of the two may be empty.
struct ModelName {
  std::string architecture;  // architectures[0]
  std::string model_type;
};

// Parses only the name, so that an unsupported model is refused by name, not for its details.
// Error: kInvalidArgument when there is none; kDataLoss for broken JSON.
Result<ModelName> parse_model_name(std::string_view json_text);

class ConfigReader;

// How a family's files spell, or omit, keys that most families have.
struct SharedKeys {
  std::optional<int64_t> num_layers = {};  // fixed by the family: num_hidden_layers is not read
  std::string_view norm_epsilon = "rms_norm_eps";
  double default_norm_epsilon = 1e-6;
  bool reads_activation = false;  // the family reads it; otherwise any key must say SiLU
  bool reads_rope = false;        // the family fills in rope and sliding_rope
  bool default_tied = false;      // if tie_word_embeddings is missing

  // Defaults for sizes that files omit; none: the key is required, or, for the last two, has the
  // usual default.
  std::optional<int64_t> default_vocab_size = {};
  std::optional<int64_t> default_num_heads = {};
  std::optional<int64_t> default_num_kv_heads = {};
  std::optional<int64_t> default_max_positions = {};
};

// The part of a config.json that one family reads.
struct FamilyReader {
  std::string_view family;             // for messages: "Qwen3"
  std::string_view architecture = {};  // the model's architecture; empty: architectures[0]

  // Called before any other key is read. Errors stay in the reader. Null: as in most families.
  SharedKeys (*shared_keys)(ConfigReader& reader) = nullptr;

  // Called between the keys that all files share and the rest: names, vocabulary, width, layers,
  // heads and token ids have been read. A value it leaves alone gets the default of most
  // models: head_dim as written or hidden_size / num_attention_heads, full attention everywhere, no
  // experts, intermediate_size as written. The theta and the partial_rotary_factor of rope and
  // sliding_rope are those of files that have none (RopeConfigs). Errors stay in the reader.
  void (*read)(ConfigReader& reader, ModelConfig& config) = nullptr;
};

// Checks every size: positive, bounded, divisible where heads share, an even rotary width. A key
// that changes the computation and that no reader asks for is an error (unread_keys.h). Error:
// kInvalidArgument, naming key and value; kDataLoss for broken JSON; kUnimplemented for a known
// value that is not supported (an activation, rope type or kind of layer).
Result<ModelConfig> parse_model_config(std::string_view json_text, const FamilyReader& family);

// Reads eos_token_id, a number or a list. Negative numbers, which some files use for no token, are
// omitted with a note that names `file`.
std::vector<int64_t> read_end_tokens(ConfigReader& reader, std::string_view file);

// Fills in layer_kinds from layer_types or layers_block_type, or else from `otherwise(layer)`.
// Errors stay in the reader: kUnimplemented for a kind not in `served`. `may_be_longer`: the list
// goes on with layers that predict further tokens.
void read_layer_kinds(ConfigReader& reader, ModelConfig& config,
                      const std::vector<LayerKind>& served,
                      const std::function<LayerKind(int64_t layer)>& otherwise,
                      bool may_be_longer = false);

// Fills in sliding_window if a layer slides; the key is required unless there is a `fallback`.
void read_sliding_window(ConfigReader& reader, ModelConfig& config,
                         std::optional<int64_t> fallback = std::nullopt);

// Reads layer_kinds and sliding_window: all layers slide if sliding_window is a number.
void read_windows_everywhere(ConfigReader& reader, ModelConfig& config);

// Reads layer_kinds and sliding_window: all layers slide except every sliding_window_pattern-th.
// `fallback` is the default window; without one, no layer slides by default.
void read_periodic_windows(ConfigReader& reader, ModelConfig& config, int64_t default_period,
                           std::optional<int64_t> fallback = std::nullopt);

// Reads layer_kinds and sliding_window: layers slide from max_window_layers on if
// use_sliding_window is true.
void read_late_windows(ConfigReader& reader, ModelConfig& config);

// Fills in rope.partial_rotary_factor from rotary_dim if the file has it; if it has both, they must
// agree.
void read_rotary_dim(ConfigReader& reader, ModelConfig& config);

}  // namespace heddle::checkpoint
