// SPDX-License-Identifier: Apache-2.0
// The quantisation of a checkpoint: `quantization_config` of config.json and its older
// spellings. The files' tensors decide how each module is stored (quantised_modules.h); this says
// what they mean where tensors alone do not (bits, zero points), and what to expect of them.
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

[[nodiscard]] const char* to_string(QuantMethod method);  // as quant_method spells it

// The KV cache format that the checkpoint was calibrated for.
enum class KvCacheScheme : uint8_t {
  kNone,
  kFp8,    // E4M3, one scale a layer for keys and one for values
  kOther,  // something else
};

struct QuantizationConfig {
  QuantMethod method = QuantMethod::kFp8;
  int bits = 4;
  int64_t group_size = 0;      // AWQ and GPTQ; -1: the whole row; 0: not given
  bool symmetric = false;      // GPTQ: zero points are promised to be 2^(bits-1)
  bool zeros_less_one = true;  // GPTQ version 1
  int64_t block_rows = 128;    // rows per block scale
  int64_t block_columns = 128;
  std::vector<std::string> ignored;  // modules that stay as they are, in the method's own syntax
  std::vector<ModulePattern> ignored_patterns;
  KvCacheScheme kv_cache = KvCacheScheme::kNone;
  bool is_of_weights = true;  // false: of the KV cache alone

  // GPTQ's and AutoRound's per-module overrides. 0 bits: not quantised.
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

  // Bits of a module's codes.
  [[nodiscard]] int bits_of(std::string_view module) const;
};

// `quantization` is the object. Takes the names that other tools have for these layouts: gptqmodel,
// auto-round (by its packing_format), autoawq, ... Error: kUnimplemented for methods and variants
// that are not served, listing those that are; kInvalidArgument for values out of range.
Result<QuantizationConfig> parse_quantization_config(const nlohmann::json& quantization);

struct SeparateQuantization {
  std::string file;  // file name
  QuantizationConfig config;
};

// Reads the separate file that older tools write next to config.json; nullopt if there is none.
// Error: as above and for broken JSON, with the file's name.
Result<std::optional<SeparateQuantization>> load_separate_quantization(
    const std::filesystem::path& folder);

}  // namespace heddle::checkpoint
