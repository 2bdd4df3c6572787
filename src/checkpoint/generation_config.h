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
  std::optional<int64_t> bos_token_id;
  std::optional<int64_t> pad_token_id;
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<int64_t> top_k;  // 0: all tokens
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int64_t> max_new_tokens;
  std::vector<std::string> stop_strings;
};

// Error: kInvalidArgument, naming key and value; kDataLoss for broken JSON.
Result<GenerationConfig> parse_generation_config(std::string_view json_text);

// Reads <folder>/generation_config.json; no file is an empty configuration. The model's own eos and
// bos stand in where the file gives none. Error: as above, and for an id outside the vocabulary.
Result<GenerationConfig> load_generation_config(const std::filesystem::path& folder,
                                                const ModelConfig& model);

}  // namespace heddle::checkpoint
