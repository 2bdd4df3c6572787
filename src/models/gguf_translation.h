// SPDX-License-Identifier: Apache-2.0
// GgufTranslation: translates a GGUF file to what the hub has for the same model: a config.json,
// and hub tensors as rows of the file's tensors. Each family adds its own names, so that one set of
// readers and checks serves both kinds of files.
//
//   void translate_qwen3_moe(GgufTranslation& gguf) {
//     translate_transformer(gguf, {.architecture = "Qwen3MoeForCausalLM"});
//     gguf.in_layers({{"ffn_gate_inp", "mlp.gate"}, {"ffn_up_exps", "mlp.experts.#.up_proj"}});
//   }
//
// Threading: thread-confined.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <heddle/status.h>

#include "checkpoint/gguf_model.h"
#include "checkpoint/gguf_weights.h"

namespace heddle::models {

enum class GgufShape : uint8_t {
  kAsStored,
  kOneRow,       // [H] in the file is [1, H] in the hub
  kVector,       // [A, B] in the file is [A * B] in the hub
  kConvolution,  // [C, W] in the file is [C, 1, W] in the hub
};

// The rows of a stored tensor, or of each expert in it, that belong to a module.
struct GgufRows {
  int64_t first = 0;
  int64_t count = 0;  // number of rows; 0: all
};

// A module that every layer has: "blk.N.STORED.weight" in the file is "model.layers.N.HUB.weight"
// in the hub, and likewise for other endings. If `hub` has a '#', it stands for the expert's index,
// and the stored tensor contains the matrices of all experts in order.
struct GgufModule {
  std::string stored;
  std::string hub;
  quant::RowOrder order = {};
  checkpoint::GgufChange change = checkpoint::GgufChange::kNone;
  GgufShape shape = GgufShape::kAsStored;
  GgufRows rows = {};
  quant::RowOrder columns = {};  // order of the columns; `order` is that of the rows
  bool as_numbers = false;       // see GgufSource::as_numbers
};

class GgufTranslation {
 public:
  // `architecture` is the file's general.architecture. `model` must outlive this.
  GgufTranslation(const checkpoint::GgufModel& model, std::string_view architecture)
      : model_(model), architecture_(architecture) {}

  // ---- Metadata. `key` is the part of a key that follows the architecture's name and a dot. A
  // value of another type is stored as an error, and counts as absent.
  std::optional<int64_t> integer(std::string_view key);
  std::optional<double> number(std::string_view key);
  std::optional<std::string> text(std::string_view key);
  std::optional<bool> boolean(std::string_view key);

  // One integer for each layer: an array, or one value for all layers. Empty if the key is absent,
  // or if the array is too short, which is an error.
  std::vector<int64_t> integers_of_layers(std::string_view key);
  std::vector<bool> booleans_of_layers(std::string_view key);

  [[nodiscard]] const checkpoint::GgufMetadata& metadata() const { return model_.metadata(); }

  // An integer that the file must have: if it is absent, records an error and returns 1.
  int64_t required(std::string_view key);

  // Marks a key as read that changes nothing for the models that are served.
  void disregard(std::string_view key) { full_key(key); }

  // The value that all layers have in common. Different values are an error, except 0, which stands
  // for a layer without the thing that the key counts.
  std::optional<int64_t> same_in_all_layers(std::string_view key);

  // The number of layers: block_count minus the last layers, which predict further tokens. At most
  // the largest number of layers that a model may have.
  int64_t num_layers();

  // ---- The configuration.
  template <typename T>
  void set(std::string_view hub_key, T value) {
    config_[std::string(hub_key)] = std::move(value);
  }

  // Sets a member of an object, if the object exists.
  template <typename T>
  void set_in(std::string_view hub_object, std::string_view hub_key, T value) {
    const auto found = config_.find(hub_object);
    if (found != config_.end()) (*found)[std::string(hub_key)] = std::move(value);
  }

  // Each sets `hub_key` to the value of `key`, if the file has it.
  void copy_integer(std::string_view key, std::string_view hub_key);
  void copy_number(std::string_view key, std::string_view hub_key);

  // ---- Tensors.
  [[nodiscard]] std::optional<checkpoint::GgufModel::Stored> tensor(std::string_view name) const {
    return model_.find(name);
  }

  // Sets the beginning of the hub's layer names: `prefix` and "layers.N."; by default
  // "model.layers.N.".
  void set_hub_prefix(std::string prefix) { hub_prefix_ = std::move(prefix); }

  // Adds modules of every layer. Modules that the file does not have are skipped: loading reports
  // them.
  void in_layers(const std::vector<GgufModule>& modules);

  // Adds tensors of every layer by their complete names, whatever their endings.
  void tensors_in_layers(const std::vector<GgufModule>& tensors);

  // Adds a module that is not in a layer, with its complete hub name.
  void outside(const GgufModule& module);

  // Adds a tensor that is not in a layer, by its complete name.
  void tensor_outside(const GgufModule& tensor);

  // The numbers of an fp32 tensor that become part of the configuration; empty if the file has no
  // such tensor. Error: another type.
  std::vector<float> plain_values(std::string_view name);

  // Excludes a tensor from the weights: it became part of the configuration, or is not used.
  void leave_out(std::string name) { left_out_.push_back(std::move(name)); }

  // Excludes the tensors of the layers that predict further tokens.
  void leave_out_predicting_layers();

