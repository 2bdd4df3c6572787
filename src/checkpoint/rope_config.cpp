// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/rope_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/config_reader.h"
#include "checkpoint/readable.h"
#include "core/check.h"
#include "core/json_syntax.h"

namespace heddle::checkpoint {

namespace {

constexpr double kTiny = 1e-9;
constexpr double kHuge = 1e12;
constexpr int64_t kMaxPositions = (int64_t{1} << 31) - 1;

std::optional<RopeType> parse_type(std::string_view name) {
  if (name == "default" || name == "mrope") return RopeType::kDefault;
  if (name == "linear") return RopeType::kLinear;
  if (name == "llama3") return RopeType::kLlama3;
  if (name == "yarn") return RopeType::kYarn;
  if (name == "proportional") return RopeType::kProportional;
  return std::nullopt;
}

RopeType read_type(ConfigReader& scaling) {
  const bool has_new = scaling.has("rope_type");
  const std::string name = scaling.text(has_new ? "rope_type" : "type", std::string("default"));
  const std::optional<RopeType> type = parse_type(name);
  const nlohmann::json* const old = scaling.find("type");
  if (has_new && old != nullptr && *old != name &&
      (!type || !old->is_string() || parse_type(old->get<std::string>()) != type)) {
    scaling.note(fmt::format("config.json has rope_type {} and type {}; rope_type is used",
                             readable(name),
                             readable(old->is_string() ? old->get<std::string>() : old->dump())));
  }
  if (!type) {
    scaling.fail(
        unimplemented(fmt::format("rope_type is {}, which is not served; served are default, "
                                  "linear, llama3, yarn and proportional",
                                  readable(name))));
  }
  return type.value_or(RopeType::kDefault);
}

void read_llama3(ConfigReader& scaling, RopeConfig& rope) {
  rope.low_freq_factor = scaling.number("low_freq_factor", 1.0, {kTiny, kHuge});
  rope.high_freq_factor = scaling.number("high_freq_factor", 4.0, {kTiny, kHuge});
  if (rope.high_freq_factor < rope.low_freq_factor) {
    scaling.fail("high_freq_factor", "below low_freq_factor");
  }
}

void read_yarn(ConfigReader& scaling, RopeConfig& rope) {
  rope.beta_fast = scaling.number("beta_fast", 32.0, {kTiny, kHuge});
  rope.beta_slow = scaling.number("beta_slow", 1.0, {kTiny, kHuge});
  rope.truncate = scaling.boolean("truncate", true);
  rope.mscale = scaling.number("mscale", 0.0, {0, kHuge});
  rope.mscale_all_dim = scaling.number("mscale_all_dim", 0.0, {0, kHuge});
  if (scaling.has("attention_factor")) {
    rope.attention_factor = scaling.number("attention_factor", 1.0, {kTiny, kHuge});
  }
  if (rope.theta <= 1) scaling.fail("rope_theta", "yarn needs more than 1");
}

// The frequencies without any scaling: theta^(-2i/R) for i of [0, R/2).
std::vector<double> unscaled(double theta, int64_t width) {
  std::vector<double> frequencies(static_cast<size_t>(width / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(width));
  }
  return frequencies;
}

// Divides the frequencies of long wavelengths by the factor, keeps those of short ones, and
// interpolates between.
void scale_llama3(const RopeConfig& rope, std::vector<double>& frequencies) {
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  const double longest = original / rope.low_freq_factor;
  const double shortest = original / rope.high_freq_factor;
  for (double& frequency : frequencies) {
    const double wavelength = 2 * std::numbers::pi / frequency;
    if (wavelength < shortest) continue;
    if (wavelength > longest) {
      frequency /= rope.factor;
      continue;
    }
    const double spread = rope.high_freq_factor - rope.low_freq_factor;
    const double kept = spread > 0 ? (original / wavelength - rope.low_freq_factor) / spread : 1.0;
    frequency = (1 - kept) * frequency / rope.factor + kept * frequency;
  }
}

// The index, as a real number, of the pair of elements that makes `turns` full rotations within the
// original context.
double yarn_pair(const RopeConfig& rope, double width, double turns) {
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  return width * std::log(original / (2 * std::numbers::pi * turns)) / (2 * std::log(rope.theta));
}

void scale_yarn(const RopeConfig& rope, std::vector<double>& frequencies) {
  const double width = 2 * static_cast<double>(frequencies.size());
  double low = yarn_pair(rope, width, rope.beta_fast);
  double high = yarn_pair(rope, width, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, width - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / rope.factor * ramp + frequencies[i] * (1 - ramp);
  }
}

double yarn_magnitude(double factor, double coefficient) {
  return factor <= 1 ? 1.0 : 0.1 * coefficient * std::log(factor) + 1.0;
}

double yarn_attention_factor(const RopeConfig& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.mscale != 0 && rope.mscale_all_dim != 0) {
    return yarn_magnitude(rope.factor, rope.mscale) /
           yarn_magnitude(rope.factor, rope.mscale_all_dim);
  }
  return yarn_magnitude(rope.factor, 1);
}

constexpr std::string_view kFull = "full_attention";
constexpr std::string_view kSliding = "sliding_attention";
constexpr std::string_view kLocalTheta = "rope_local_base_freq";
constexpr ConfigReader::NumberRange kThetas{kTiny, kHuge};

// Whether the value is a set of parameters. Some objects are numbers instead: those that JSON
// cannot write.
bool is_set(const nlohmann::json& value) {
  return value.is_object() && !value.contains(kSpecialFloatKey);
}

// Whether rope_parameters has a set of parameters for each kind of layer.
bool has_sets(const nlohmann::json& parameters) { return std::ranges::any_of(parameters, is_set); }

// Reads one set of parameters. Some keys are only looked up in `scaling`, others `anywhere`.
RopeConfig read_set(ConfigReader& scaling, ConfigReader& anywhere, const RopeConfig& defaults,
                    int64_t max_position_embeddings) {
  RopeConfig rope;
  rope.type = read_type(scaling);
  rope.theta = anywhere.number("rope_theta", defaults.theta, kThetas);
  rope.partial_rotary_factor =
      anywhere.number("partial_rotary_factor", defaults.partial_rotary_factor, {kTiny, 1.0});
  rope.query_scale_beta = scaling.number("llama_4_scaling_beta", 0.0, {-kHuge, kHuge});
  const bool extends = rope.type != RopeType::kDefault && rope.type != RopeType::kProportional;
  if (extends || rope.query_scale_beta != 0) {
    rope.original_max_position_embeddings =
        anywhere.integer("original_max_position_embeddings", max_position_embeddings,
                         {.low = 1, .high = kMaxPositions});
  }
  if (rope.type != RopeType::kDefault) {
    rope.factor = scaling.number("factor", extends ? std::nullopt : std::optional(1.0), {1.0, 1e6});
  }
  rope.sections = scaling.integers("mrope_section", {.low = 0, .high = kMaxPositions});
  if (rope.sections.empty()) rope.sections = defaults.sections;
  rope.interleaves_sections = scaling.boolean("mrope_interleaved", defaults.interleaves_sections);
  if (rope.type == RopeType::kLlama3) read_llama3(scaling, rope);
  if (rope.type == RopeType::kYarn) read_yarn(scaling, rope);
  return rope;
}

// Refuses `truncate` next to the sets, where transformers looks for it and where no published file
// has it.
void refuse_truncate(const ConfigReader& root, const nlohmann::json& parameters,
                     const nlohmann::json* set) {
  ConfigReader reader = root.narrowed({set, &parameters}, /*keep_own=*/false);
  if (reader.boolean("truncate", true)) return;
  reader.refuse("truncate", "with parameters for each kind of layer only true is served");
}

RopeConfigs read_sets(ConfigReader& root, const nlohmann::json& parameters,
                      const RopeConfigs& defaults, int64_t max_position_embeddings) {
  const nlohmann::json *full = nullptr, *sliding = nullptr;
  for (const auto& [kind, set] : parameters.items()) {
    if (!is_set(set)) continue;
    if (kind != kFull && kind != kSliding) {
      root.fail(unimplemented(
          fmt::format("rope_parameters has a set for {}; served are \"{}\" and \"{}\"",
                      readable(kind), kFull, kSliding)));
      continue;
    }
    (kind == kFull ? full : sliding) = &set;
    refuse_truncate(root, parameters, &set);
  }
  ConfigReader own = root.narrowed({full != nullptr ? full : sliding}, /*keep_own=*/false);
  RopeConfigs ropes{.rope = read_set(own, own, defaults.rope, max_position_embeddings)};
  if (sliding == nullptr) return ropes;
  ConfigReader of_sliding = root.narrowed({sliding}, /*keep_own=*/false);
  ropes.sliding = read_set(of_sliding, of_sliding, defaults.sliding.value_or(defaults.rope),
                           max_position_embeddings);
  if (ropes.sliding->theta == 0) ropes.sliding->theta = ropes.rope.theta;
  const double local = root.number(kLocalTheta, ropes.sliding->theta, kThetas);
  if (local != ropes.sliding->theta) {
    root.fail(kLocalTheta,
              fmt::format("but rope_theta of {} is {:g}", kSliding, ropes.sliding->theta));
  }
  return ropes;
}

}  // namespace

