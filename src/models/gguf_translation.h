// SPDX-License-Identifier: Apache-2.0
// GgufTranslation: what a GGUF file says of a model, in the hub's words: a config.json, and the hub
// tensors as rows of those in the file. A family fills it in with the names of its own; so the
// readers and checks of both kinds of files are the same ones.
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
  kOneRow,       // [H] is [1, H] in the hub
  kVector,       // [A, B] is [A * B]
  kConvolution,  // [C, W] is [C, 1, W]
};

// The rows of a stored tensor, or of each expert in it, that a module has.
struct GgufRows {
  int64_t first = 0;
  int64_t count = 0;  // 0: all
};

// A module of every layer: "blk.N.STORED.weight" is "model.layers.N.HUB.weight", likewise for other
// endings. A '#' in `hub` is the expert's index: the stored tensor then holds the matrices of all
// experts in order.
struct GgufModule {
  std::string stored;
  std::string hub;
  quant::RowOrder order = {};
  checkpoint::GgufChange change = checkpoint::GgufChange::kNone;
  GgufShape shape = GgufShape::kAsStored;
  GgufRows rows = {};
  quant::RowOrder columns = {};  // the order of the columns, as `order` is that of the rows
  bool as_numbers = false;       // GgufSource::as_numbers
};

class GgufTranslation {
 public:
  // `architecture` is the file's general.architecture. `model` must outlive this.
  GgufTranslation(const checkpoint::GgufModel& model, std::string_view architecture)
      : model_(model), architecture_(architecture) {}

  // ---- Metadata. `key` follows the architecture's name and a dot. A value of another type is an
  // error that stays here, and counts as absent.
  std::optional<int64_t> integer(std::string_view key);
  std::optional<double> number(std::string_view key);
  std::optional<std::string> text(std::string_view key);
  std::optional<bool> boolean(std::string_view key);

  // One for each layer: the array, or the one value that all have. Empty for an absent key and for
  // an array with too few, which is an error.
  std::vector<int64_t> integers_of_layers(std::string_view key);
  std::vector<bool> booleans_of_layers(std::string_view key);

  [[nodiscard]] const checkpoint::GgufMetadata& metadata() const { return model_.metadata(); }

  // An absent key is an error, and counts as 1.
  int64_t required(std::string_view key);

  // The key changes nothing that is served.
  void disregard(std::string_view key) { full_key(key); }

  // Values that differ from layer to layer are an error. 0 is that of a layer without what the key
  // counts, and differs from none.
  std::optional<int64_t> same_in_all_layers(std::string_view key);

  // block_count without the layers at its end that predict further tokens; at most as many as any
  // model may have.
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

  // Where the file has the key.
  void copy_integer(std::string_view key, std::string_view hub_key);
  void copy_number(std::string_view key, std::string_view hub_key);

  // ---- Tensors.
  [[nodiscard]] std::optional<checkpoint::GgufModel::Stored> tensor(std::string_view name) const {
    return model_.find(name);
  }

  // The hub's names of layers begin with `prefix` and "layers.N."; without it with "model.".
  void set_hub_prefix(std::string prefix) { hub_prefix_ = std::move(prefix); }

  // Missing modules are skipped: loading reports them.
  void in_layers(const std::vector<GgufModule>& modules);

  // Tensors of every layer under their whole names, with whatever ending they have.
  void tensors_in_layers(const std::vector<GgufModule>& tensors);

  // A module outside the layers, with the hub's whole name.
  void outside(const GgufModule& module);

  // A tensor outside the layers, under its whole name.
  void tensor_outside(const GgufModule& tensor);

  // The numbers of an fp32 tensor that become part of the configuration; empty if the file has
  // none. Error: another type.
  std::vector<float> plain_values(std::string_view name);

  // The tensor is in the configuration now, or has no use.
  void leave_out(std::string name) { left_out_.push_back(std::move(name)); }

  // Leaves out the layers that predict further tokens.
  void leave_out_predicting_layers();

