// SPDX-License-Identifier: Apache-2.0
// Model: one architecture applied to one config.json. It knows tensors, not pages, streams or
// devices: which weights it needs, what it keeps per token and per sequence, and its graph. Family:
// how a config.json becomes a Model.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/config_reader.h"
#include "checkpoint/load_weights.h"
#include "checkpoint/model_config.h"
#include "graph/builder.h"
#include "models/cache_needs.h"

namespace heddle::models {

// Constants computed from config and weights at load, by name.
using DerivedWeights = std::vector<std::pair<std::string, Tensor>>;

struct ForwardInputs {
  graph::Value ids;        // [T] i32
  graph::Value positions;  // [T] i32
};

struct ForwardOutputs {
  graph::Value logits;                      // [R, V] f32: build_head() of head_rows
  graph::Value head_rows;                   // [R, H] activations: what the LM head reads
  std::vector<graph::Value> hidden_states;  // [T, H] activations each: embedding, after each layer,
                                            // the last one after the final norm; in this order
};

struct VisionConfig;  // vision/vision_config.h
class DraftModel;
class GgufTranslation;

class Model {
 public:
  virtual ~Model() = default;

  [[nodiscard]] virtual std::vector<checkpoint::WeightSpec> weight_specs() const = 0;

  // Hub tensors a plain forward pass does not need ("mtp.").
  [[nodiscard]] virtual std::vector<std::string> ignored_prefixes() const = 0;

  [[nodiscard]] virtual Result<DerivedWeights> derive_weights(
      const checkpoint::LoadedWeights& weights) const = 0;

  // Of one of the ranks that compute the model together.
  [[nodiscard]] virtual CacheNeeds cache_needs(const checkpoint::Rank& rank) const = 0;

  [[nodiscard]] CacheNeeds cache_needs() const { return cache_needs({}); }

  // The first part that ranks do not share: "layers.0.mamba"; empty: there is none, and
  // build() writes the pass of any rank.
  [[nodiscard]] virtual std::string parts_of_one_rank() const = 0;

  // Writes the forward pass of the builder's rank; errors stay in the builder.
  virtual ForwardOutputs build(graph::GraphBuilder& g, const ForwardInputs& inputs) const = 0;

  // The end of build() alone: rows [R, H] after the final norm -> logits [R, V] f32.
  virtual graph::Value build_head(graph::GraphBuilder& g, graph::Value rows) const = 0;
};

// A model_type of config.json, and the class that transformers' AutoModelForCausalLM takes for it.
struct ModelType {
  std::string_view name;
  std::string_view architecture;
};

// An architecture as GGUF files name it, and what such a file says in the hub's words.
struct GgufArchitecture {
  std::string_view name;  // general.architecture
  void (*translate)(GgufTranslation& gguf);

  // Whether the file is the family's, where several families have the name; null: where no other
  // family's is.
  bool (*accepts)(GgufTranslation& gguf) = nullptr;
};

// A family: architectures that one folder of this directory builds. The folder defines a function
// with its own name that returns its Family; registry.cpp lists it (docs/adding-a-model.md).
struct Family {
  std::string_view name;                        // for messages
  std::vector<std::string_view> architectures;  // as config.json says under "architectures"
  std::vector<ModelType> model_types = {};      // model types of these architectures

  // How its files spell or omit common keys; null: as most (checkpoint::SharedKeys).
  checkpoint::SharedKeys (*shared_keys)(checkpoint::ConfigReader& reader) = nullptr;

  // Reads the keys that differ from other families in name, default or supported values, and
  // refuses what is not supported (checkpoint::FamilyReader).
  void (*read_config)(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config);

  // The model of a configuration that was read so: its weight map, its graph and its cache needs
  // (rows per token, windows, states).
  std::unique_ptr<const Model> (*create)(const checkpoint::ModelConfig& config);

  // How its models write tool calls, by the name that --tool-call-parser has for it, where their
  // chat templates do not show it.
  std::string_view tool_call_format = {};

  // The family's prediction head (drafts/draft_model.h), if a checkpoint has one; null: not
  // supported. Returns null if the configuration names none.
  std::unique_ptr<const DraftModel> (*create_head)(const checkpoint::ModelConfig& config) = nullptr;

  // Reads the vision tower of its multimodal configurations; null: no tower of the family is
  // served.
  VisionConfig (*read_tower)(checkpoint::ConfigReader& reader) = nullptr;

  // Where GGUF files of the family are served.
  std::vector<GgufArchitecture> gguf = {};
};

}  // namespace heddle::models
