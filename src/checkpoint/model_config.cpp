// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/model_config.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/config_ranges.h"
#include "checkpoint/config_reader.h"
#include "checkpoint/latent_config.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/readable.h"

namespace heddle::checkpoint {

namespace {

using nlohmann::json;

// The families whose layers mix gated delta networks with gated full attention.
bool is_hybrid_family(std::string_view model_type) {
  return model_type == "qwen3_next" || model_type.starts_with("qwen3_5");
}

// Their text models, alone or inside a multimodal one, which renormalise routing weights always.
bool is_qwen3_5(std::string_view model_type) { return model_type.starts_with("qwen3_5"); }

// Multimodal configurations keep the language model's keys in text_config.
std::vector<const json*> scopes_of(const json& root) {
  std::vector<const json*> scopes;
  const auto text = root.find("text_config");
  if (text != root.end() && text->is_object()) scopes.push_back(&*text);
  scopes.push_back(&root);
  return scopes;
}

ModelIdentity read_identity(ConfigReader& reader, const json& root) {
  // The root's names are the model's; text_config only names its own part.
  ConfigReader outer = reader.narrowed({&root}, /*keep_own=*/false);
  const std::vector<std::string> architectures = outer.texts("architectures");
  if (architectures.empty()) {
    outer.fail(
        invalid_argument("architectures is missing or empty, so the kind of model is unknown"));
    return {};
  }
  return {.architecture = architectures.front(),
          .model_type = outer.text("model_type", std::string())};
}

void read_sizes(ConfigReader& reader, ModelConfig& config) {
  config.vocab_size = reader.integer("vocab_size", std::nullopt, kVocabulary);
  config.hidden_size = reader.integer("hidden_size", std::nullopt, kWidth);
  config.num_layers = reader.integer("num_hidden_layers", std::nullopt, kLayers);
  config.num_attention_heads = reader.integer("num_attention_heads", std::nullopt, kHeads);
  config.num_key_value_heads =
      reader.integer("num_key_value_heads", config.num_attention_heads, kHeads);
  const bool has_length = is_kimi_linear(config) && reader.has("model_max_length");
  config.max_position_embeddings = reader.integer(
      has_length ? "model_max_length" : "max_position_embeddings", 32768, kPositions);
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    reader.fail("num_key_value_heads", fmt::format("which does not divide num_attention_heads = {}",
                                                   config.num_attention_heads));
  }
  // A smaller epsilon would vanish in fp32, a larger one would be a different function.
  config.rms_norm_eps = reader.number("rms_norm_eps", 1e-6, {1e-30, 1.0});
  if (is_latent_family(config)) return;  // heads are described otherwise
  if (!reader.has("head_dim") && config.hidden_size % config.num_attention_heads != 0) {
    reader.fail("hidden_size", fmt::format("which num_attention_heads = {} does not divide, and "
                                           "there is no head_dim",
                                           config.num_attention_heads));
  }
  const int64_t default_head_dim =
      std::max<int64_t>(1, config.hidden_size / config.num_attention_heads);
  config.head_dim = reader.integer("head_dim", default_head_dim, kHeadDim);
}

void read_switches(ConfigReader& reader, ModelConfig& config) {
  config.attention_bias = reader.boolean("attention_bias", config.model_type == "gpt_oss");
  config.mlp_bias = reader.boolean("mlp_bias", false);
  config.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
  config.attention_output_gate =
      reader.boolean("attn_output_gate", is_hybrid_family(config.model_type));
  const std::string activation = reader.text("hidden_act", std::string("silu"));
  if (activation != "silu" && activation != "swish") {
    reader.fail(unimplemented(
        fmt::format("hidden_act is {}; only \"silu\" is served", readable(activation))));
  }
  const char* const dtype_key = reader.has("dtype") ? "dtype" : "torch_dtype";
  if (reader.has(dtype_key)) {
    const Result<DType> dtype = parse_dtype(reader.text(dtype_key, std::string()));
    if (dtype.ok()) {
      config.dtype = dtype.value();
    } else {
      reader.fail(dtype.status().with_context(dtype_key));
    }
  }
  for (const char* key : {"quantization_config", "compression_config"}) {
    const json* const quantization = reader.object(key);
    if (quantization == nullptr) continue;
    Result<QuantizationConfig> parsed = parse_quantization_config(*quantization);
    if (parsed.ok()) {
      config.quantization = std::move(parsed).value();
    } else {
      reader.fail(parsed.status());
    }
    break;
  }
}

void read_token_ids(ConfigReader& reader, ModelConfig& config) {
  config.eos_token_ids = reader.integers("eos_token_id", kTokenIds);
  if (reader.has("bos_token_id")) {
    config.bos_token_id = reader.integer("bos_token_id", std::nullopt, kTokenIds);
  }
  for (const int64_t id : config.eos_token_ids) {
    if (id >= config.vocab_size) {
      reader.fail("eos_token_id", fmt::format("but vocab_size is {}", config.vocab_size));
    }
  }
}

void read_rope(ConfigReader& reader, ModelConfig& config) {
  const double default_part = is_hybrid_family(config.model_type) ? 0.25 : 1.0;
  config.rope = read_rope_config(reader, default_part, config.max_position_embeddings);
  const int64_t width = rotary_width(config.rope, config.head_dim);
  if (width < 2 || width % 2 != 0) {
    reader.fail(invalid_argument(
        fmt::format("partial_rotary_factor = {:g} of head_dim = {} rotates {} elements; an even "
                    "number of at least 2 is needed",
                    config.rope.partial_rotary_factor, config.head_dim, width)));
  }
}

std::optional<LayerKind> parse_layer_kind(std::string_view name) {
  if (name == "linear_attention") return LayerKind::kLinearAttention;
  if (name == "full_attention") return LayerKind::kFullAttention;
  if (name == "sliding_attention") return LayerKind::kSlidingAttention;
  return std::nullopt;
}

std::vector<LayerKind> read_layer_types(ConfigReader& reader, int64_t num_layers) {
  std::vector<LayerKind> kinds;
  const std::vector<std::string> names = reader.texts("layer_types");
  if (static_cast<int64_t>(names.size()) != num_layers) {
    reader.fail(invalid_argument(fmt::format("layer_types has {} entries, num_hidden_layers is {}",
                                             names.size(), num_layers)));
  }
  for (const std::string& name : names) {
    const std::optional<LayerKind> kind = parse_layer_kind(name);
    if (!kind) {
      reader.fail(unimplemented(
          fmt::format("layer_types has {}; served are \"linear_attention\", \"full_attention\" and "
                      "\"sliding_attention\"",
                      readable(name))));
    }
    kinds.push_back(kind.value_or(LayerKind::kFullAttention));
  }
  kinds.resize(static_cast<size_t>(num_layers), LayerKind::kFullAttention);
  return kinds;
}

// What the families do where the file has no layer_types.
LayerKind default_layer_kind(ConfigReader& reader, const ModelConfig& config, int64_t layer) {
  if (is_hybrid_family(config.model_type) || reader.has("full_attention_interval")) {
    const int64_t interval = reader.integer("full_attention_interval", 4, kLayers);
    return (layer + 1) % interval == 0 ? LayerKind::kFullAttention : LayerKind::kLinearAttention;
  }
  bool slides = false;
  if (config.model_type == "gpt_oss") {
    slides = layer % 2 == 0;
  } else if (config.model_type == "mistral") {
    slides = reader.has("sliding_window");
  } else if (reader.boolean("use_sliding_window", false)) {
    slides = layer >= reader.integer("max_window_layers", 28, {0, kLayers.high});
  }
  return slides ? LayerKind::kSlidingAttention : LayerKind::kFullAttention;
}

// Qwen3.5 writes both layer_types and the interval: a file in which they disagree is broken.
void check_interval(ConfigReader& reader, const ModelConfig& config) {
  if (!is_qwen3_5(config.model_type) || !reader.has("full_attention_interval")) return;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    if (config.layer_kinds[static_cast<size_t>(i)] == default_layer_kind(reader, config, i)) {
      continue;
    }
    reader.fail("full_attention_interval",
                fmt::format("which contradicts layer_types at layer {}", i));
    return;
  }
}

