// SPDX-License-Identifier: Apache-2.0
// Model: one architecture applied to one config.json. It declares its weights, the memory it needs
// per token and per sequence, and its op graph; it knows nothing of pages, CUDA streams or devices.
// Family: turns a config.json into a Model.
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

// Constants computed from config and weights during loading, with their names.
using DerivedWeights = std::vector<std::pair<std::string, Tensor>>;

// Inputs of programs that accept pictures.
struct PictureInputs {
  graph::Value positions;  // [T, 3] i32: time, row and column (checkpoint::rope_axes()); three
                           // equal numbers for text
  graph::Value rows;      // [T] i32: the row of `features` for each token of a picture, -1 for text
  graph::Value features;  // [T, (1 + K) * H] activations: the rows that replace embeddings, then
                          // those that are added after each of the first K layers
};

struct ForwardInputs {
  graph::Value ids;             // [T] i32
  graph::Value positions;       // [T] i32
  PictureInputs pictures = {};  // invalid Values: the program accepts text only
};

struct ForwardOutputs {
  graph::Value logits;                      // [R, V] f32: build_head() applied to head_rows
  graph::Value head_rows;                   // [R, H] activations: the input of the LM head
  std::vector<graph::Value> hidden_states;  // [T, H] activations each: the embedding, then the
                                            // output of each layer in order, the last one after the
                                            // final norm
};

struct VisionConfig;  // vision/vision_config.h
class DraftModel;
class GgufTranslation;

class Model {
 public:
  virtual ~Model() = default;

  [[nodiscard]] virtual std::vector<checkpoint::WeightSpec> weight_specs() const = 0;

  // Prefixes of hub tensors that a plain forward pass does not need ("mtp.").
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

  // Only the end of build(): rows [R, H] after the final norm -> logits [R, V] f32.
  virtual graph::Value build_head(graph::GraphBuilder& g, graph::Value rows) const = 0;
};

// A model_type of config.json, and the architecture that transformers' AutoModelForCausalLM uses
// for it.
struct ModelType {
  std::string_view name;
  std::string_view architecture;
};

// A GGUF architecture, and the function that translates such a file to the hub's keys and names.
struct GgufArchitecture {
  std::string_view name;  // value of general.architecture
  void (*translate)(GgufTranslation& gguf);

  // Whether the file belongs to this family, if several families share the name; null: no other
  // family has this name.
  bool (*accepts)(GgufTranslation& gguf) = nullptr;
};

// A family: architectures that one folder of this directory builds. The folder defines a function
// with its own name that returns its Family; registry.cpp lists it (docs/adding-a-model.md).
struct Family {
  std::string_view name;                        // name of the family in messages
  std::vector<std::string_view> architectures;  // values of "architectures" in config.json
  std::vector<ModelType> model_types = {};      // values of model_type for these architectures

  // How the family's files spell or omit common keys; null: as most files (checkpoint::SharedKeys).
  checkpoint::SharedKeys (*shared_keys)(checkpoint::ConfigReader& reader) = nullptr;

  // Reads the keys that differ from other families in name, default or supported values, and
  // refuses what is not supported (checkpoint::FamilyReader).
  void (*read_config)(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config);

  // Creates the model of a configuration that this family has read: its weight map, its graph and
  // its cache needs (rows per token, windows, states).
  std::unique_ptr<const Model> (*create)(const checkpoint::ModelConfig& config);

  // The format of the models' tool calls, as a value of --tool-call-parser, for families whose chat
  // templates do not show it.
  std::string_view tool_call_format = {};

  // Creates the prediction head (drafts/draft_model.h) of a checkpoint, or returns null if the
  // configuration has none. A null pointer: the family's heads are not supported.
  std::unique_ptr<const DraftModel> (*create_head)(const checkpoint::ModelConfig& config) = nullptr;

  // Reads the vision tower of its multimodal configurations; null: no tower of the family is
  // served.
  VisionConfig (*read_tower)(checkpoint::ConfigReader& reader) = nullptr;

  // Where GGUF files of the family are served.
  std::vector<GgufArchitecture> gguf = {};
};

}  // namespace heddle::models
