// SPDX-License-Identifier: Apache-2.0
// AdapterConfig: the adapter_config.json of a LoRA adapter as PEFT writes it, as checked values.
//
// An adapter adds s B A to the weight W [N, K] of some modules of its base. A [r, K] and B [N, r]
// are the adapter's, s = lora_alpha / r, or lora_alpha / sqrt(r) with use_rslora (Kalajdzievski,
// arXiv:2312.03732). LoRA: Hu et al., arXiv:2106.09685.
//
// Modules have PEFT's paths without its prefix: "model.layers.0.self_attn.q_proj". A stacked
// parameter of a module, as experts are stored, has the module's path and its own name:
// "model.layers.0.mlp.experts.gate_up_proj".
//
// Threading: values; immutable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <heddle/status.h>

#include "checkpoint/module_pattern.h"

namespace heddle::checkpoint {

struct AdapterScaling {
  int64_t rank = 0;
  double scale = 0;
};

class AdapterConfig {
 public:
  // Error: kDataLoss for a text that is no JSON object; kInvalidArgument for a wrong value;
  // kUnimplemented, naming key and value, for kinds of adapters that cannot be merged.
  static Result<AdapterConfig> parse(std::string_view json_text);

  // As rank_pattern and alpha_pattern say, whose first matching key counts.
  [[nodiscard]] AdapterScaling scaling(std::string_view path) const;

  // The parameters that target_parameters names of `module`, in the order in which PEFT wraps
  // them: the first one is innermost.
  [[nodiscard]] std::vector<std::string> parameters_of(std::string_view module) const;

  // Whether target_modules names the module, and neither exclude_modules nor layers_to_transform
  // leaves it out.
  [[nodiscard]] bool targets(std::string_view module) const;

  // The modules that target_modules lists; empty where it is an expression.
  [[nodiscard]] const std::vector<std::string>& listed_targets() const { return targets_.names; }

  // OK for plain LoRA on linear modules; kUnimplemented, naming key and value, for what can only be
  // merged: DoRA, modules that are saved whole, biases, new embeddings of tokens.
  [[nodiscard]] const Status& check_plain() const { return plain_; }

  // The tokens whose rows in the embedding `module` are replaced.
  [[nodiscard]] std::vector<int64_t> trained_tokens(std::string_view module) const;

  [[nodiscard]] const std::string& base_model() const { return base_model_; }  // or empty

 private:
  // A list of names, each of which stands for all paths that end so, or one regular expression.
  struct Selection {
    std::vector<std::string> names;
    std::optional<ModulePattern> pattern;

    [[nodiscard]] bool contains(std::string_view path) const;
  };

  using Patterns = std::vector<std::pair<ModulePattern, double>>;

  static Result<Selection> read_selection(class ConfigReader& reader, std::string_view key);

  Status plain_;
  std::vector<std::pair<std::string, std::vector<int64_t>>> trained_tokens_;  // by module
  std::string base_model_;
  int64_t rank_ = 0;
  double alpha_ = 0;
  bool rank_stabilised_ = false;
  Patterns rank_patterns_;
  Patterns alpha_patterns_;
  bool all_linear_ = false;
  Selection targets_;
  Selection excluded_;
  std::vector<std::string> parameters_;
  std::vector<int64_t> layers_;  // empty: all
  std::vector<std::string> layers_patterns_;
};

}  // namespace heddle::checkpoint