void read_layer_kinds(ConfigReader& reader, ModelConfig& config) {
  if (reader.has("layer_types")) {
    config.layer_kinds = read_layer_types(reader, config.num_layers);
    check_interval(reader, config);
  } else {
    for (int64_t i = 0; i < config.num_layers; ++i) {
      config.layer_kinds.push_back(default_layer_kind(reader, config, i));
    }
  }
  if (config.num_layers_of(LayerKind::kSlidingAttention) == 0) return;
  if (reader.has("use_sliding_window") && !reader.boolean("use_sliding_window", true)) {
    reader.fail("use_sliding_window", "but layer_types has \"sliding_attention\"");
  }
  const auto default_window =
      config.model_type == "gpt_oss" ? std::optional<int64_t>(128) : std::nullopt;
  config.sliding_window = reader.integer("sliding_window", default_window, kPositions);
}

void read_linear_attention(ConfigReader& reader, ModelConfig& config) {
  if (config.num_layers_of(LayerKind::kLinearAttention) == 0) return;
  LinearAttentionConfig linear;
  linear.num_key_heads = reader.integer("linear_num_key_heads", linear.num_key_heads, kHeads);
  linear.num_value_heads = reader.integer("linear_num_value_heads", linear.num_value_heads, kHeads);
  linear.key_head_dim = reader.integer("linear_key_head_dim", linear.key_head_dim, kHeadDim);
  linear.value_head_dim = reader.integer("linear_value_head_dim", linear.value_head_dim, kHeadDim);
  linear.conv_kernel = reader.integer("linear_conv_kernel_dim", linear.conv_kernel, kConvolution);
  if (linear.num_value_heads % linear.num_key_heads != 0) {
    reader.fail("linear_num_value_heads",
                fmt::format("not a multiple of linear_num_key_heads = {}", linear.num_key_heads));
  }
  const std::string gate = reader.text("output_gate_type", std::string("silu"));
  if (gate != "silu" && gate != "swish") {
    reader.fail(unimplemented(
        fmt::format("output_gate_type is {}; only \"silu\" is served", readable(gate))));
  }
  config.linear_attention = linear;
}

