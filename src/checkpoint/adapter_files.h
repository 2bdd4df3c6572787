// SPDX-License-Identifier: Apache-2.0
// AdapterFiles: the folder of a LoRA adapter, adapter_config.json and adapter_model.safetensors, as
// PEFT's save_pretrained() writes it. Every tensor is checked and belongs to one update of a
// module; placed_adapters.h finds the tensors of a base that they change.
//
// Threading: thread-compatible.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <heddle/status.h>

#include "checkpoint/adapter_config.h"
#include "checkpoint/safetensors.h"
#include "core/tensor.h"

namespace heddle::checkpoint {

// The matrices of one wrapped module. PEFT nests the wrappers of a module's stacked parameters.
struct AdapterUpdate {
  std::string module;         // as AdapterConfig spells it
  int64_t depth = 0;          // wrappers around this one: 0 is the outermost
  bool of_embedding = false;  // its weight [V, H] gets s (B A)^T
  TensorView a;               // [r, K]; of stacked parameters [E * r, K], expert by expert; [r, V]
  TensorView b;               // [N, r]; of stacked parameters [N, r * E], column j * E + e; [H, r]
  // [N], of DoRA (Liu et al., arXiv:2402.09353): row n is scaled to the length magnitude[n].
  std::optional<TensorView> magnitude = std::nullopt;
};

// A tensor of the adapter that is used whole.
struct AdapterTensor {
  enum class Kind : uint8_t {
    kSavedBase,    // equal to the base's: PEFT saves it with a wrapped LM head or embedding
    kReplacement,  // instead of the base's
    kAddedBias,    // [N]: the base's bias plus s times this
    kTokenRows,    // [tokens, H]: rows of an embedding, AdapterConfig::trained_tokens()
  };

  Kind kind = Kind::kSavedBase;
  std::string module;
  std::string parameter;  // "weight" or "bias"
  TensorView tensor;
};

class AdapterFiles {
 public:
  // Error: kNotFound for a folder without an adapter; kUnimplemented, naming tensor or key, for
  // kinds of adapters that cannot be merged; kInvalidArgument for A without B, shapes that do not
  // multiply and numbers that are not finite; otherwise as SafetensorsFile::open() and
  // AdapterConfig::parse(). All begin with the file's name. Cost: reads every number once.
  static Result<AdapterFiles> open(const std::filesystem::path& folder);

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

  [[nodiscard]] const AdapterConfig& config() const { return config_; }

  // Sorted by module, the innermost wrapper of a module first.
  [[nodiscard]] const std::vector<AdapterUpdate>& updates() const { return updates_; }

  [[nodiscard]] const std::vector<AdapterTensor>& tensors() const { return tensors_; }

  // OK for plain LoRA on linear modules. Error: kUnimplemented, naming key or tensor, for what can
  // only be merged into the model.
  [[nodiscard]] Status check_plain() const;

  // Where the configuration and the tensors disagree, as sentences.
  [[nodiscard]] std::vector<std::string> notes() const;

 private:
  AdapterFiles(std::filesystem::path folder, AdapterConfig config, SafetensorsFile file)
      : folder_(std::move(folder)), config_(std::move(config)), file_(std::move(file)) {}

  Status collect();

  std::filesystem::path folder_;
  AdapterConfig config_;
  SafetensorsFile file_;
  std::vector<AdapterUpdate> updates_;
  std::vector<AdapterTensor> tensors_;
};

}  // namespace heddle::checkpoint
