// SPDX-License-Identifier: Apache-2.0
// A checkpoint's generation_config.json: the sampling defaults its authors recommend, used where
// neither the request nor a command-line flag says otherwise.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/status.h>

#include "checkpoint/model_config.h"

namespace heddle::checkpoint {

struct GenerationConfig {
  std::vector<int64_t> eos_token_ids;  // generation stops at any of them
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<int64_t> top_k;  // top_k; 0: no limit, all tokens can be drawn
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;

  // One sentence for each value that is replaced, with the value used instead. The caller logs them
  // once.
  std::vector<std::string> notes;
};

// Parses the file's text. A number that transformers accepts and that exceeds the range of requests
// is replaced by the nearest number in that range. Error: kInvalidArgument, naming key and value;
// kDataLoss for broken JSON. `origin` is how notes refer to the text.
Result<GenerationConfig> parse_generation_config(
    std::string_view json_text, std::string_view origin = "generation_config.json");

// Reads <folder>/generation_config.json, or without it the sampling defaults of a GGUF file, and
// logs the notes. If there is neither, the configuration is empty. If no eos is given there, the
// model config's eos is used. Error: as parse_generation_config(), and for an id outside the
// vocabulary.
Result<GenerationConfig> load_generation_config(const std::filesystem::path& folder,
                                                const ModelConfig& model);

}  // namespace heddle::checkpoint