std::string_view to_string(RopeType type) {
  switch (type) {
    case RopeType::kDefault:
      return "default";
    case RopeType::kLinear:
      return "linear";
    case RopeType::kLlama3:
      return "llama3";
    case RopeType::kYarn:
      return "yarn";
    case RopeType::kProportional:
      return "proportional";
    case RopeType::kLongRope:
      return "longrope";
  }
  return "unknown";
}

RopeConfigs read_rope_configs(ConfigReader& root, const RopeConfigs& defaults, bool slides,
                              int64_t max_position_embeddings) {
  const nlohmann::json* const parameters = root.object("rope_parameters");
  const nlohmann::json* const old_scaling = root.object("rope_scaling");
  if (parameters != nullptr && has_sets(*parameters)) {
    return read_sets(root, *parameters, defaults, max_position_embeddings);
  }
  ConfigReader scaling = root.narrowed({parameters, old_scaling}, /*keep_own=*/false);
  ConfigReader anywhere = root.narrowed({parameters, old_scaling}, /*keep_own=*/true);
  RopeConfigs ropes{.rope = read_set(scaling, anywhere, defaults.rope, max_position_embeddings),
                    .sliding = defaults.sliding};
  if (slides && root.has(kLocalTheta)) {
    if (!ropes.sliding) ropes.sliding = defaults.rope;
    ropes.sliding->theta = root.number(kLocalTheta, std::nullopt, kThetas);
  }
  if (ropes.sliding && ropes.sliding->theta == 0) ropes.sliding->theta = ropes.rope.theta;
  return ropes;
}