ClampedSwigluConfig read_clamped_swiglu(ConfigReader& reader) {
  ClampedSwigluConfig clamped;
  clamped.limit = reader.number("swiglu_limit", clamped.limit, {1e-6, 1e6});
  clamped.alpha = reader.number("swiglu_alpha", clamped.alpha, {1e-6, 1e6});
  return clamped;
}

void read_moe(ConfigReader& reader, ModelConfig& config) {
  config.is_moe_layer.assign(static_cast<size_t>(config.num_layers), false);
  const int64_t default_experts = config.model_type == "qwen3_next" ? 512 : 0;
  // gpt-oss and newer files of other families say num_local_experts.
  const char* const experts_key = reader.has("num_experts") ? "num_experts" : "num_local_experts";
  const int64_t num_experts = reader.integer(experts_key, default_experts, {0, kExperts.high});
  const int64_t step = reader.integer("decoder_sparse_step", 1, kLayers);
  const std::vector<int64_t> dense_layers =
      reader.integers("mlp_only_layers", {0, config.num_layers - 1});
  if (num_experts == 0) return;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const bool dense = std::find(dense_layers.begin(), dense_layers.end(), i) != dense_layers.end();
    config.is_moe_layer[static_cast<size_t>(i)] = !dense && (i + 1) % step == 0;
  }
  if (config.num_moe_layers() == 0) return;

  const bool has_defaults = config.model_type == "qwen3_next";
  const auto default_or_required = [has_defaults](int64_t value) {
    return has_defaults ? std::optional<int64_t>(value) : std::nullopt;
  };
  MoeConfig moe;
  moe.num_experts = num_experts;
  moe.num_experts_per_token =
      reader.integer("num_experts_per_tok", default_or_required(10), kExperts);
  const bool is_gpt_oss = config.model_type == "gpt_oss";
  moe.intermediate_size =
      is_gpt_oss ? reader.integer("intermediate_size", std::nullopt, kWidth)
                 : reader.integer("moe_intermediate_size", default_or_required(512), kWidth);
  moe.shared_intermediate_size =
      reader.integer("shared_expert_intermediate_size", has_defaults ? 512 : 0, {0, kWidth.high});
  // Some families renormalise whatever the file says; gpt-oss takes its softmax over the chosen.
  moe.normalize_top_k = is_gpt_oss || is_qwen3_5(config.model_type) ||
                        reader.boolean("norm_topk_prob", is_hybrid_family(config.model_type));
  if (is_gpt_oss) moe.clamped_swiglu = read_clamped_swiglu(reader);
  if (moe.num_experts_per_token > moe.num_experts) {
    reader.fail("num_experts_per_tok",
                fmt::format("more than {} = {}", experts_key, moe.num_experts));
  }
  config.moe = moe;
}

