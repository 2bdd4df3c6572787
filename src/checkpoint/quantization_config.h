// SPDX-License-Identifier: Apache-2.0
// The quantisation of a checkpoint: `quantization_config` of config.json and its older spellings.
// The files' tensors decide how each module is stored (quantised_modules.h). This config supplies
// what tensors do not show, bits and zero points, and is checked against the tensors.
//
// Threading: values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <heddle/status.h>

#include "checkpoint/module_pattern.h"

namespace heddle::checkpoint {

enum class QuantMethod : uint8_t {
  kAwq,
  kGptq,
  kFp8,
  kCompressedTensors,
  kInt8,
  kMxfp4,
  kModelOpt
};

// the method's name as quant_method spells it
[[nodiscard]] const char* to_string(QuantMethod method);

// The KV cache format that the checkpoint was calibrated for.
enum class KvCacheScheme : uint8_t {
  kNone,
  kFp8,    // E4M3, one scale a layer for keys and one for values
  kOther,  // a scheme that Heddle does not know
};

struct QuantizationConfig {
  QuantMethod method = QuantMethod::kFp8;
  int bits = 4;
  int64_t group_size = 0;      // columns per scale, for AWQ and GPTQ; -1: the whole row; 0: not in
                               // the config
  bool symmetric = false;      // GPTQ: zero points are promised to be 2^(bits-1)
  bool zeros_less_one = true;  // true: stored zero points are one less than the real ones, as in
                               // GPTQ version 1
  int64_t block_rows = 128;    // rows that share a scale, for scales per block
  int64_t block_columns = 128;
  std::vector<std::string> ignored;  // modules that are not quantised, in the syntax of the method
  std::vector<ModulePattern> ignored_patterns;
  KvCacheScheme kv_cache = KvCacheScheme::kNone;
  bool is_of_weights = true;  // false: the config quantises only the KV cache, not the weights

  // Overrides for single modules in GPTQ and AutoRound. 0 bits: not quantised.
  struct Override {
    ModulePattern pattern;
    int bits = 0;
  };

  std::vector<Override> overrides;

  // Whether the checkpoint says that `module` ("model.layers.0.mlp.gate") is not quantised. Each
  // method matches in its own way: AWQ by any part of the path, FP8 by the path or a whole prefix
  // of it (never `mlp.gate` for `mlp.gate_proj`), compressed-tensors by path, "re:" or class,
  // ModelOpt and MXFP4 by globs.
  [[nodiscard]] bool ignores(std::string_view module) const;

  // The number of bits per code in this module.
  [[nodiscard]] int bits_of(std::string_view module) const;
};

// Parses the quantization_config object. Accepts the names that other tools use for these layouts:
// gptqmodel, auto-round (by its packing_format), autoawq, ... Error: kUnimplemented for methods and
// variants that are not served, listing those that are; kInvalidArgument for values out of range.
Result<QuantizationConfig> parse_quantization_config(const nlohmann::json& quantization);

struct SeparateQuantization {
  std::string file;  // name of the file that the configuration was read from
  QuantizationConfig config;
};

// Reads the separate file that older tools write next to config.json; nullopt if there is none.
// Error: as parse_quantization_config(), and for broken JSON, with the file's name.
Result<std::optional<SeparateQuantization>> load_separate_quantization(
    const std::filesystem::path& folder);

}  // namespace heddle::checkpoint
