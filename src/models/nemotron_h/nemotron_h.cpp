// SPDX-License-Identifier: Apache-2.0
// Nemotron-H and Nemotron-3: each layer is one block, in the order of a pattern: Mamba-2, attention
// without positions, an ungated MLP, or ungated experts. NVIDIA, "Nemotron-H", arXiv:2504.03624.
//     x' = x + F(norm(x))
#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "checkpoint/readable.h"
#include "models/gguf_mixers.h"
#include "models/layers/decoder.h"
#include "models/layers/expert_config.h"
#include "models/layers/mamba2.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::LayerKind;
using checkpoint::ModelConfig;
using checkpoint::MoeConfig;

constexpr char kMambaLetter = 'M', kExpertsLetter = 'E', kAttentionLetter = '*', kMlpLetter = '-';

struct NemotronHConfig {
  std::string pattern;  // the kinds of the layers, one letter per layer
  Mamba2Config mamba;

  bool operator==(const NemotronHConfig&) const = default;
};

constexpr std::string_view kNemotronPattern = "hybrid_override_pattern";

// Maps a layer's name in a list to its letter; '\0': not supported.
char nemotron_letter(std::string_view name) {
  if (name == "linear_attention" || name == "mamba" || name == "mamba2") return kMambaLetter;
  if (name == "full_attention" || name == "attention") return kAttentionLetter;
  if (name == "moe") return kExpertsLetter;
  return name == "mlp" ? kMlpLetter : '\0';
}

// The pattern, from all keys that describe it; these must agree. Errors are stored in the reader.
std::string read_nemotron_pattern(ConfigReader& reader) {
  std::string pattern = reader.text(kNemotronPattern, std::string());
  for (const char letter : pattern) {
    if (std::string_view("ME*-").find(letter) != std::string_view::npos) continue;
    reader.refuse(kNemotronPattern, "served are M, E, * and -");
    return {};
  }
  for (const char* key : {"layers_block_type", "layer_types"}) {
    std::string listed;
    for (const std::string& name : reader.texts(key)) {
      const char letter = nemotron_letter(name);
      if (letter == '\0') {
        reader.fail(unimplemented(
            fmt::format("{} has {}; served are \"linear_attention\", \"full_attention\", \"moe\" "
                        "and \"mlp\"",
                        key, checkpoint::readable(name))));
        return {};
      }
      listed.push_back(letter);
    }
    if (listed.empty()) continue;
    if (!pattern.empty() && pattern != listed) {
      reader.fail(invalid_argument(
          fmt::format("{} is {}, written as a pattern, and another key has the layers {}", key,
                      checkpoint::readable(listed), checkpoint::readable(pattern))));
    }
    pattern = listed;
  }
  if (pattern.empty()) {
    reader.fail(invalid_argument(fmt::format(
        "{} is missing; download the file again, or write the model's layers", kNemotronPattern)));
  }
  return pattern;
}

checkpoint::SharedKeys nemotron_h_keys(ConfigReader& reader) {
  const auto num_layers = static_cast<int64_t>(read_nemotron_pattern(reader).size());
  const int64_t layers = std::clamp(num_layers, checkpoint::kLayers.low, checkpoint::kLayers.high);
  if (layers != std::max<int64_t>(num_layers, 1)) {
    reader.fail(
        invalid_argument(fmt::format("{} has {} layers, at most {} are served", kNemotronPattern,
                                     num_layers, checkpoint::kLayers.high)));
  }
  constexpr std::string_view kCount = "num_hidden_layers";
  if (reader.integer(kCount, layers, checkpoint::kLayers) != layers) {
    reader.fail(kCount, fmt::format("but {} has {} layers", kNemotronPattern, layers));
  }
  const bool old_epsilon = !reader.has("layer_norm_epsilon") && reader.has("norm_eps");
  return {.num_layers = layers,
          .norm_epsilon = old_epsilon ? "norm_eps" : "layer_norm_epsilon",
          .default_norm_epsilon = 1e-5,
          .reads_activation = true,
          .reads_rope = true,
          .default_num_heads = 32,
          .default_num_kv_heads = 8};
}

