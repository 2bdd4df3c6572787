// SPDX-License-Identifier: Apache-2.0
// write_adapter(): a LoRA adapter's folder as PEFT writes it, with made numbers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/safetensors.h"
#include "core/check.h"

namespace heddle::checkpoint::testing {

// Numbers of [-1, 1) that depend on the seed alone and are no round binary fractions.
inline Tensor uneven(const Shape& shape, uint32_t seed) {
  Tensor tensor(shape, DType::kF32);
  uint32_t state = seed * 2654435761u + 1;
  for (float& value : tensor.span<float>()) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) / 8388608.0f - 1;
  }
  return tensor;
}

using NamedTensors = std::map<std::string, Tensor>;

inline void write_tensors(const std::filesystem::path& path, const NamedTensors& tensors) {
  std::vector<NamedTensor> named;
  for (const auto& [name, tensor] : tensors) named.push_back({name, tensor.view()});
  HEDDLE_CHECK(write_safetensors(path, named).ok());
}

// Names get PEFT's prefix.
inline std::filesystem::path write_adapter(const std::filesystem::path& folder,
                                           std::string_view config, const NamedTensors& tensors) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "adapter_config.json") << config;
  std::vector<NamedTensor> named;
  for (const auto& [name, tensor] : tensors) {
    named.push_back({"base_model.model." + name, tensor.view()});
  }
  HEDDLE_CHECK(write_safetensors(folder / "adapter_model.safetensors", named).ok());
  return folder;
}

}  // namespace heddle::checkpoint::testing
