// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/model_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/config_reader.h"
#include "checkpoint/readable.h"
#include "checkpoint/unread_keys.h"
#include "core/check.h"

namespace heddle::checkpoint {

namespace {

using nlohmann::json;

// The objects in which keys are looked up. Multimodal configurations keep the language model's keys
// in text_config.
std::vector<const json*> scopes_of(const json& root) {
  std::vector<const json*> scopes;
  const auto text = root.find("text_config");
  if (text != root.end() && text->is_object()) scopes.push_back(&*text);
  scopes.push_back(&root);
  return scopes;
}

// As scopes_of(), for keys of the model as a whole: the root is searched before text_config.
std::vector<const json*> scopes_of_whole_model(const json& root) {
  std::vector<const json*> scopes = scopes_of(root);
  std::ranges::reverse(scopes);
  return scopes;
}

std::string read_architecture(ConfigReader& reader, const json& root) {
  // The root has the whole model's name; the name in text_config is only that of the language part.
  ConfigReader outer = reader.narrowed({&root}, /*keep_own=*/false);
  const std::vector<std::string> architectures = outer.texts("architectures");
  return architectures.empty() ? std::string() : architectures.front();
}

void read_sizes(ConfigReader& reader, const SharedKeys& keys, ModelConfig& config) {
  config.vocab_size = reader.integer("vocab_size", keys.default_vocab_size, kVocabulary);
  config.hidden_size = reader.integer("hidden_size", std::nullopt, kWidth);
  config.num_layers = keys.num_layers ? *keys.num_layers
                                      : reader.integer("num_hidden_layers", std::nullopt, kLayers);
  config.num_attention_heads =
      reader.integer("num_attention_heads", keys.default_num_heads, kHeads);
  config.num_key_value_heads =
      reader.integer("num_key_value_heads",
                     keys.default_num_kv_heads.value_or(config.num_attention_heads), kHeads);
  config.max_position_embeddings = reader.integer(
      "max_position_embeddings", keys.default_max_positions.value_or(32768), kPositions);
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    reader.fail("num_key_value_heads", fmt::format("which does not divide num_attention_heads = {}",
                                                   config.num_attention_heads));
  }
  // A smaller epsilon would vanish in fp32, a larger one would be a different function.
  config.rms_norm_eps = reader.number(keys.norm_epsilon, keys.default_norm_epsilon, {1e-30, 1.0});
}

// The dtype's name in a file: "bfloat16", "torch.bfloat16" or, in a model of several parts, an
// object with one name each. Empty if there is none for the language model.
std::string dtype_name(const json& value) {
  constexpr std::string_view kTorch = "torch.";
  std::string name;
  if (value.is_string()) name = value.get<std::string>();
  for (const char* part : {"", "text_config", "language_config", "llm_config"}) {
    const auto found = value.is_object() ? value.find(part) : value.end();
    if (found != value.end() && found->is_string()) name = found->get<std::string>();
  }
  if (name.starts_with(kTorch)) name.erase(0, kTorch.size());
  return name == "auto" ? std::string() : name;
}

// Dtypes that PyTorch has and Heddle cannot run in. They are ignored, because each tensor has its
// own dtype.
bool is_other_dtype(std::string_view name) {
  return name == "float64" || name == "double" || name.starts_with("float8_") ||
         name.starts_with("int") || name.starts_with("uint");
}

// `dtype` replaced `torch_dtype` in transformers 4.56 and is used if both are present.
void read_dtype(ConfigReader& reader, ModelConfig& config) {
  const std::string_view key = reader.spelling("dtype", "torch_dtype");
  const json* const value = reader.find(key);
  if (value == nullptr) return;
  if (!value->is_string() && !value->is_object()) {
    reader.fail(key, "not the name of a type; write \"bfloat16\", or remove the key");
    return;
  }
  const std::string name = dtype_name(*value);
  const json* const old = reader.find("torch_dtype");
  if (key == "dtype" && old != nullptr && dtype_name(*old) != name) {
    reader.note(fmt::format("config.json has dtype {} and torch_dtype {}; dtype is used",
                            readable(name), readable(dtype_name(*old))));
  }
  if (name.empty() || is_other_dtype(name)) return;  // then weights keep their stored dtypes
  const Result<DType> dtype = parse_dtype(name);
  if (dtype.ok()) {
    config.dtype = dtype.value();
  } else {
    reader.fail(dtype.status().with_context(std::string(key)));
  }
}

std::string method_name(const json& quantization) {
  const auto method = quantization.find("quant_method");
  return method != quantization.end() && method->is_string() ? readable(method->get<std::string>())
                                                             : "without quant_method";
}

void read_storage(ConfigReader& reader, ModelConfig& config) {
  read_dtype(reader, config);
  constexpr std::string_view kKey = "quantization_config";
  constexpr std::string_view kOldKey = "compression_config";
  const std::string_view key = reader.spelling(kKey, kOldKey);
  const json* const quantization = reader.object(key);
  if (quantization == nullptr) return;
  const json* const old = reader.find(kOldKey);
  if (key == kKey && old != nullptr && *old != *quantization) {
    reader.note(fmt::format(
        "config.json has a quantization_config ({}) and another "
        "compression_config ({}); quantization_config is used",
        method_name(*quantization), old->is_object() ? method_name(*old) : "not an object"));
  }
  Result<QuantizationConfig> parsed = parse_quantization_config(*quantization);
  if (parsed.ok()) {
    config.quantization = std::move(parsed).value();
  } else {
    reader.fail(parsed.status());
  }
}

void read_activation(ConfigReader& reader) {
  for (const char* key : {"hidden_act", "hidden_activation", "mlp_hidden_act"}) {
    const std::string activation = reader.text(key, std::string("silu"));
    if (activation != "silu" && activation != "swish") {
      reader.refuse(key, "only \"silu\" is served");
    }
  }
}

void read_token_ids(ConfigReader& reader, ModelConfig& config) {
  config.eos_token_ids = read_end_tokens(reader, "config.json");
  for (const int64_t id : config.eos_token_ids) {
    if (id >= config.vocab_size) {
      reader.fail("eos_token_id", fmt::format("but vocab_size is {}", config.vocab_size));
    }
  }
}

void read_head_dim(ConfigReader& reader, ModelConfig& config) {
  if (!reader.has("head_dim") && config.hidden_size % config.num_attention_heads != 0) {
    reader.fail("hidden_size", fmt::format("which num_attention_heads = {} does not divide, and "
                                           "there is no head_dim",
                                           config.num_attention_heads));
  }
  const int64_t default_head_dim =
      std::max<int64_t>(1, config.hidden_size / config.num_attention_heads);
  config.head_dim = reader.integer("head_dim", default_head_dim, kHeadDim);
}

void check_rotary_width(ConfigReader& reader, const RopeConfig& rope, int64_t head_dim) {
  const int64_t width = rotary_width(rope, head_dim);
  if (width >= 2 && width % 2 == 0) return;
  reader.fail(invalid_argument(
      fmt::format("partial_rotary_factor = {:g} of head_dim = {} rotates {} elements; an even "
                  "number of at least 2 is needed",
                  rope.partial_rotary_factor, head_dim, width)));
}

void read_rope(ConfigReader& reader, ModelConfig& config) {
  const RopeConfigs ropes = read_rope_configs(
      reader, {.rope = config.rope, .sliding = config.sliding_rope},
      config.num_layers_of(LayerKind::kSlidingAttention) > 0, config.max_position_embeddings);
  config.rope = ropes.rope;
  config.sliding_rope = ropes.sliding;
}

// Fills in the values that the family has not set, with the defaults of most models.
void read_rest(ConfigReader& reader, const SharedKeys& keys, ModelConfig& config) {
  if (config.head_dim == 0) read_head_dim(reader, config);
  if (config.layer_kinds.empty()) {
    read_layer_kinds(reader, config, {LayerKind::kFullAttention},
                     [](int64_t) { return LayerKind::kFullAttention; });
  }
  config.is_moe_layer.resize(static_cast<size_t>(config.num_layers), false);
  if (config.intermediate_size == 0 && config.num_moe_layers() < config.num_layers) {
    config.intermediate_size = reader.integer("intermediate_size", std::nullopt, kWidth);
  }
  if (!keys.reads_rope) read_rope(reader, config);
  check_rotary_width(reader, config.rope, config.head_dim);
  if (config.sliding_rope) check_rotary_width(reader, *config.sliding_rope, config.head_dim);
}

}  // namespace