Result<std::vector<int32_t>> rope_axes(const RopeConfig& rope, int64_t num_pairs) {
  constexpr size_t kAxes = 3;
  int64_t sum = 0;
  for (const int64_t section : rope.sections) sum += section;
  if (rope.sections.size() != kAxes || sum != num_pairs) {
    return invalid_argument(
        fmt::format("mrope_section has {} sections of {} pairs in all; {} of {} pairs are needed",
                    rope.sections.size(), sum, kAxes, num_pairs));
  }
  std::vector<int32_t> axes;
  for (int64_t c = 0; c < num_pairs; ++c) {
    const auto turn = static_cast<size_t>(c) % kAxes;
    int32_t axis = 0;
    if (!rope.interleaves_sections) {
      axis = c < rope.sections[0] ? 0 : c < rope.sections[0] + rope.sections[1] ? 1 : 2;
    } else if (turn > 0 && c < static_cast<int64_t>(kAxes) * rope.sections[turn]) {
      axis = static_cast<int32_t>(turn);
    }
    axes.push_back(axis);
  }
  return axes;
}

int64_t rotary_width(const RopeConfig& rope, int64_t head_dim) {
  if (rope.type == RopeType::kProportional) return head_dim;
  return static_cast<int64_t>(static_cast<double>(head_dim) * rope.partial_rotary_factor);
}

double yarn_score_factor(const RopeConfig& rope) {
  if (rope.type != RopeType::kYarn || rope.mscale_all_dim == 0) return 1;
  const double magnitude = yarn_magnitude(rope.factor, rope.mscale_all_dim);
  return magnitude * magnitude;
}

int64_t short_rope_tokens(const RopeConfig& rope) {
  return rope.long_divisors.empty() ? 0 : rope.original_max_position_embeddings;
}

RopeFrequencies inverse_frequencies(const RopeConfig& rope, int64_t head_dim) {
  const int64_t width = rotary_width(rope, head_dim);
  HEDDLE_CHECK(width >= 2 && width % 2 == 0);
  std::vector<double> frequencies = unscaled(rope.theta, width);
  RopeFrequencies result;
  switch (rope.type) {
    case RopeType::kDefault:
      break;
    case RopeType::kLinear:
      for (double& frequency : frequencies) frequency /= rope.factor;
      break;
    case RopeType::kProportional: {  // rotates only the leading pairs; the frequency of the others
                                     // is 0
      const double pairs = std::floor(rope.partial_rotary_factor * static_cast<double>(width) / 2);
      for (double& frequency : frequencies) frequency /= rope.factor;
      std::fill(frequencies.begin() + static_cast<std::ptrdiff_t>(pairs), frequencies.end(), 0.0);
      break;
    }
    case RopeType::kLlama3:
      scale_llama3(rope, frequencies);
      break;
    case RopeType::kYarn:
      scale_yarn(rope, frequencies);
      result.attention_factor = static_cast<float>(yarn_attention_factor(rope));
      break;
    case RopeType::kLongRope:
      HEDDLE_CHECK_EQ(rope.divisors.size(), frequencies.size());
      for (size_t i = 0; i < rope.long_divisors.size(); ++i) {
        result.inverse_of_long.push_back(
            static_cast<float>(frequencies[i] / rope.long_divisors[i]));
      }
      for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= rope.divisors[i];
      result.attention_factor = static_cast<float>(rope.attention_factor.value_or(1.0));
      break;
  }
  for (const double frequency : frequencies) {
    result.inverse.push_back(static_cast<float>(frequency));
  }
  return result;
}

}  // namespace heddle::checkpoint
