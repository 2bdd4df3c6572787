// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/kv_scales.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_set>

#include <fmt/format.h>

#include "checkpoint/convert.h"
#include "checkpoint/readable.h"
#include "core/check.h"

namespace heddle::checkpoint {

namespace {

using Spellings = std::array<std::string_view, 5>;

constexpr Spellings kOfKeys = {"k_scale", "k_proj.k_scale", "attn.k_scale", "kv_scale",
                               "k_proj.output_scale"};
constexpr Spellings kOfValues = {"v_scale", "v_proj.v_scale", "attn.v_scale", "kv_scale",
                                 "v_proj.output_scale"};

Result<float> read_scale(const WeightSource& source, const std::string& name) {
  const std::optional<StoredWeight> stored = source.find({.name = name, .shape = {}});
  HEDDLE_CHECK(stored.has_value());  // true: `name` is one of the source's names
  if (!stored->dtype || !is_convertible(*stored->dtype)) {
    return invalid_argument(
        fmt::format("{} is {}; a scale is F32, BF16 or F16", readable(name), stored->stored_dtype));
  }
  if (stored->shape.num_elements() != 1) {
    return invalid_argument(fmt::format(
        "{} is {}; served are KV caches with one scale for all keys of a layer and one for all "
        "values",
        readable(name), stored->shape.to_string()));
  }
  float scale = 0;
  source.read(*stored, 0, 1, DType::kF32, &scale);
  if (!std::isfinite(scale)) {
    return data_loss(fmt::format("{} is {}; a scale is a finite number", readable(name), scale));
  }
  return scale;
}

}  // namespace

bool is_kv_scale(std::string_view tensor) {
  const auto ends_with = [tensor](std::string_view spelling) {
    return tensor.ends_with(spelling) && tensor.size() > spelling.size() &&
           tensor[tensor.size() - spelling.size() - 1] == '.';
  };
  return std::ranges::any_of(kOfKeys, ends_with) || std::ranges::any_of(kOfValues, ends_with);
}

Result<StoredKvScales> read_kv_scales(const WeightSource& source,
                                      std::span<const std::string> modules) {
  const std::vector<std::string_view> names = source.names();
  const std::unordered_set<std::string_view> stored(names.begin(), names.end());
  StoredKvScales scales{.layers = std::vector<KvScales>(modules.size()), .missing = {}};
  if (names.empty()) return scales;
  const auto take = [&](const std::string& module, const Spellings& spellings,
                        std::string_view what, float& target) -> Status {
    for (const std::string_view spelling : spellings) {
      const std::string name = module + std::string(spelling);
      if (!stored.contains(name)) continue;
      HEDDLE_ASSIGN_OR_RETURN(const float scale, read_scale(source, name));
      if (scale > 0) {
        target = scale;
        return {};
      }
      break;
    }
    const std::string_view path = std::string_view(module).substr(0, module.size() - 1);
    scales.missing.push_back(fmt::format("the {} of {}", what, path));
    return {};
  };
  for (size_t i = 0; i < modules.size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(take(modules[i], kOfKeys, "keys", scales.layers[i].k));
    HEDDLE_RETURN_IF_ERROR(take(modules[i], kOfValues, "values", scales.layers[i].v));
  }
  return scales;
}

}  // namespace heddle::checkpoint