int64_t ModelConfig::num_layers_of(LayerKind kind) const {
  return std::count(layer_kinds.begin(), layer_kinds.end(), kind);
}

int64_t ModelConfig::window_of(int64_t layer) const {
  const bool slides = layer_kinds[static_cast<size_t>(layer)] == LayerKind::kSlidingAttention;
  return slides ? sliding_window : 0;
}

int64_t ModelConfig::num_moe_layers() const {
  return std::count(is_moe_layer.begin(), is_moe_layer.end(), true);
}

Result<ModelName> parse_model_name(std::string_view json_text) {
  HEDDLE_ASSIGN_OR_RETURN(const json root, parse_json_object(json_text));
  Status first_error;
  ConfigReader reader({&root}, first_error);
  ModelName name{.architecture = read_architecture(reader, root),
                 .model_type = reader.text("model_type", std::string())};
  HEDDLE_RETURN_IF_ERROR(first_error);
  if (!name.architecture.empty() || !name.model_type.empty()) return name;
  return invalid_argument(
      "architectures is missing or empty and there is no model_type, so the kind of model is "
      "unknown; write \"architectures\": [\"...\"] as the model's page has it");
}

Result<ModelConfig> parse_model_config(std::string_view json_text, const FamilyReader& family) {
  HEDDLE_ASSIGN_OR_RETURN(const json root, parse_json_object(json_text));
  Status first_error;
  ConfigReader reader(scopes_of(root), first_error);
  ModelConfig config;
  config.architecture = family.architecture.empty() ? read_architecture(reader, root)
                                                    : std::string(family.architecture);
  config.family = family.family;
  const SharedKeys keys = family.shared_keys != nullptr ? family.shared_keys(reader) : SharedKeys();
  read_sizes(reader, keys, config);
  read_storage(reader, config);
  ConfigReader outer_first = reader.narrowed(scopes_of_whole_model(root), /*keep_own=*/false);
  config.tie_word_embeddings = outer_first.boolean("tie_word_embeddings", keys.default_tied);
  if (!keys.reads_activation) read_activation(reader);
  read_token_ids(outer_first, config);
  for (const char* key : {"tie_word_embeddings", "eos_token_id"}) reader.disregard(key);
  family.read(reader, config);
  read_rest(reader, keys, config);
  refuse_unread_keys(reader, config);
  HEDDLE_RETURN_IF_ERROR(first_error);
  config.notes = reader.notes();
  HEDDLE_CHECK_EQ(static_cast<int64_t>(config.layer_kinds.size()), config.num_layers);
  HEDDLE_CHECK(!config.linear_attention || config.num_layers_of(LayerKind::kLinearAttention) > 0);
  HEDDLE_CHECK_EQ(config.moe.has_value(), config.num_moe_layers() > 0);
  return config;
}

