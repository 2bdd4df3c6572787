// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_sampling.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heddle::checkpoint {

namespace {

struct SamplingKey {
  std::string_view stored;
  std::string_view hub;
  std::string_view part_of;  // the stored key that must be on for this key to have an effect;
                             // empty: none
};

constexpr SamplingKey kKeys[] = {
    {"temp", "temperature", ""},
    {"top_k", "top_k", ""},
    {"top_p", "top_p", ""},
    {"min_p", "min_p", ""},
    {"penalty_repeat", "repetition_penalty", ""},
    {"penalty_last_n", "penalty_last_n", "penalty_repeat"},
    {"xtc_probability", "xtc_probability", ""},
    {"xtc_threshold", "xtc_threshold", "xtc_probability"},
    {"mirostat", "mirostat", ""},
    {"mirostat_tau", "mirostat_tau", "mirostat"},
    {"mirostat_eta", "mirostat_eta", "mirostat"},
};

std::string full(std::string_view key) { return fmt::format("general.sampling.{}", key); }

}  // namespace

Result<std::optional<std::string>> gguf_generation_config(const GgufMetadata& metadata) {
  nlohmann::ordered_json config = nlohmann::ordered_json::object();
  for (const SamplingKey& key : kKeys) {
    if (!key.part_of.empty()) {
      HEDDLE_ASSIGN_OR_RETURN(const auto on, metadata.number(full(key.part_of)));
      const double off = key.part_of == "penalty_repeat" ? 1 : 0;
      if (!on || *on == off) continue;
    }
    const std::string name = full(key.stored);
    HEDDLE_ASSIGN_OR_RETURN(auto number, metadata.number(name));
    if (!number) continue;
    if (!std::isfinite(*number)) return data_loss(fmt::format("{} is {}", name, *number));
    if (key.stored == "temp" || key.stored == "top_k") number = std::max(*number, 0.0);
    const bool is_whole = *number == std::floor(*number) && std::abs(*number) < 1e9;
    if (is_whole) {
      config[key.hub] = static_cast<int64_t>(*number);
    } else {  // writes a float as its shortest decimal: "0.95", not "0.949999988079071"
      config[key.hub] =
          nlohmann::ordered_json::parse(fmt::format("{}", static_cast<float>(*number)));
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto order, metadata.text(full("sequence")));
  if (order && !order->empty()) config["sequence"] = *order;
  if (config.empty()) return std::optional<std::string>();
  return std::optional(
      config.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace heddle::checkpoint
