// SPDX-License-Identifier: Apache-2.0
// The options for sampling and stop conditions. Options that are not given get the model's
// defaults.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/engine.h>
#include <heddle/request.h>

#include "tools/cli/options.h"

namespace heddle::tools {

struct SamplingSettings {
  std::optional<int64_t> max_tokens;
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<int32_t> top_k;
  std::optional<float> min_p;
  std::optional<float> frequency_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> repetition_penalty;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::shared_ptr<const Adapter> adapter = nullptr;  // of the engine; null: none
};

void declare_sampling_options(
    Options& options, SamplingSettings& settings,
    std::string_view heading = "Sampling (default: what the model's generation_config.json says)");

// The model's sampling defaults, overridden by the options that were given.
[[nodiscard]] SamplingParams sampling_of(const SamplingSettings& settings, const ModelInfo& model);

// A request for `prompt`. Without --max-tokens its answer may have `default_tokens`, or the rest of
// the context if that is less. Error: the prompt does not fit, with the number of tokens.
Result<Request> make_request(const SamplingSettings& settings, const ModelInfo& model,
                             std::vector<TokenId> prompt, int64_t default_tokens);

}  // namespace heddle::tools
