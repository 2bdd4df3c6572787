// SPDX-License-Identifier: Apache-2.0
// A checkpoint's config.json as typed, checked values. ModelConfig itself holds the values that
// every decoder has. A feature that several families share is an optional member, present when the
// model has the feature. Values that only one family has are in a struct of that family
// (FamilyValues).
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
  double beta_scale = 1;  // factor on the delta rule's beta; 2: beta lies between 0 and 2

  [[nodiscard]] int64_t key_width() const { return num_key_heads * key_head_dim; }

  [[nodiscard]] int64_t value_width() const { return num_value_heads * value_head_dim; }

  bool operator==(const LinearAttentionConfig&) const = default;
};

// Attention over one latent row per token (DeepSeek-AI, "DeepSeek-V2", arXiv:2405.04434).
struct LatentAttentionConfig {
  int64_t q_lora_rank = 0;  // width of the low-rank projection of the queries; 0: queries are
                            // computed from x directly
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;  // width of the part of each key that all heads share
  int64_t v_head_dim = 0;
  bool rotates = true;          // the shared part is rotated by position
  bool rope_interleave = true;  // the rotation acts on pairs of neighbouring channels

  bool operator==(const LatentAttentionConfig&) const = default;
};

// How experts are chosen if it is not by a plain softmax. The choice can be limited to the best
// groups of experts. A group's score is that of its best expert or, with a correction, of its two
// best.
struct RouterConfig {
  bool sigmoid = false;    // true: scores are sigmoids of the logits; false: a softmax
  bool corrected = false;  // a bias per expert changes which experts are chosen, but not their
                           // weights
  int64_t num_groups = 1;
  int64_t groups_kept = 1;
  double scale = 1;            // multiplies the weights of the chosen experts
  double sum_epsilon = 1e-20;  // added to the sum that the chosen experts' weights are divided by
  // The bound of a sparsemixer (ops/moe/moe_route.h); none: the router is not a sparsemixer.
  std::optional<double> nearness = {};

  bool operator==(const RouterConfig&) const = default;
};

// The settings of mixture-of-experts layers.
struct MoeConfig {
  int64_t num_experts = 0;
  int64_t num_experts_per_token = 0;
  int64_t intermediate_size = 0;         // width of one routed expert
  int64_t shared_intermediate_size = 0;  // width of the shared expert; 0: none
  bool gated_shared_expert = false;    // the shared expert's output is multiplied by sigmoid(w . x)
  bool normalize_top_k = true;         // the weights of the chosen experts are scaled to sum to one
  std::optional<RouterConfig> router;  // none: the router is a plain softmax
  std::string router_name = "gate";    // the hub's name of a plain softmax router
  bool has_gates = true;               // experts are SwiGLU; otherwise max(W1 x, 0)^2
  bool input_major = false;            // each expert's matrix is stored transposed, [K, N]
  int64_t latent_size = 0;  // projected width that the routed experts read; 0: they read x

  bool operator==(const MoeConfig&) const = default;
};

struct ModelConfig {
  std::string architecture;  // first entry of "architectures"
  std::string family;        // name of the family in messages: "Qwen3"

  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  // width of dense MLP layers; 0 if there are none
  int64_t num_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;  // width of a head; with latent attention, of its rotated part
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  bool attention_bias = false;
  bool tie_word_embeddings = false;
  RopeConfig rope;                         // rope of all layers or, if sliding_rope is set, of
                                           // those with full attention
  std::optional<RopeConfig> sliding_rope;  // rope of the sliding-window layers if theirs is another
  std::optional<DType> dtype;              // dtype that config.json declares; none if it declares
                                           // no such dtype

  std::vector<LayerKind> layer_kinds;  // [num_layers]
  // window in tokens; set iff some layer is kSlidingAttention
  int64_t sliding_window = 0;
  std::vector<bool> is_moe_layer;  // [num_layers]
  // set if kFullAttention layers use latent attention
  std::optional<LatentAttentionConfig> latent_attention;
  // set only if some layer is kLinearAttention
  std::optional<LinearAttentionConfig> linear_attention;
  // set iff some layer is a mixture of experts
  std::optional<MoeConfig> moe;

