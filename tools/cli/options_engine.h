// SPDX-License-Identifier: Apache-2.0
// The options of every subcommand that loads a model, and the default model.
#pragma once

#include <filesystem>
#include <string>

#include <heddle/options.h>
#include <heddle/status.h>

#include "checkpoint/weight_slice.h"
#include "tools/cli/options.h"

namespace heddle::tools {

namespace ranges {

inline constexpr ValueRange kRanks = {.low = 1, .high = double{checkpoint::kMaxRanks}};

}  // namespace ranges

// Help text of --load-format for subcommands that compute with the weights.
inline constexpr const char* kDummyWeightsHelp = "dummy: seeded random weights for a config.json";

// Help text of --device for all subcommands that load a model.
inline constexpr const char* kDeviceHelp =
    "Where the model is computed: auto, cpu, cuda, cuda:N; auto: a GPU if it can be used";

struct EngineSettings {
  std::string model_dir;   // positional argument; empty: the default model
  std::string model_path;  // value of --model-path, an alias of the positional argument
  std::string chat_template;
  std::string log_level = "info";
  std::string log_format = "text";
  EngineOptions engine;
};

enum class ModelArgument {
  kRequired,       // the model is required, as the first positional argument
  kOptional,       // the first positional; the default model without it
  kRequiredOrUrl,  // as kRequired, but --url may replace it: the subcommand checks that it is there
};

// --disable-cuda-graph, --piecewise-cuda-graph-max-tokens and --cuda-graph-debug.
void declare_captures(Options& options, bool& disable_cuda_graph, int64_t& piecewise_max_tokens,
                      bool& debug);

// --load-format, --dtype and --kv-cache-dtype, --quantization: wherever a forward pass is made.
void declare_load_format(Options& options, LoadFormat& format, const char* help);
void declare_dtypes(Options& options, RunDtype& dtype, KvCacheDtype& kv_cache_dtype);
void declare_quantization(Options& options, Quantization& quantization);

// --tp and --collective-timeout: wherever ranks compute. The timeout has no effect on a single
// rank; `num_ranks` must outlive `options`.
void declare_ranks(Options& options, int32_t& num_ranks);
void declare_collective_timeout(Options& options, double& seconds, const int32_t& num_ranks);

// Declares the model argument and the engine's options, with SGLang's spellings as aliases.
void declare_engine_options(Options& options, EngineSettings& settings, ModelArgument argument);

// Sets the log level and determines engine.model_dir. Error: there is no such model.
Status apply(EngineSettings& settings);

// Finds models/heddle-tiny in the current folder, or next to the program or in a folder above it.
// Error: kNotFound.
Result<std::filesystem::path> default_model_dir();

}  // namespace heddle::tools
