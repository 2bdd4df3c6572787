// SPDX-License-Identifier: Apache-2.0
// The options of every subcommand that loads a model, and where a model is found when none is
// named.
#pragma once

#include <filesystem>
#include <string>

#include <heddle/options.h>
#include <heddle/status.h>

#include "options.h"

namespace heddle::tools {

// Of --kv-cache-dtype, wherever a forward pass is made.
inline constexpr const char* kKvCacheDtypeHelp =
    "Format of keys and values: auto, float32, bfloat16, float16, fp8_e4m3; auto: as the "
    "checkpoint says, or as the weights are";

// Of --device, wherever a model is loaded.
inline constexpr const char* kDeviceHelp =
    "Where the model is computed: auto, cpu, cuda, cuda:N; auto: a GPU if it can be used";

struct EngineSettings {
  std::string model_dir;   // the positional; empty: the default model
  std::string model_path;  // --model-path, the same thing
  std::string chat_template;
  std::string log_level = "info";
  EngineOptions engine;
};

enum class ModelArgument {
  kRequired,  // the first positional
  kOptional,  // the first positional; the default model without it
};

// Declares the model argument and the engine's options, with SGLang's spellings as aliases.
void declare_engine_options(Options& options, EngineSettings& settings, ModelArgument argument);

// Sets the log level and settles engine.model_dir. Error: no such model.
Status apply(EngineSettings& settings);

// models/heddle-tiny below the current folder, or beside or above the program. Error: kNotFound.
Result<std::filesystem::path> default_model_dir();

}  // namespace heddle::tools