std::vector<int64_t> read_end_tokens(ConfigReader& reader, std::string_view file) {
  std::vector<int64_t> ids = reader.integers(
      "eos_token_id", {.low = std::numeric_limits<int64_t>::min(), .high = kTokenIds.high});
  const auto no_token = std::ranges::find_if(ids, [](int64_t id) { return id < 0; });
  if (no_token == ids.end()) return ids;
  reader.note(
      fmt::format("{}: eos_token_id has {}, which is no token and is not used", file, *no_token));
  std::erase_if(ids, [](int64_t id) { return id < 0; });
  return ids;
}

namespace {

std::string_view kind_name(LayerKind kind) {
  switch (kind) {
    case LayerKind::kLinearAttention:
      return "linear_attention";
    case LayerKind::kFullAttention:
      return "full_attention";
    case LayerKind::kSlidingAttention:
      return "sliding_attention";
    case LayerKind::kShortConvolution:
      return "conv";
  }
  return "unknown";
}

// The current name of a kind of layer. Files written before transformers 5 name layers by their
// block.
std::string_view canonical_kind(std::string_view name) {
  if (name == "mamba" || name == "mamba2") return "linear_attention";
  return name == "attention" ? "full_attention" : name;
}

std::string names_of(const std::vector<LayerKind>& kinds) {
  std::vector<std::string> names;
  for (const LayerKind kind : kinds) names.push_back(readable(kind_name(kind)));
  return fmt::format("{}", fmt::join(names, " and "));
}

std::vector<LayerKind> read_layer_types(ConfigReader& reader, const ModelConfig& config,
                                        std::string_view key, const std::vector<LayerKind>& served,
                                        bool may_be_longer) {
  std::vector<std::string> names = reader.texts(key);
  if (may_be_longer && std::ssize(names) > config.num_layers) {
    names.resize(static_cast<size_t>(config.num_layers));
  }
  if (static_cast<int64_t>(names.size()) != config.num_layers) {
    reader.fail(invalid_argument(fmt::format("{} has {} entries, num_hidden_layers is {}", key,
                                             names.size(), config.num_layers)));
  }
  std::vector<LayerKind> kinds;
  for (const std::string& name : names) {
    const auto kind = std::ranges::find(served, canonical_kind(name), kind_name);
    if (kind == served.end()) {
      reader.fail(unimplemented(fmt::format("{} has {}; {} is served with {}", key, readable(name),
                                            config.family, names_of(served))));
      break;
    }
    kinds.push_back(*kind);
  }
  kinds.resize(static_cast<size_t>(config.num_layers), LayerKind::kFullAttention);
  return kinds;
}

}  // namespace