Mamba2Config read_nemotron_mamba(ConfigReader& reader) {
  const auto key = [&](const char* name, const char* other) {
    return reader.spelling(name, other);
  };
  const std::string_view groups = key("n_groups", "mamba_n_groups");
  Mamba2Config mamba{.num_heads = reader.integer("mamba_num_heads", 128, checkpoint::kHeads),
                     .head_dim = reader.integer("mamba_head_dim", 64, checkpoint::kHeadDim),
                     .state_size = reader.integer(key("ssm_state_size", "mamba_d_state"), 128,
                                                  checkpoint::kHeadDim),
                     .num_groups = reader.integer(groups, 8, checkpoint::kHeads),
                     .conv_kernel = reader.integer(key("conv_kernel", "mamba_d_conv"), 4, {2, 8}),
                     .conv_bias = reader.boolean(key("use_conv_bias", "mamba_conv_bias"), true),
                     .in_bias = reader.boolean("use_bias", false)};
  mamba.out_bias = mamba.in_bias;
  read_time_step_limit(reader, mamba);
  check_mamba2(reader, mamba, groups);
  constexpr std::string_view kActivation = "mamba_hidden_act";
  if (reader.text(kActivation, std::string("silu")) != "silu") {
    reader.refuse(kActivation, "only \"silu\" is served");
  }
  return mamba;
}

MoeConfig read_nemotron_experts(ConfigReader& reader) {
  MoeConfig moe =
      read_experts(reader, {.count = {reader.spelling("n_routed_experts", "num_local_experts"), 8},
                            .per_token = {"num_experts_per_tok", 2},
                            .width = {"moe_intermediate_size", 7688}});
  moe.has_gates = false;
  // The file's width is that of the whole shared expert: n_shared_experts does not multiply it.
  if (reader.integer("n_shared_experts", 1, {0, 1024}) > 0) {
    moe.shared_intermediate_size =
        reader.integer("moe_shared_expert_intermediate_size", 7688, checkpoint::kWidth);
  }
  moe.latent_size = reader.integer("moe_latent_size", 0, {0, checkpoint::kWidth.high});
  moe.normalize_top_k = reader.boolean("norm_topk_prob", true);
  moe.router = {.sigmoid = true,
                .corrected = true,
                .scale = reader.number("routed_scaling_factor", 1.0, {-1e6, 1e6})};
  read_expert_groups(reader, "n_group", moe);
  return moe;
}

void read_nemotron_h_config(ConfigReader& reader, ModelConfig& config) {
  NemotronHConfig own{.pattern = read_nemotron_pattern(reader),
                      .mamba = read_nemotron_mamba(reader)};
  // the pattern is shorter after an error
  own.pattern.resize(static_cast<size_t>(config.num_layers), kMlpLetter);
  for (const char letter : own.pattern) {
    config.layer_kinds.push_back(letter == kMambaLetter ? LayerKind::kLinearAttention
                                                        : LayerKind::kFullAttention);
    config.is_moe_layer.push_back(letter == kExpertsLetter);
  }
  if (config.num_moe_layers() > 0) config.moe = read_nemotron_experts(reader);
  // the first generation's files name this key attention_head_dim
  config.head_dim =
      reader.integer(reader.spelling("head_dim", "attention_head_dim"), 128, checkpoint::kHeadDim);
  config.intermediate_size = reader.integer("intermediate_size", 21504, checkpoint::kWidth);
  constexpr std::string_view kActivation = "mlp_hidden_act";
  if (reader.text(kActivation, std::string("relu2")) != "relu2") {
    reader.refuse(kActivation, "only \"relu2\" is served");
  }
  if (!config.moe) {
    for (const char* key : {"n_routed_experts", "num_local_experts"}) reader.disregard(key);
  }
  // transformers' class has none of these features, whatever the file says.
  for (const char* key : {"attention_bias", "sliding_window"}) reader.disregard(key);
  config.own.set(own);
}

