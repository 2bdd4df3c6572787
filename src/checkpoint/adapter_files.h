// SPDX-License-Identifier: Apache-2.0
// AdapterFiles: the folder of a LoRA adapter, with adapter_config.json and
// adapter_model.safetensors, as PEFT's save_pretrained() writes it. Every tensor is checked and
// assigned to a module. placed_adapters.h finds the tensors of the base that they change.
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

// The low-rank matrices of one wrapper. PEFT wraps a module once for each of its stacked
// parameters, one wrapper inside another.
struct AdapterUpdate {
  std::string module;         // as AdapterConfig spells it
  bool of_embedding = false;  // the embedding's weight [V, H] changes by s (B A)^T
  // [r, K] for a linear weight; [E * r, K], expert after expert, for E stacked experts; [r, V] for
  // an embedding.
  TensorView a;
  // [N, r] for a linear weight; [N, r * E] with column j * E + e for rank index j of expert e;
  // [H, r] for an embedding.
  TensorView b;
  // DoRA only (Liu et al., arXiv:2402.09353), [N]: row n of the changed weight is scaled to the
  // length magnitude[n].
  std::optional<TensorView> magnitude = std::nullopt;
};

// A tensor of the adapter that is not a low-rank factor.
struct AdapterTensor {
  enum class Kind : uint8_t {
    kSavedBase,    // a copy of a base tensor, which it must equal: PEFT saves it with a wrapped
                   // head or embedding
    kReplacement,  // replaces the base's tensor of the same name
    kAddedBias,    // [N]: the base's bias grows by s times this vector
    kTokenRows,    // [tokens, H]: replaces rows of an embedding, AdapterConfig::trained_tokens()
  };

  Kind kind = Kind::kSavedBase;
  std::string module;
  std::string parameter;  // the module's parameter that this tensor belongs to: "weight" or "bias"
  TensorView tensor;
};

class AdapterFiles {
 public:
  // Error: kNotFound for a folder without an adapter; kUnimplemented, naming tensor or key, for
  // kinds of adapters that cannot be merged; kInvalidArgument for A without B, for DoRA
  // without its magnitudes, for shapes that do not match, and for numbers that are not finite;
  // otherwise the errors of SafetensorsFile::open() and AdapterConfig::parse(). All messages begin
  // with the file's name. Cost: reads every number once.
  static Result<AdapterFiles> open(const std::filesystem::path& folder);

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

  [[nodiscard]] const AdapterConfig& config() const { return config_; }

  // Sorted by module, the innermost wrapper of a module first.
  [[nodiscard]] const std::vector<AdapterUpdate>& updates() const { return updates_; }

  [[nodiscard]] const std::vector<AdapterTensor>& tensors() const { return tensors_; }

  // The highest rank of a module; 0: there is no low-rank update.
  [[nodiscard]] int64_t highest_rank() const;

  // The SHA-256 of all that updates() change in a model: modules, ranks, scales, shapes and
  // numbers; as 64 hexadecimal digits. Cost: reads every number once.
  [[nodiscard]] std::string content_hash() const;

  // One sentence for each disagreement between the configuration and the tensors.
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
