// SPDX-License-Identifier: Apache-2.0
// AdapterConfig: the checked values of a LoRA adapter's adapter_config.json, as PEFT writes it.
//
// An adapter adds s B A to the weight W [N, K] of some modules of its base model. It stores
// A [r, K] and B [N, r]. The scale s is lora_alpha / r, or lora_alpha / sqrt(r) with use_rslora
// (Kalajdzievski, arXiv:2312.03732). LoRA: Hu et al., arXiv:2106.09685.
//
// Modules are named by PEFT's paths without PEFT's prefix: "model.layers.0.self_attn.q_proj". A
// stacked parameter, the form in which experts are stored, is named by the path of its module and
// the parameter's own name: "model.layers.0.mlp.experts.gate_up_proj".
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

// Whether `path` is `end`, or ends with it after a dot.
[[nodiscard]] bool ends_with_path(std::string_view path, std::string_view end);

struct AdapterScaling {
  int64_t rank = 0;
  double scale = 0;
};

class AdapterConfig {
 public:
  // Error: kDataLoss if the text is not a JSON object; kInvalidArgument for a wrong value;
  // kUnimplemented, naming key and value, for kinds of adapters that cannot be merged.
  static Result<AdapterConfig> parse(std::string_view json_text);

  // The rank and scale of the module or parameter at `path`. rank_pattern and alpha_pattern
  // override the defaults; the first key that matches is used.
  [[nodiscard]] AdapterScaling scaling(std::string_view path) const;

  // The parameters of `module` that target_parameters names, in the order in which PEFT wraps them:
  // the first one is innermost.
  [[nodiscard]] std::vector<std::string> parameters_of(std::string_view module) const;

  // Whether target_modules selects the module and neither exclude_modules nor layers_to_transform
  // rules it out.
  [[nodiscard]] bool targets(std::string_view module) const;

  // The modules that target_modules lists; empty if it is a regular expression.
  [[nodiscard]] const std::vector<std::string>& listed_targets() const { return targets_.names; }

  // Whether the adapter uses DoRA: each module then has a vector of magnitudes.
  [[nodiscard]] bool uses_dora() const { return uses_dora_; }

  // Whether each lora_B has a bias (lora_bias).
  [[nodiscard]] bool has_biases() const { return has_biases_; }

  // The modules whose complete tensors the adapter has (modules_to_save).
  [[nodiscard]] const std::vector<std::string>& saved_modules() const { return saved_modules_; }

  // The modules of which single tokens are trained (trainable_token_indices); an empty name is the
  // model's input embedding.
  [[nodiscard]] std::vector<std::string> trained_modules() const;

  // The tokens whose rows of the embedding `module` the adapter replaces.
  [[nodiscard]] std::vector<int64_t> trained_tokens(std::string_view module) const;

  // base_model_name_or_path; empty if the file names no base model
  [[nodiscard]] const std::string& base_model() const { return base_model_; }

 private:
  // A list of names, each of which selects all paths that end with it, or one regular expression.
  struct Selection {
    std::vector<std::string> names;
    std::optional<ModulePattern> pattern;

    [[nodiscard]] bool contains(std::string_view path) const;
  };

  using Patterns = std::vector<std::pair<ModulePattern, double>>;

  static Result<Selection> read_selection(class ConfigReader& reader, std::string_view key);

  bool uses_dora_ = false;
  bool has_biases_ = false;
  std::vector<std::string> saved_modules_;
  // (module, its tokens); the module is empty for the input embedding, which the file does not name
  std::vector<std::pair<std::string, std::vector<int64_t>>> trained_tokens_;
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
  std::vector<int64_t> layers_;  // layers_to_transform: indices of the layers that the adapter
                                 // changes; empty: all layers
  std::vector<std::string> layers_patterns_;
};

}  // namespace heddle::checkpoint
