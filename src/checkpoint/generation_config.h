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
  std::optional<int64_t> top_k;  // 0: all tokens
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;

  // Values that are not used as they are written, and what is used instead. To be logged once.
  std::vector<std::string> notes;
};

// A number that transformers takes and that is beyond what a request may ask for counts as the
// nearest one that it may. Error: kInvalidArgument, naming key and value; kDataLoss for broken
// JSON. `origin` is the name of the text in notes.
Result<GenerationConfig> parse_generation_config(
    std::string_view json_text, std::string_view origin = "generation_config.json");

// Reads <folder>/generation_config.json, or without it what a GGUF file has of it, and logs the
// notes; without either the configuration is empty. The model's own eos stands in where it has
// none. Error: as above, and for an id outside the vocabulary.
Result<GenerationConfig> load_generation_config(const std::filesystem::path& folder,
                                                const ModelConfig& model);

}  // namespace heddle::checkpoint