void read_dense_mlp(ConfigReader& reader, ModelConfig& config) {
  if (config.num_moe_layers() == config.num_layers) return;
  config.intermediate_size = reader.integer("intermediate_size", std::nullopt, kWidth);
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

Result<ModelConfig> parse_model_config(std::string_view json_text) {
  HEDDLE_ASSIGN_OR_RETURN(const json root, parse_json_object(json_text));
  Status first_error;
  ConfigReader reader(scopes_of(root), first_error);
  ModelConfig config;
  ModelIdentity identity = read_identity(reader, root);
  config.architecture = std::move(identity.architecture);
  config.model_type = std::move(identity.model_type);
  read_sizes(reader, config);
  read_switches(reader, config);
  read_token_ids(reader, config);
  if (is_latent_family(config)) {
    read_latent_family(reader, config);
  } else {
    read_layer_kinds(reader, config);
    read_linear_attention(reader, config);
    read_moe(reader, config);
    read_dense_mlp(reader, config);
  }
  read_rope(reader, config);
  HEDDLE_RETURN_IF_ERROR(first_error);
  return config;
}

Result<ModelIdentity> parse_model_identity(std::string_view json_text) {
  HEDDLE_ASSIGN_OR_RETURN(const json root, parse_json_object(json_text));
  Status first_error;
  ConfigReader reader({&root}, first_error);
  ModelIdentity identity = read_identity(reader, root);
  HEDDLE_RETURN_IF_ERROR(first_error);
  return identity;
}

Status check_served(const ModelIdentity& identity,
                    std::span<const std::string_view> served_architectures) {
  if (std::find(served_architectures.begin(), served_architectures.end(), identity.architecture) !=
      served_architectures.end()) {
    return ok_status();
  }
  return unimplemented(fmt::format("architecture {} is not served by this build; served are {}",
                                   readable(identity.architecture),
                                   fmt::join(served_architectures, ", ")));
}

namespace {

// Older tools write what quantization_config holds to a file of its own.
Result<std::optional<QuantizationConfig>> read_separate_quantization(
    const std::filesystem::path& folder) {
  for (const char* name : {"hf_quant_config.json", "quantize_config.json", "quant_config.json"}) {
    const std::filesystem::path path = folder / name;
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;
    HEDDLE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxConfigBytes));
    const Result<json> object = parse_json_object(text);
    if (!object.ok()) return object.status().with_context(path.string());
    const auto nested = object->find("quantization");
    const bool has_nested = nested != object->end() && nested->is_object();
    Result<QuantizationConfig> parsed = parse_quantization_config(has_nested ? *nested : *object);
    if (!parsed.ok()) return parsed.status().with_context(path.string());
    return std::optional<QuantizationConfig>(std::move(parsed).value());
  }
  return std::optional<QuantizationConfig>();
}

}  // namespace

Result<ModelConfig> load_model_config(const std::filesystem::path& folder,
                                      std::span<const std::string_view> served_architectures) {
  const std::filesystem::path path = folder / "config.json";
  HEDDLE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxConfigBytes));
  if (!served_architectures.empty()) {
    Result<ModelIdentity> identity = parse_model_identity(text);
    if (!identity.ok()) return identity.status().with_context(path.string());
    if (Status status = check_served(*identity, served_architectures); !status.ok()) {
      return status.with_context(path.string());
    }
  }
  Result<ModelConfig> config = parse_model_config(text);
  if (!config.ok()) return config.status().with_context(path.string());
  if (!config->quantization) {
    HEDDLE_ASSIGN_OR_RETURN(config->quantization, read_separate_quantization(folder));
  }
  return config;
}

}  // namespace heddle::checkpoint
