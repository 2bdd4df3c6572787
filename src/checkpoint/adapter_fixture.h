// SPDX-License-Identifier: Apache-2.0
// write_adapter(): writes a LoRA adapter's folder in PEFT's form, with invented numbers.
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

// Numbers in [-1, 1) that depend only on the seed and are not short binary fractions, so that sums
// are rounded.
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

// Adds PEFT's prefix to the names of the tensors.
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
