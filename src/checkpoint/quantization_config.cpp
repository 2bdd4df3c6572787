// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/quantization_config.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/config_reader.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/readable.h"
#include "core/file_presence.h"

namespace heddle::checkpoint {

namespace {

using nlohmann::json;

std::string_view without_model(std::string_view path) {
  constexpr std::string_view kModel = "model.";
  return path.starts_with(kModel) ? path.substr(kModel.size()) : path;
}

bool is_path_or_parent(std::string_view entry, std::string_view module) {
  entry = without_model(entry);
  module = without_model(module);
  return module == entry ||
         (module.size() > entry.size() && module.starts_with(entry) && module[entry.size()] == '.');
}

bool entry_ignores(QuantMethod method, const std::string& entry, std::string_view module) {
  switch (method) {
    case QuantMethod::kAwq:
    case QuantMethod::kGptq:
      return module.find(entry) != std::string_view::npos;
    case QuantMethod::kFp8:
    case QuantMethod::kInt8:
      return is_path_or_parent(entry, module);
    case QuantMethod::kCompressedTensors:
      return entry == module || entry == "Linear";
    case QuantMethod::kModelOpt:
    case QuantMethod::kMxfp4:
      return glob_matches(entry, module);
  }
  return false;
}

// The method whose layout AutoRound used: it packs its codes like another tool and names that tool.
Result<QuantMethod> method_of_auto_round(ConfigReader& reader) {
  const std::string type = reader.text("data_type", std::string("int"));
  const std::string packing = reader.text(reader.spelling("packing_format", "backend"),
                                          std::string("auto_round:auto_gptq"));
  if (type != "int") {
    return unimplemented(
        fmt::format("auto-round with data_type {}; \"int\" is served", readable(type)));
  }
  const auto names = [&packing](std::string_view method) {
    return packing.find(method) != std::string::npos;  // also in longer names:
                                                       // "auto_round:gptq:exllamav2"
  };
  if (names("gptq") || packing == "auto") return QuantMethod::kGptq;
  if (names("awq")) return QuantMethod::kAwq;
  return unimplemented(
      fmt::format("auto-round with packing_format {}; served are \"auto_round:auto_gptq\" and "
                  "\"auto_round:auto_awq\": export the model again with one of them",
                  readable(packing)));
}

Result<QuantMethod> method_of(ConfigReader& reader) {
  constexpr std::array kMethods = {
      std::pair("awq", QuantMethod::kAwq),
      std::pair("gptq", QuantMethod::kGptq),
      std::pair("fp8", QuantMethod::kFp8),
      std::pair("compressed-tensors", QuantMethod::kCompressedTensors),
      std::pair("w8a8_int8", QuantMethod::kInt8),
      std::pair("mxfp4", QuantMethod::kMxfp4),
      std::pair("modelopt", QuantMethod::kModelOpt),
  };
  std::string name = reader.text("quant_method", std::string());
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (name.empty()) {  // older files have no quant_method
    if (reader.has("bits") && reader.has("desc_act")) return QuantMethod::kGptq;
    if (reader.has("w_bit") || (reader.has("zero_point") && reader.has("bits"))) {
      return QuantMethod::kAwq;
    }
    if (reader.has("quant_algo") || reader.has("kv_cache_quant_algo")) {
      return QuantMethod::kModelOpt;
    }
    if (reader.has("config_groups")) return QuantMethod::kCompressedTensors;
    if (reader.has("activation_scheme")) return QuantMethod::kFp8;
  }
  for (const auto& [spelling, method] : kMethods) {
    if (name == spelling) return method;
  }
  constexpr std::array kOtherNames = {
      std::pair("auto-gptq", QuantMethod::kGptq),
      std::pair("gptqmodel", QuantMethod::kGptq),
      std::pair("gptq-marlin", QuantMethod::kGptq),
      std::pair("auto-awq", QuantMethod::kAwq),
      std::pair("autoawq", QuantMethod::kAwq),
      std::pair("awq-marlin", QuantMethod::kAwq),
      std::pair("modelopt-fp8", QuantMethod::kModelOpt),
      std::pair("modelopt-fp4", QuantMethod::kModelOpt),
      std::pair("compressed-tensors", QuantMethod::kCompressedTensors),
      std::pair("llm-compressor", QuantMethod::kCompressedTensors),
  };
  std::string dashed = name;
  std::ranges::replace(dashed, '_', '-');
  for (const auto& [spelling, method] : kOtherNames) {
    if (dashed == spelling) return method;
  }
  if (dashed == "auto-round" || dashed == "autoround" || dashed == "intel/auto-round") {
    return method_of_auto_round(reader);
  }
  std::vector<std::string_view> served;
  for (const auto& [spelling, method] : kMethods) served.emplace_back(spelling);
  return unimplemented(fmt::format("quant_method is {}; served are {}, auto-round",
                                   name.empty() ? "missing" : readable(name),
                                   fmt::join(served, ", ")));
}

// Compiles a pattern. If it is broken, records an error in the reader and returns none.
std::optional<ModulePattern> compile(std::string_view pattern, const char* field,
                                     ConfigReader& reader) {
  const Result<ModulePattern> compiled = ModulePattern::compile(pattern);
  if (compiled.ok()) return *compiled;
  reader.fail(compiled.status().with_context(field));
  return std::nullopt;
}

constexpr ConfigReader::IntegerRange kBits{1, 16};
constexpr ConfigReader::IntegerRange kGroupSize{-1, int64_t{1} << 24};

// AutoRound's per-layer bits: {"lm_head": {"bits": 16}}, by name or regular expression.
void read_extra_config(ConfigReader& reader, QuantizationConfig& config) {
  const json* const layers = reader.object("extra_config");
  if (layers == nullptr) return;
  constexpr int kUnquantisedBits = 16;
  for (const auto& [key, value] : layers->items()) {
    if (!value.is_object()) continue;
    ConfigReader inner = reader.narrowed({&value}, /*keep_own=*/false);
    const auto bits = static_cast<int>(inner.integer("bits", config.bits, {1, 64}));
    if (bits == config.bits) continue;
    std::string pattern;
    const bool is_name = key.find_first_of("*+?^$[](){}|\\") == std::string::npos;
    for (const char c : key) {
      if (is_name && c == '.') pattern += '\\';
      pattern += c;
    }
    if (is_name) pattern += '$';
    const auto compiled = compile(pattern, "extra_config", reader);
    if (compiled) config.overrides.push_back({*compiled, bits >= kUnquantisedBits ? 0 : bits});
  }
}

void read_awq(ConfigReader& reader, QuantizationConfig& config) {
  config.bits =
      static_cast<int>(reader.integer(reader.has("bits") ? "bits" : "w_bit", std::nullopt, kBits));
  config.group_size =
      reader.integer(reader.has("group_size") ? "group_size" : "q_group_size", 128, kGroupSize);
  const std::string version = reader.text("version", std::string("gemm"));
  if (config.bits != 4) {
    reader.fail(unimplemented(fmt::format("AWQ with {} bits; 4 are served", config.bits)));
  }
  if (version != "gemm" && version != "GEMM") {
    reader.fail(unimplemented(
        fmt::format("AWQ version {} has another layout; \"gemm\" is served", readable(version))));
  }
  if (!reader.boolean("zero_point", true)) {
    reader.fail(unimplemented("AWQ without zero points is not served"));
  }
  config.ignored = reader.texts("modules_to_not_convert");
  read_extra_config(reader, config);
}

void read_gptq(ConfigReader& reader, QuantizationConfig& config) {
  config.bits = static_cast<int>(reader.integer("bits", std::nullopt, kBits));
  config.group_size = reader.integer("group_size", 128, kGroupSize);
  config.symmetric = reader.boolean("sym", false);
  const std::string format =
      reader.text(reader.spelling("checkpoint_format", "format"), std::string("gptq"));
  config.zeros_less_one = format != "gptq_v2";
  if (format != "gptq" && format != "gptq_v2") {
    reader.fail(unimplemented(fmt::format(
        "GPTQ checkpoint_format {} is not served; gptq and gptq_v2 are", readable(format))));
  }
  if (config.bits != 4 && config.bits != 8) {
    reader.fail(unimplemented(fmt::format("GPTQ with {} bits; 4 and 8 are served", config.bits)));
  }
  read_extra_config(reader, config);
  const json* const dynamic = reader.object("dynamic");
  if (dynamic == nullptr) return;
  for (const auto& [key, value] : dynamic->items()) {
    const bool negative = key.starts_with("-:");
    const bool marked = negative || key.starts_with("+:");
    ConfigReader inner = reader.narrowed({&value}, /*keep_own=*/false);
    const int bits = negative ? 0 : static_cast<int>(inner.integer("bits", config.bits, kBits));
    const auto pattern = compile(std::string_view(key).substr(marked ? 2 : 0), "dynamic", reader);
    if (pattern) config.overrides.push_back({*pattern, bits});
  }
}

void read_fp8(ConfigReader& reader, QuantizationConfig& config) {
  config.bits = 8;
  const std::string format = reader.text("fmt", std::string("e4m3"));
  if (format != "e4m3" && format != "float8_e4m3fn") {
    reader.fail(unimplemented(fmt::format("FP8 fmt {}; e4m3 is served", readable(format))));
  }
  const std::vector<int64_t> block =
      reader.integers("weight_block_size", {.low = 1, .high = 1 << 20});
  if (block.size() == 2) {
    config.block_rows = block[0];
    config.block_columns = block[1];
  } else if (!block.empty()) {
    reader.fail("weight_block_size", "two numbers are needed");
  }
  config.ignored =
      reader.texts(reader.has("ignored_layers") ? "ignored_layers" : "modules_to_not_convert");
}

// Reads kv_cache_scheme, an object with the same keys as those for weights.
KvCacheScheme read_kv_cache_scheme(ConfigReader& reader) {
  if (!reader.has("kv_cache_scheme")) return KvCacheScheme::kNone;
  const json* const scheme = reader.object("kv_cache_scheme");
  if (scheme == nullptr) return KvCacheScheme::kNone;
  ConfigReader inner = reader.narrowed({scheme}, /*keep_own=*/false);
  const bool fp8 = inner.integer("num_bits", 8, kBits) == 8 &&
                   inner.text("type", std::string("float")) == "float" &&
                   inner.text("strategy", std::string("tensor")) == "tensor" &&
                   !inner.boolean("dynamic", false);
  return fp8 ? KvCacheScheme::kFp8 : KvCacheScheme::kOther;
}

void read_compressed_tensors(ConfigReader& reader, QuantizationConfig& config) {
  config.kv_cache = read_kv_cache_scheme(reader);
  const std::string format = reader.text("format", std::string("pack-quantized"));
  constexpr std::string_view kPattern = "re:";
  for (std::string& entry : reader.texts("ignore")) {
    if (!entry.starts_with(kPattern)) {
      config.ignored.push_back(std::move(entry));
      continue;
    }
    const auto pattern = compile(std::string_view(entry).substr(kPattern.size()), "ignore", reader);
    if (pattern) config.ignored_patterns.push_back(*pattern);
  }
  const auto check_format = [&](const std::string& name) {
    constexpr std::array<std::string_view, 8> kServed = {
        "pack-quantized",       "float-quantized",      "int-quantized",   "naive-quantized",
        "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mixed-precision", "dense"};
    if (std::ranges::find(kServed, name) == kServed.end()) {
      reader.fail(unimplemented(fmt::format("compressed-tensors format {} is not served; {} are",
                                            readable(name), fmt::join(kServed, ", "))));
    }
  };
  check_format(format);
  const json* const groups = reader.object("config_groups");
  if (groups == nullptr) {  // without config_groups only the KV cache is quantised
    if (config.kv_cache == KvCacheScheme::kNone) {
      reader.fail(invalid_argument("compressed-tensors without config_groups"));
    }
    config.is_of_weights = false;
    return;
  }
  for (const auto& [key, value] : groups->items()) {
    if (!value.is_object()) continue;
    ConfigReader group = reader.narrowed({&value}, /*keep_own=*/false);
    if (group.has("format")) check_format(group.text("format", std::string()));
    const json* const weights = group.object("weights");
    if (weights == nullptr) continue;
    ConfigReader inner = reader.narrowed({weights}, /*keep_own=*/false);
    // The tensors show whether codes are integers or floats, and whether a scale is for a row or a
    // block; the number of bits must come from the config.
    config.bits = static_cast<int>(inner.integer("num_bits", 8, kBits));
    const std::vector<int64_t> block =
        inner.integers("block_structure", {.low = 1, .high = 1 << 20});
    if (block.size() == 2) {
      config.block_rows = block[0];
      config.block_columns = block[1];
    }
  }
}

Status check_modelopt_algorithm(const std::string& algorithm) {
  if (algorithm == "FP8" || algorithm == "NVFP4") return ok_status();
  return unimplemented(
      fmt::format("ModelOpt quant_algo {}; FP8 and NVFP4 are served", readable(algorithm)));
}

// Refuses mixed precisions that are not served: {"quant_algo": "MIXED_PRECISION",
// "quantized_layers": {"model.layers.0.mlp.up_proj": {"quant_algo": "FP8"}, ..}}
void check_quantized_layers(ConfigReader& reader) {
  const json* const layers = reader.object("quantized_layers");
  if (layers == nullptr) return;
  for (const auto& [module, value] : layers->items()) {
    if (!value.is_object()) continue;
    ConfigReader layer = reader.narrowed({&value}, /*keep_own=*/false);
    const Status status = check_modelopt_algorithm(layer.text("quant_algo", std::string("FP8")));
    if (!status.ok()) {
      reader.fail(status.with_context(readable(module)).with_context("quantized_layers"));
      return;
    }
  }
}

void read_modelopt(ConfigReader& reader, QuantizationConfig& config) {
  const std::string algorithm = reader.text("quant_algo", std::string("FP8"));
  if (algorithm == "MIXED_PRECISION") {
    check_quantized_layers(reader);
  } else if (Status status = check_modelopt_algorithm(algorithm); !status.ok()) {
    reader.fail(std::move(status));
  }
  config.ignored = reader.texts(reader.has("ignore") ? "ignore" : "exclude_modules");
  config.kv_cache = read_kv_cache_scheme(reader);
  const std::string kv_algorithm = reader.text("kv_cache_quant_algo", std::string());
  if (!kv_algorithm.empty()) {
    config.is_of_weights = reader.has("quant_algo");
    config.kv_cache = kv_algorithm == "FP8" ? KvCacheScheme::kFp8 : KvCacheScheme::kOther;
  }
}

}  // namespace

const char* to_string(QuantMethod method) {
  switch (method) {
    case QuantMethod::kAwq:
      return "awq";
    case QuantMethod::kGptq:
      return "gptq";
    case QuantMethod::kFp8:
      return "fp8";
    case QuantMethod::kCompressedTensors:
      return "compressed-tensors";
    case QuantMethod::kInt8:
      return "w8a8_int8";
    case QuantMethod::kMxfp4:
      return "mxfp4";
    case QuantMethod::kModelOpt:
      return "modelopt";
  }
  return "unknown";
}

bool QuantizationConfig::ignores(std::string_view module) const {
  for (const Override& entry : overrides) {
    if (entry.bits == 0 && entry.pattern.matches(module)) return true;
  }
  if (std::ranges::any_of(ignored_patterns,
                          [&](const ModulePattern& pattern) { return pattern.matches(module); })) {
    return true;
  }
  return std::ranges::any_of(ignored, [&](const std::string& entry) {
    return !entry.empty() && entry_ignores(method, entry, module);
  });
}

int QuantizationConfig::bits_of(std::string_view module) const {
  for (const Override& entry : overrides) {
    if (entry.bits > 0 && entry.pattern.matches(module)) return entry.bits;
  }
  return bits;
}

Result<QuantizationConfig> parse_quantization_config(const json& quantization) {
  Status status;
  ConfigReader reader({&quantization}, status);
  const Result<QuantMethod> method = method_of(reader);
  if (!method.ok()) return method.status().with_context("quantization_config");
  QuantizationConfig config{.method = *method};
  switch (config.method) {
    case QuantMethod::kAwq:
      read_awq(reader, config);
      break;
    case QuantMethod::kGptq:
      read_gptq(reader, config);
      break;
    case QuantMethod::kFp8:
      read_fp8(reader, config);
      break;
    case QuantMethod::kCompressedTensors:
      read_compressed_tensors(reader, config);
      break;
    case QuantMethod::kInt8:
      config.bits = 8;
      config.ignored = reader.texts("modules_to_not_convert");
      break;
    case QuantMethod::kMxfp4:
      config.ignored = reader.texts("modules_to_not_convert");
      break;
    case QuantMethod::kModelOpt:
      read_modelopt(reader, config);
      break;
  }
  if (!status.ok()) return status.with_context("quantization_config");
  return config;
}

Result<std::optional<SeparateQuantization>> load_separate_quantization(
    const std::filesystem::path& folder) {
  for (const char* name : {"hf_quant_config.json", "quantize_config.json", "quant_config.json"}) {
    const std::filesystem::path path = folder / name;
    HEDDLE_ASSIGN_OR_RETURN(const bool exists, optional_file_exists(path));
    if (!exists) continue;
    HEDDLE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxConfigBytes));
    const Result<nlohmann::json> object = parse_json_object(text);
    if (!object.ok()) return object.status().with_context(path.string());
    const auto nested = object->find("quantization");
    const bool has_nested = nested != object->end() && nested->is_object();
    Result<QuantizationConfig> parsed = parse_quantization_config(has_nested ? *nested : *object);
    if (!parsed.ok()) return parsed.status().with_context(path.string());
    return std::optional(SeparateQuantization{.file = name, .config = std::move(parsed).value()});
  }
  return std::optional<SeparateQuantization>();
}

}  // namespace heddle::checkpoint