  FamilyValues own;  // values that only the model's family has

  std::vector<int64_t> eos_token_ids;
  std::optional<QuantizationConfig> quantization;  // quantization_config, or an older spelling

  // One sentence for each contradiction in the folder's files, with the value that is used. The
  // caller that loads the weights logs them once.
  std::vector<std::string> notes;

  // Number of layers of one kind, or of MoE layers.
  [[nodiscard]] int64_t num_layers_of(LayerKind kind) const;
  [[nodiscard]] int64_t num_moe_layers() const;

  // The number of last tokens that layer `layer` attends to, the current one included; 0: all
  // tokens.
  [[nodiscard]] int64_t window_of(int64_t layer) const;
};

// The names that a config.json has for its model: model_type and architecture. One may be empty.
struct ModelName {
  std::string architecture;  // first entry of "architectures"
  std::string model_type;
};

// Parses only the names, so that an error for an unsupported model names the model, not one of its
// keys. Error: kInvalidArgument if there is no name; kDataLoss for broken JSON.
Result<ModelName> parse_model_name(std::string_view json_text);

class ConfigReader;

// How a family's files spell, or omit, keys that most families have.
struct SharedKeys {
  std::optional<int64_t> num_layers = {};  // number of layers if the family fixes it; then
                                           // num_hidden_layers is not read
  std::string_view norm_epsilon = "rms_norm_eps";
  double default_norm_epsilon = 1e-6;
  bool reads_activation = false;  // true: the family reads the activation; false: each activation
                                  // key must say SiLU
  bool reads_rope = false;        // true: the family fills in rope and sliding_rope
  bool default_tied = false;      // value of tie_word_embeddings if the file does not have it

  // Defaults for sizes that files omit. Without a default the key is required, except for the last
  // two sizes, which then have the usual default.
  std::optional<int64_t> default_vocab_size = {};
  std::optional<int64_t> default_num_heads = {};
  std::optional<int64_t> default_num_kv_heads = {};
  std::optional<int64_t> default_max_positions = {};
};

// The part of a config.json that one family reads.
struct FamilyReader {
  std::string_view family;             // name of the family in messages: "Qwen3"
  std::string_view architecture = {};  // the model's architecture; empty: architectures[0]

  // Called before any other key is read. Errors are stored in the reader. Null: the defaults of
  // SharedKeys apply.
  SharedKeys (*shared_keys)(ConfigReader& reader) = nullptr;

  // Called after names, vocabulary, width, layers, heads and token ids have been read, and before
  // the other keys. A value that it does not set gets the default of most models: head_dim as
  // written or hidden_size / num_attention_heads, full attention everywhere, no experts,
  // intermediate_size as written. The theta and the partial_rotary_factor that it sets in rope and
  // sliding_rope are used for files that have none (RopeConfigs). Errors are stored in the reader.
  void (*read)(ConfigReader& reader, ModelConfig& config) = nullptr;
};

// Parses a config.json. Checks every size: positive, bounded, divisible where heads share, an even
// rotary width. A key that changes the computation and that no reader asks for is an error
// (unread_keys.h). Error: kInvalidArgument, naming key and value; kDataLoss for broken JSON;
// kUnimplemented for a known value that is not supported (an activation, rope type or kind of
// layer).
Result<ModelConfig> parse_model_config(std::string_view json_text, const FamilyReader& family);

// Reads eos_token_id, a number or a list. Negative numbers, with which some files say that there is
// no such token, are omitted with a note that names `file`.
std::vector<int64_t> read_end_tokens(ConfigReader& reader, std::string_view file);

// Fills in layer_kinds from layer_types or layers_block_type, or else from `otherwise(layer)`.
// Errors are stored in the reader: kUnimplemented for a kind not in `served`. `may_be_longer`: the
// list may have further entries, for layers that predict further tokens.
void read_layer_kinds(ConfigReader& reader, ModelConfig& config,
                      const std::vector<LayerKind>& served,
                      const std::function<LayerKind(int64_t layer)>& otherwise,
                      bool may_be_longer = false);

// Fills in sliding_window if a layer slides. Without a `fallback` the key is required.
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
