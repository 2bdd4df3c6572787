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
  kConvolution,  // [C, W] is [C, 1, W]
};

// A module of every layer: "blk.N.STORED.weight" is "model.layers.N.HUB.weight", and so for any
// other ending. A '#' in `hub` stands for the index of the expert: the stored tensor then holds
// the matrices of all experts, one after the other.
struct GgufModule {
  std::string_view stored;
  std::string_view hub;
  quant::RowOrder order = {};
  checkpoint::GgufChange change = checkpoint::GgufChange::kNone;
  GgufShape shape = GgufShape::kAsStored;
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

  [[nodiscard]] const checkpoint::GgufMetadata& metadata() const { return model_.metadata(); }

  // An absent key is an error, and counts as 1.
  int64_t required(std::string_view key);

  // Values that differ from layer to layer are an error: `what` is served with one for all.
  std::optional<int64_t> same_in_all_layers(std::string_view key);

  // block_count, at most as many as any model may have.
  int64_t num_layers();

  // ---- The configuration.
  template <typename T>
  void set(std::string_view hub_key, T value) {
    config_[std::string(hub_key)] = std::move(value);
  }

  // A member of an object that is there already, or nothing.
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

  // Modules that the file does not have are left out: loading says what is missing.
  void in_layers(std::span<const GgufModule> modules);

  void in_layers(std::initializer_list<GgufModule> modules) {
    in_layers(std::span(modules.begin(), modules.size()));
  }

  // A module outside the layers, with the hub's whole name.
  void outside(const GgufModule& module);

  // One hub tensor in a shape of its own.
  void add(checkpoint::GgufSource source) { sources_.push_back(std::move(source)); }

  // The tensor is in the configuration now.
  void leave_out(std::string name) { left_out_.push_back(std::move(name)); }

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
  std::optional<T> checked(Result<std::optional<T>> value);
  std::string full_key(std::string_view key);
  void add_module(const GgufModule& module, const std::string& stored, const std::string& hub);

  const checkpoint::GgufModel& model_;
  std::string architecture_;
  nlohmann::json config_ = nlohmann::json::object();
  std::vector<checkpoint::GgufSource> sources_;
  std::vector<std::string> left_out_;
  std::set<std::string, std::less<>> asked_for_;
  Status status_;
};

// The order in which llama.cpp's converters store the rows of a Llama's queries and keys: those of
// a head as pairs, one of each half.
[[nodiscard]] quant::RowOrder paired_halves(int64_t head_dim);

// The keys and tensors that all transformers have: sizes, heads, rotary positions, ends of texts;
// embeddings, norms, attention and a dense MLP.
struct GgufTransformer {
  std::string_view architecture;  // as a config.json names it
  bool pairs_rows = false;        // queries and keys are in the order of paired_halves()
  checkpoint::GgufChange norms =
      checkpoint::GgufChange::kNone;       // undone in the weights of all norms
  std::string_view mlp_norm = "ffn_norm";  // the file's name of post_attention_layernorm
};

void translate_transformer(GgufTranslation& gguf, const GgufTransformer& transformer);

// Experts with a softmax router in every layer, as the Qwen families have them.
void translate_experts(GgufTranslation& gguf);

// The gated expert beside them that every token visits.
void translate_shared_expert(GgufTranslation& gguf);

}  // namespace heddle::models