std::unique_ptr<const Model> create_nemotron_h(const ModelConfig& config) {
  const auto& own = config.own.get<NemotronHConfig>();
  AttentionOptions attention = attention_options(config);
  attention.rope_table.reset();
  const Mamba2Options mamba{.norm = Mamba2Norm::kGroupsGateFirst, .epsilon = config.rms_norm_eps};
  std::vector<DecoderLayer> layers;
  for (const char letter : own.pattern) {
    Branch branch{.hub_scope = "mixer."};
    if (letter == kMambaLetter) {
      branch.mixer = std::make_unique<Mamba2>(own.mamba, config.hidden_size, mamba);
    } else if (letter == kAttentionLetter) {
      branch.mixer = std::make_unique<Attention>(attention);
    } else if (letter == kExpertsLetter) {
      branch.feed_forward = std::make_unique<SparseMoe>(config.hidden_size, *config.moe);
    } else {
      branch.feed_forward =
          std::make_unique<SquaredReluMlp>(config.hidden_size, config.intermediate_size);
    }
    DecoderLayer layer;
    layer.blocks.push_back({.norm = "norm"});
    layer.blocks.back().branches.push_back(std::move(branch));
    layers.push_back(std::move(layer));
  }
  return make_decoder(config,
                      {.hub_prefix = "backbone.",
                       .hub_norm = "norm_f",
                       .hub_embeddings = {"embeddings", "embedding"},
                       .ignored_prefixes = {"mtp."}},
                      std::move(layers));
}

// Derives each layer's letter from the tensors that the layer has.
std::string gguf_nemotron_pattern(GgufTranslation& gguf) {
  std::string pattern(static_cast<size_t>(gguf.num_layers()), kMlpLetter);
  for (const auto& [tensor, letter] :
       {std::pair("ssm_in.weight", kMambaLetter), std::pair("attn_q.weight", kAttentionLetter),
        std::pair("ffn_gate_inp.weight", kExpertsLetter)}) {
    const std::vector<bool> layers = gguf.layers_with(tensor);
    for (size_t i = 0; i < layers.size(); ++i) {
      if (layers[i]) pattern[i] = letter;
    }
  }
  return pattern;
}

void translate_nemotron_h(GgufTranslation& gguf) {
  gguf.set_hub_prefix("backbone.");
  translate_transformer(gguf, {.architecture = "NemotronHForCausalLM",
                               .own_rope = true,
                               .names = {.embeddings = "backbone.embeddings",
                                         .norm = "backbone.norm_f",
                                         .input_norm = "norm",
                                         .attention = "mixer.",
                                         .gate = "mixer.gate_proj",
                                         .up = "mixer.up_proj",
                                         .down = "mixer.down_proj"}});
  gguf.integer("rope.dimension_count");  // unused: no layer rotates
  gguf.number("rope.freq_base");
  const auto epsilon = gguf.number("attention.layer_norm_epsilon");
  gguf.set("layer_norm_epsilon",
           gguf.number("attention.layer_norm_rms_epsilon").value_or(epsilon.value_or(1e-5)));
  gguf.set("hybrid_override_pattern", gguf_nemotron_pattern(gguf));
  const int64_t num_heads = std::max<int64_t>(gguf.required("ssm.time_step_rank"), 1);
  gguf.set("mamba_num_heads", num_heads);
  gguf.set("mamba_head_dim", gguf.required("ssm.inner_size") / num_heads);
  gguf.set("ssm_state_size", gguf.required("ssm.state_size"));
  gguf.set("n_groups", gguf.required("ssm.group_count"));
  gguf.set("conv_kernel", gguf.required("ssm.conv_kernel"));
  gguf.set("use_conv_bias", gguf.has_in_layers("ssm_conv1d.bias"));
  add_gguf_mamba2(gguf, "mixer.");
  if (gguf.integer("expert_count").value_or(0) == 0) return;
  translate_routed_experts(gguf, "mixer.");
  require_sigmoid_scores(gguf);
  gguf.copy_integer("expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size");
  gguf.copy_integer("moe_latent_size", "moe_latent_size");
  gguf.in_layers({
      {.stored = "ffn_latent_down", .hub = "mixer.fc1_latent_proj"},
      {.stored = "ffn_latent_up", .hub = "mixer.fc2_latent_proj"},
  });
}

}  // namespace

Family nemotron_h() {
  return {.name = "Nemotron-H",
          .architectures = {"NemotronHForCausalLM"},
          .model_types = {{"nemotron_h", "NemotronHForCausalLM"}},
          .shared_keys = nemotron_h_keys,
          .read_config = read_nemotron_h_config,
          .create = create_nemotron_h,
          .gguf = {{"nemotron_h", translate_nemotron_h}, {"nemotron_h_moe", translate_nemotron_h}}};
}

}  // namespace heddle::models
