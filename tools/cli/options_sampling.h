// SPDX-License-Identifier: Apache-2.0
// How to draw tokens and when to stop, on the command line. The model's defaults fill in the rest.
#pragma once

#include <cstdint>
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
};

void declare_sampling_options(
    Options& options, SamplingSettings& settings,
    std::string_view heading = "Sampling (default: what the model's generation_config.json says)");

// The model's defaults with what was given on top.
[[nodiscard]] SamplingParams sampling_of(const SamplingSettings& settings, const ModelInfo& model);

// A request for `prompt`; without --max-tokens its answer may have `default_tokens`, or what is
// left of the context if that is less. Error: the prompt does not fit, saying by how much.
Result<Request> make_request(const SamplingSettings& settings, const ModelInfo& model,
                             std::vector<TokenId> prompt, int64_t default_tokens);

}  // namespace heddle::tools