  // [num_layers()]: whether the layer has the tensor "blk.N.NAME".
  std::vector<bool> layers_with(std::string_view name);
  bool has_in_layers(std::string_view name);  // true if any layer has it

  // The list of a configuration that names the kind of each layer.
  void set_layer_kinds(std::string_view hub_key, const std::vector<bool>& layers,
                       std::string_view kind, std::string_view other_kind);

  // ---- Errors: the first one is kept.
  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  // kUnimplemented "<architecture>.<key> is <value>; <remedy>".
  void refuse(std::string_view key, std::string_view value, std::string_view remedy);

  // ---- The result.
  // Error: the first one; kUnimplemented for metadata that changes a model and that nothing has
  // asked for.
  Status finish();

  [[nodiscard]] std::string config_json() const { return config_.dump(); }

  // Keys of the architecture that nothing has asked for.
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

// The order in which llama.cpp's converters store the rows of a Llama's queries and keys: those of
// a head as pairs, one of each half.
[[nodiscard]] quant::RowOrder paired_halves(int64_t head_dim);

// The hub's names of a transformer's modules.
struct GgufHubNames {
  std::string embeddings = "model.embed_tokens";
  std::string norm = "model.norm";
  std::string input_norm = "input_layernorm";
  std::string mlp_norm = "post_attention_layernorm";
  std::string attention = "self_attn.";
  std::string output = "o_proj";  // these four follow `attention`
  std::string q_norm = "q_norm";
  std::string k_norm = "k_norm";
  std::string qkv;  // fused queries, keys and values; empty: the hub has three tensors
  std::string gate = "mlp.gate_proj";
  std::string up = "mlp.up_proj";
  std::string down = "mlp.down_proj";
};

// The keys and tensors that all transformers have: sizes, heads, rotary positions, ends of texts;
// embeddings, norms, attention and a dense MLP.
struct GgufTransformer {
  std::string_view architecture;  // as a config.json names it
  bool pairs_rows = false;        // queries and keys are in the order of paired_halves()
  bool own_heads = false;         // the family sets heads of keys, their widths and the MLP's
  bool own_rope = false;          // the family sets the rotary positions
  checkpoint::GgufChange norms =
      checkpoint::GgufChange::kNone;  // undone in the weights of all norms
  std::string mlp_norm = "ffn_norm";  // the file's name of names.mlp_norm
  GgufHubNames names = {};
};

void translate_transformer(GgufTranslation& gguf, const GgufTransformer& transformer);

// Rotary positions of heads of this width.
void translate_rope(GgufTranslation& gguf, int64_t head_dim);

// The factors of embedding, residual terms, attention scores and logits, where the file has them.
void translate_factors(GgufTranslation& gguf);

// The matrices of experts below `scope`: "mlp.".
void add_gguf_experts(GgufTranslation& gguf, const std::string& scope,
                      const std::vector<std::string>& gate_up_down = {"gate_proj", "up_proj",
                                                                      "down_proj"});

// The matrices of the shared expert, which processes every token: "mlp.shared_experts.".
void add_gguf_shared_expert(GgufTranslation& gguf, const std::string& scope);

// Experts with a softmax router in every layer, as the Qwen families have them.
void translate_experts(GgufTranslation& gguf);

// The shared expert with a gate, which processes every token.
void translate_shared_expert(GgufTranslation& gguf);

// Experts by corrected sigmoid or by softmax scores, with shared ones and dense layers before them,
// in DeepSeek's words: n_routed_experts, first_k_dense_replace and their like.
void translate_routed_experts(GgufTranslation& gguf, const std::string& scope);

// Refuses experts whose scores are not sigmoids. Sigmoids are the default of these files.
void require_sigmoid_scores(GgufTranslation& gguf);

// Sets layer_types and the window. Without a window no layer slides; if the file does not name
// layers, all but every `period`-th slide.
void translate_windows(GgufTranslation& gguf, int64_t period);

}  // namespace heddle::models
