// SPDX-License-Identifier: Apache-2.0
#include "runner/load/number_formats.h"

#include <string_view>

#include "core/check.h"
#include "core/choice_names.h"

namespace heddle {

namespace {

constexpr ChoiceNames<LoadFormat, 3> kLoadFormats = {{
    {"auto", LoadFormat::kAuto},
    {"safetensors", LoadFormat::kSafetensors},
    {"dummy", LoadFormat::kDummy},
}};

constexpr ChoiceNames<RunDtype, 8> kRunDtypes = {{
    {"auto", RunDtype::kAuto},
    {"float32", RunDtype::kFloat32},
    {"bfloat16", RunDtype::kBfloat16},
    {"float16", RunDtype::kFloat16},
    {"fp32", RunDtype::kFloat32},
    {"bf16", RunDtype::kBfloat16},
    {"fp16", RunDtype::kFloat16},
    {"half", RunDtype::kFloat16},
}};

constexpr ChoiceNames<KvCacheDtype, 10> kKvCacheDtypes = {{
    {"auto", KvCacheDtype::kAuto},
    {"float32", KvCacheDtype::kFloat32},
    {"bfloat16", KvCacheDtype::kBfloat16},
    {"float16", KvCacheDtype::kFloat16},
    {"fp8_e4m3", KvCacheDtype::kFp8E4m3},
    {"fp32", KvCacheDtype::kFloat32},
    {"bf16", KvCacheDtype::kBfloat16},
    {"fp16", KvCacheDtype::kFloat16},
    {"half", KvCacheDtype::kFloat16},
    {"fp8", KvCacheDtype::kFp8E4m3},
}};

constexpr ChoiceNames<Quantization, 19> kQuantizations = {{
    {"none", Quantization::kNone},
    {"fp8", Quantization::kFp8},
    {"fp8-block", Quantization::kFp8Block},
    {"int8", Quantization::kInt8},
    {"int4", Quantization::kInt4},
    {"int4-g64", Quantization::kInt4Group64},
    {"int4-g32", Quantization::kInt4Group32},
    {"mxfp4", Quantization::kMxfp4},
    {"awq", Quantization::kAwq},
    {"gptq", Quantization::kGptq},
    {"compressed-tensors", Quantization::kCompressedTensors},
    {"modelopt", Quantization::kModelOpt},
    {"awq_marlin", Quantization::kAwq},
    {"gptq_marlin", Quantization::kGptq},
    {"gptqmodel", Quantization::kGptq},
    {"compressed_tensors", Quantization::kCompressedTensors},
    {"w8a8_int8", Quantization::kInt8},
    {"modelopt_fp8", Quantization::kModelOpt},
    {"modelopt_fp4", Quantization::kModelOpt},
}};

}  // namespace

std::string_view to_string(LoadFormat format) { return name_of(kLoadFormats, format); }

Result<LoadFormat> parse_load_format(std::string_view name) {
  return choice_of(kLoadFormats, name, "load_format", "auto, safetensors or dummy");
}

std::string_view to_string(RunDtype dtype) { return name_of(kRunDtypes, dtype); }

Result<RunDtype> parse_run_dtype(std::string_view name) {
  return choice_of(kRunDtypes, name, "dtype", "auto, float32, bfloat16 or float16");
}

std::string_view to_string(KvCacheDtype dtype) { return name_of(kKvCacheDtypes, dtype); }

Result<KvCacheDtype> parse_kv_cache_dtype(std::string_view name) {
  if (name == "fp8_e5m2") {
    return invalid_argument(
        "kv_cache_dtype \"fp8_e5m2\" rounds twice as coarsely as fp8_e4m3, whose scales make up "
        "for its smaller range; use fp8_e4m3");
  }
  return choice_of(kKvCacheDtypes, name, "kv_cache_dtype",
                   "auto, float32, bfloat16, float16 or fp8_e4m3");
}

std::string_view to_string(Quantization quantization) {
  return name_of(kQuantizations, quantization);
}

Result<Quantization> parse_quantization(std::string_view name) {
  return choice_of(kQuantizations, name, "quantization",
                   "none, fp8, fp8-block, int8, int4, int4-g64, int4-g32 or mxfp4, or the format "
                   "that the checkpoint has: awq, gptq, compressed-tensors or modelopt");
}

}  // namespace heddle

