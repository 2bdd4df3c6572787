// SPDX-License-Identifier: Apache-2.0
#include "models/layers/longrope.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace heddle::models {

using checkpoint::ConfigReader;
using checkpoint::ModelConfig;

namespace {

constexpr ConfigReader::NumberRange kPositive{1e-9, 1e12};

}  // namespace

ConfigReader rope_scaling_of(ConfigReader& reader, bool keep_own) {
  return reader.narrowed({reader.object("rope_parameters"), reader.object("rope_scaling")},
                         keep_own);
}

bool has_longrope(ConfigReader& reader) {
  ConfigReader scaling = rope_scaling_of(reader);
  const std::string type =
      scaling.text(scaling.spelling("rope_type", "type"), std::string("default"));
  return type == "yarn" || type == "su" || type == "longrope";
}

checkpoint::RopeConfig read_longrope(ConfigReader& reader, const ModelConfig& config) {
  ConfigReader scaling = rope_scaling_of(reader);
  ConfigReader anywhere = rope_scaling_of(reader, /*keep_own=*/true);
  checkpoint::RopeConfig rope{.type = checkpoint::RopeType::kLongRope};
  rope.theta = anywhere.number("rope_theta", rope.theta, kPositive);
  rope.partial_rotary_factor = anywhere.number("partial_rotary_factor", 1.0, {1e-9, 1.0});
  rope.original_max_position_embeddings =
      anywhere.integer("original_max_position_embeddings", std::nullopt, checkpoint::kPositions);
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  rope.factor = scaling.number(
      "factor", static_cast<double>(config.max_position_embeddings) / original, kPositive);
  const double extended = rope.factor <= 1 || original <= 1
                              ? 1.0
                              : std::sqrt(1 + std::log(rope.factor) / std::log(original));
  rope.attention_factor = scaling.number("attention_factor", extended, kPositive);
  const int64_t head_dim = reader.integer(
      "head_dim", std::max<int64_t>(1, config.hidden_size / config.num_attention_heads),
      checkpoint::kHeadDim);
  const int64_t width = checkpoint::rotary_width(rope, head_dim);
  const std::vector<double> ones(static_cast<size_t>(width / 2), 1.0);
  for (const auto& [key, divisors] :
       {std::pair("long_factor", &rope.long_divisors), std::pair("short_factor", &rope.divisors)}) {
    if (!scaling.has(key)) scaling.fail(invalid_argument(fmt::format("{} is missing", key)));
    *divisors = scaling.numbers(key, ones, kPositive);
  }
  if (rope.original_max_position_embeddings >= config.max_position_embeddings) {
    rope.long_divisors.clear();
  }
  return rope;
}

}  // namespace heddle::models
