// SPDX-License-Identifier: Apache-2.0
#include "weight_size.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "checkpoint/checkpoint_files.h"

namespace heddle::tools {

int64_t model_parameters(const models::Model& model) {
  int64_t total = 0;
  for (const auto& spec : model.weight_specs()) total += spec.shape.num_elements();
  return total;
}

WeightSize weight_size(const std::filesystem::path& folder, const checkpoint::ModelConfig& config,
                       const models::Model& model, DType dtype) {
  WeightSize plain{bytes_of(dtype, model_parameters(model)),
                   fmt::format("as {}", to_string(dtype))};
  if (!config.quantization) return plain;
  const auto files = checkpoint::CheckpointFiles::open(folder);
  if (!files.ok()) return {plain.bytes, plain.form + ", unquantised: no files to count"};
  WeightSize stored{.form = "as stored, quantised"};
  const std::vector<std::string> ignored = model.ignored_prefixes();
  for (const std::string_view name : files->names()) {
    const bool is_read = std::ranges::none_of(
        ignored, [&](const std::string& prefix) { return name.starts_with(prefix); });
    const checkpoint::TensorEntry& entry = *files->entry(name);
    if (is_read) stored.bytes += entry.end - entry.begin;
  }
  return stored;
}

}  // namespace heddle::tools