void read_layer_kinds(ConfigReader& reader, ModelConfig& config,
                      const std::vector<LayerKind>& served,
                      const std::function<LayerKind(int64_t layer)>& otherwise,
                      bool may_be_longer) {
  config.layer_kinds.clear();
  const std::string_view key = reader.spelling("layer_types", "layers_block_type");
  if (reader.has(key)) {
    config.layer_kinds = read_layer_types(reader, config, key, served, may_be_longer);
    constexpr std::string_view kOlder = "layers_block_type";
    if (key != kOlder && reader.has(kOlder) &&
        read_layer_types(reader, config, kOlder, served, may_be_longer) != config.layer_kinds) {
      reader.fail(kOlder, "which contradicts layer_types");
    }
    return;
  }
  for (int64_t i = 0; i < config.num_layers; ++i) config.layer_kinds.push_back(otherwise(i));
}

void read_sliding_window(ConfigReader& reader, ModelConfig& config,
                         std::optional<int64_t> fallback) {
  reader.disregard("sliding_window");
  if (config.num_layers_of(LayerKind::kSlidingAttention) == 0) return;
  if (reader.has("use_sliding_window") && !reader.boolean("use_sliding_window", true)) {
    reader.fail("use_sliding_window",
                reader.has("layer_types")
                    ? "but layer_types has \"sliding_attention\""
                    : "but sliding_window is set: remove the one that is not meant");
  }
  config.sliding_window = reader.integer("sliding_window", fallback, kPositions);
}

void read_windows_everywhere(ConfigReader& reader, ModelConfig& config) {
  const bool slides = reader.has("sliding_window");
  read_layer_kinds(
      reader, config, {LayerKind::kFullAttention, LayerKind::kSlidingAttention},
      [&](int64_t) { return slides ? LayerKind::kSlidingAttention : LayerKind::kFullAttention; });
  read_sliding_window(reader, config);
}

void read_periodic_windows(ConfigReader& reader, ModelConfig& config, int64_t default_period,
                           std::optional<int64_t> fallback) {
  constexpr std::string_view kPeriod = "sliding_window_pattern";
  reader.disregard(kPeriod);  // transformers reads this key only if layer_types is absent
  const int64_t period = reader.has("layer_types") ? 1 : reader.interval(kPeriod, default_period);
  const bool slides = fallback || reader.has("sliding_window");
  read_layer_kinds(reader, config, {LayerKind::kFullAttention, LayerKind::kSlidingAttention},
                   [&](int64_t layer) {
                     return slides && (layer + 1) % period != 0 ? LayerKind::kSlidingAttention
                                                                : LayerKind::kFullAttention;
                   });
  read_sliding_window(reader, config, fallback);
}

void read_rotary_dim(ConfigReader& reader, ModelConfig& config) {
  constexpr std::string_view kRotary = "rotary_dim";
  if (!reader.has(kRotary)) return;
  const int64_t head_dim = reader.integer(
      "head_dim", std::max<int64_t>(config.hidden_size / config.num_attention_heads, 1), kHeadDim);
  const int64_t width = reader.integer(kRotary, head_dim, {1, head_dim});
  config.rope.partial_rotary_factor = static_cast<double>(width) / static_cast<double>(head_dim);
  ConfigReader rope = reader.narrowed({reader.object("rope_parameters")}, /*keep_own=*/true);
  const double factor =
      rope.number("partial_rotary_factor", config.rope.partial_rotary_factor, {1e-9, 1.0});
  if (std::llround(static_cast<double>(head_dim) * factor) != width) {
    reader.fail(kRotary, fmt::format("but partial_rotary_factor is {:g} of head_dim = {}", factor,
                                     head_dim));
  }
}

void read_late_windows(ConfigReader& reader, ModelConfig& config) {
  const bool slides = reader.boolean("use_sliding_window", false);
  const int64_t first =
      slides ? reader.integer("max_window_layers", 28, {.low = std::numeric_limits<int64_t>::min()})
             : 0;
  read_layer_kinds(reader, config, {LayerKind::kFullAttention, LayerKind::kSlidingAttention},
                   [&](int64_t layer) {
                     return slides && layer >= first ? LayerKind::kSlidingAttention
                                                     : LayerKind::kFullAttention;
                   });
  read_sliding_window(reader, config);
}

}  // namespace heddle::checkpoint