namespace heddle::runner {

std::optional<DType> dtype_of(RunDtype dtype) {
  switch (dtype) {
    case RunDtype::kAuto:
      return std::nullopt;
    case RunDtype::kFloat32:
      return DType::kF32;
    case RunDtype::kBfloat16:
      return DType::kBf16;
    case RunDtype::kFloat16:
      return DType::kF16;
  }
  HEDDLE_CHECK(false && "a dtype of runs");
}

std::optional<DType> dtype_of(KvCacheDtype dtype) {
  switch (dtype) {
    case KvCacheDtype::kAuto:
      return std::nullopt;
    case KvCacheDtype::kFloat32:
      return DType::kF32;
    case KvCacheDtype::kBfloat16:
      return DType::kBf16;
    case KvCacheDtype::kFloat16:
      return DType::kF16;
    case KvCacheDtype::kFp8E4m3:
      return DType::kF8E4M3;
  }
  HEDDLE_CHECK(false && "a dtype of keys and values");
}

namespace {

// The checkpoint format that an option names; none: the option only rounds.
std::optional<checkpoint::QuantMethod> stored_method(Quantization quantization) {
  using checkpoint::QuantMethod;
  switch (quantization) {
    case Quantization::kFp8:
    case Quantization::kFp8Block:
      return QuantMethod::kFp8;
    case Quantization::kInt8:
      return QuantMethod::kInt8;
    case Quantization::kAwq:
      return QuantMethod::kAwq;
    case Quantization::kGptq:
      return QuantMethod::kGptq;
    case Quantization::kCompressedTensors:
      return QuantMethod::kCompressedTensors;
    case Quantization::kMxfp4:
      return QuantMethod::kMxfp4;
    case Quantization::kModelOpt:
      return QuantMethod::kModelOpt;
    case Quantization::kNone:
    case Quantization::kInt4:
    case Quantization::kInt4Group64:
    case Quantization::kInt4Group32:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

Result<std::optional<checkpoint::Rounding>> rounding_of(Quantization quantization,
                                                        const checkpoint::ModelConfig& config,
                                                        bool dummy_weights) {
  using quant::Scheme;
  const bool is_stored = config.quantization && !dummy_weights;
  if (is_stored && quantization != Quantization::kNone) {
    if (stored_method(quantization) == config.quantization->method) {
      return std::optional<checkpoint::Rounding>();
    }
    return invalid_argument(fmt::format(
        "--quantization is {}, but the checkpoint is quantised already, as {}; leave the "
        "option out",
        to_string(quantization), to_string(config.quantization->method)));
  }
  switch (quantization) {
    case Quantization::kAwq:
    case Quantization::kGptq:
    case Quantization::kCompressedTensors:
    case Quantization::kModelOpt:
      if (config.quantization && config.quantization->method == stored_method(quantization)) {
        return std::optional<checkpoint::Rounding>();  // random weights are not quantised
      }
      return invalid_argument(fmt::format(
          "--quantization is {}, but config.json has no such quantization_config; leave "
          "the option out, or name fp8, fp8-block, int8, int4 or mxfp4 to quantise while loading",
          to_string(quantization)));
    case Quantization::kNone:
      return std::optional<checkpoint::Rounding>();
    case Quantization::kFp8:
      return std::optional(checkpoint::Rounding{.scheme = Scheme::kFp8});
    case Quantization::kFp8Block:
      return std::optional(checkpoint::Rounding{.scheme = Scheme::kFp8Block});
    case Quantization::kMxfp4:
      return std::optional(checkpoint::Rounding{.scheme = Scheme::kMxfp4});
    case Quantization::kInt8:
      return std::optional(checkpoint::Rounding{.scheme = Scheme::kInt8});
    case Quantization::kInt4:
      return std::optional(checkpoint::Rounding{.scheme = Scheme::kInt4});
    case Quantization::kInt4Group64:
      return std::optional(checkpoint::Rounding{.scheme = Scheme::kInt4, .group_size = 64});
    case Quantization::kInt4Group32:
      return std::optional(checkpoint::Rounding{.scheme = Scheme::kInt4, .group_size = 32});
  }
  HEDDLE_CHECK(false && "a quantisation");
}

RunDtype run_dtype(DType dtype) {
  for (const RunDtype asked : {RunDtype::kFloat32, RunDtype::kBfloat16, RunDtype::kFloat16}) {
    if (dtype_of(asked) == dtype) return asked;
  }
  HEDDLE_CHECK(false && "a dtype that runs have");
}

KvCacheDtype kv_cache_dtype(DType dtype) {
  for (const KvCacheDtype asked : {KvCacheDtype::kFloat32, KvCacheDtype::kBfloat16,
                                   KvCacheDtype::kFloat16, KvCacheDtype::kFp8E4m3}) {
    if (dtype_of(asked) == dtype) return asked;
  }
  HEDDLE_CHECK(false && "a dtype that keys and values have");
}

}  // namespace heddle::runner