  // [num_layers()]: whether the layer has the tensor "blk.N.NAME".
  std::vector<bool> layers_with(std::string_view name);
  bool has_in_layers(std::string_view name);  // true if any layer has it

  // Sets the list in the configuration that names the kind of each layer.
  void set_layer_kinds(std::string_view hub_key, const std::vector<bool>& layers,
                       std::string_view kind, std::string_view other_kind);

  // ---- Errors: only the first one is stored.
  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  // kUnimplemented "<architecture>.<key> is <value>; <remedy>".
  void refuse(std::string_view key, std::string_view value, std::string_view remedy);

  // ---- The result.
  // Error: the first stored error; kUnimplemented for metadata that changes a model and that no
  // translation has read.
  Status finish();

  [[nodiscard]] std::string config_json() const { return config_.dump(); }

  // Keys of the architecture that no translation has read.
  [[nodiscard]] std::vector<std::string> unread_keys() const;

  [[nodiscard]] std::vector<checkpoint::GgufSource> take_sources() { return std::move(sources_); }

  [[nodiscard]] std::vector<std::string> take_left_out() { return std::move(left_out_); }

 private:
  template <typename T>
  std::vector<T> of_layers(std::string_view key, std::optional<std::vector<T>> values);
  template <typename T>
  std::optional<T> checked(Result<std::optional<T>> value);
  std::string full_key(std::string_view key);
  bool is_size(std::string_view key, int64_t value);
  bool has_rows(const std::string& stored, const Shape& shape, int dimension, const GgufRows& rows);
  void add_tensor(const GgufModule& module, const std::string& stored, const std::string& hub);
  void add_experts(const GgufModule& module, const std::string& stored, const std::string& hub,
                   const Shape& shape);
  void add_module(const GgufModule& module, const std::string& stored, const std::string& hub);

  const checkpoint::GgufModel& model_;
  std::string architecture_;
  std::string hub_prefix_ = "model.";
  nlohmann::json config_ = nlohmann::json::object();
  std::vector<checkpoint::GgufSource> sources_;
  std::vector<std::string> left_out_;
  std::set<std::string, std::less<>> asked_for_;
  Status status_;
};

// The order in which llama.cpp's converters store the rows of a Llama's queries and keys: the two
// halves of a head are interleaved, row by row.
[[nodiscard]] quant::RowOrder paired_halves(int64_t head_dim);

// The hub's names of a transformer's modules.
struct GgufHubNames {
  std::string embeddings = "model.embed_tokens";
  std::string norm = "model.norm";
  std::string input_norm = "input_layernorm";
  std::string mlp_norm = "post_attention_layernorm";
  std::string attention = "self_attn.";
  std::string output = "o_proj";  // this and the three names after it follow `attention`
  std::string q_norm = "q_norm";
  std::string k_norm = "k_norm";
  std::string qkv;  // fused queries, keys and values; empty: the hub has three tensors
  std::string gate = "mlp.gate_proj";
  std::string up = "mlp.up_proj";
  std::string down = "mlp.down_proj";
};

// Keys and tensors that all transformers have: sizes, heads, rotary positions, end tokens;
// embeddings, norms, attention and a dense MLP.
struct GgufTransformer {
  std::string_view architecture;  // the architecture's name in a config.json
  bool pairs_rows = false;        // rows of queries and keys are in the order of paired_halves()
  bool own_heads = false;         // the family itself sets the number of key heads and the widths
                                  // of heads and MLP
  bool own_rope = false;          // the family itself sets the rotary positions
  checkpoint::GgufChange norms =
      checkpoint::GgufChange::kNone;  // change of the weights of all norms that reading reverts
  std::string mlp_norm = "ffn_norm";  // name in the file for the norm that the hub calls
                                      // names.mlp_norm
  GgufHubNames names = {};
};

void translate_transformer(GgufTranslation& gguf, const GgufTransformer& transformer);

// Translates the settings of rotary positions for heads of width `head_dim`.
void translate_rope(GgufTranslation& gguf, int64_t head_dim);

// Copies the factors of embedding, residual terms, attention scores and logits that the file has.
void translate_factors(GgufTranslation& gguf);

// Adds the matrices of experts, whose hub names begin with `scope`: "mlp.".
void add_gguf_experts(GgufTranslation& gguf, const std::string& scope,
                      const std::vector<std::string>& gate_up_down = {"gate_proj", "up_proj",
                                                                      "down_proj"});

// Adds the matrices of the shared expert, which processes every token; hub names begin with
// `scope`: "mlp.shared_experts.".
void add_gguf_shared_expert(GgufTranslation& gguf, const std::string& scope);

// Translates experts with a softmax router in every layer, as in the Qwen families.
void translate_experts(GgufTranslation& gguf);

// Translates a gated shared expert, which processes every token.
void translate_shared_expert(GgufTranslation& gguf);

// Translates experts with corrected sigmoid or softmax scores, with shared experts and dense first
// layers, to DeepSeek's keys: n_routed_experts, first_k_dense_replace and so on.
void translate_routed_experts(GgufTranslation& gguf, const std::string& scope);

// Refuses experts whose scores are not sigmoids, the default of these files.
void require_sigmoid_scores(GgufTranslation& gguf);

// Sets layer_types and the window. If the file has no window, no layer slides. If it does not list
// the layers' kinds, all layers slide except every `period`-th.
void translate_windows(GgufTranslation& gguf, int64_t period);

}  // namespace heddle::models
