// SPDX-License-Identifier: Apache-2.0
// Zamba2: Mamba-2 layers, some of which are preceded by a block of attention and an MLP. A few sets
// of shared weights are used for these blocks in turn. Zyphra, "The Zamba2 Suite",
// arXiv:2411.15242.
#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "checkpoint/readable.h"
#include "models/layers/decoder.h"
#include "models/layers/mamba2.h"
#include "models/model.h"
#include "models/zamba2/zamba2_mixer.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::LayerKind;
using checkpoint::ModelConfig;

struct Zamba2Config {
  Mamba2Config mamba;
  int64_t num_blocks = 1;  // number of sets of shared weights
  int64_t adapter_rank = 128;
  bool adapts_attention = false;
  bool rotates = false;

  bool operator==(const Zamba2Config&) const = default;
};

// The indices of the layers with a shared block.
std::vector<int64_t> zamba2_hybrid_layers(const ModelConfig& config) {
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    if (config.layer_kinds[static_cast<size_t>(i)] == LayerKind::kFullAttention) {
      layers.push_back(i);
    }
  }
  return layers;
}

std::vector<LayerKind> read_zamba2_kinds(ConfigReader& reader, const ModelConfig& config,
                                         std::string_view key) {
  const std::vector<std::string> names = reader.texts(key);
  if (std::ssize(names) != config.num_layers) {
    reader.fail(invalid_argument(fmt::format("{} has {} entries, num_hidden_layers is {}", key,
                                             names.size(), config.num_layers)));
  }
  std::vector<LayerKind> kinds;
  for (const std::string& name : names) {
    const bool is_hybrid = name == "hybrid";
    if (!is_hybrid && name != "mamba" && name != "linear_attention") {
      reader.fail(unimplemented(fmt::format("{} has {}; served are \"mamba\" and \"hybrid\"", key,
                                            checkpoint::readable(name))));
    }
    kinds.push_back(is_hybrid ? LayerKind::kFullAttention : LayerKind::kLinearAttention);
  }
  kinds.resize(static_cast<size_t>(config.num_layers), LayerKind::kLinearAttention);
  return kinds;
}

void read_zamba2_layers(ConfigReader& reader, ModelConfig& config) {
  constexpr std::string_view kTypes = "layers_block_type", kNewer = "layer_types";
  config.layer_kinds = read_zamba2_kinds(reader, config, kTypes);
  if (reader.has(kNewer) && read_zamba2_kinds(reader, config, kNewer) != config.layer_kinds) {
    reader.fail(kNewer, fmt::format("which contradicts {}", kTypes));
  }
  constexpr std::string_view kIds = "hybrid_layer_ids";
  if (reader.has(kIds) &&
      reader.integers(kIds, {0, config.num_layers - 1}) != zamba2_hybrid_layers(config)) {
    reader.fail(kIds, fmt::format("which are not the hybrid layers of {}", kTypes));
  }
}

checkpoint::SharedKeys zamba2_keys(ConfigReader& /*reader*/) {
  return {.default_norm_epsilon = 1e-5, .reads_activation = true, .default_tied = true};
}

Mamba2Config read_zamba2_mamba(ConfigReader& reader, const ModelConfig& config) {
  constexpr std::string_view kHeads = "n_mamba_heads", kHeadDim = "mamba_headdim",
                             kGroups = "mamba_ngroups";
  const int64_t inner = reader.integer("mamba_expand", 2, {1, 64}) * config.hidden_size;
  // Files of the first release have the heads' width instead of their number.
  const bool has_width = reader.has(kHeadDim);
  const int64_t width =
      has_width ? reader.integer(kHeadDim, std::nullopt, checkpoint::kHeadDim) : 0;
  const int64_t default_heads = has_width ? std::max<int64_t>(1, inner / width) : 8;
  Mamba2Config mamba{.num_heads = reader.integer(kHeads, default_heads, checkpoint::kHeads),
                     .state_size = reader.integer(reader.spelling("mamba_d_state", "state_size"),
                                                  64, checkpoint::kHeadDim),
                     .num_groups = reader.integer(kGroups, 1, checkpoint::kHeads),
                     .conv_kernel = reader.integer("mamba_d_conv", 4, {2, 8})};
  mamba.head_dim = std::max<int64_t>(1, inner / mamba.num_heads);
  if (mamba.inner() != inner) {
    reader.fail(kHeads,
                fmt::format("which does not divide the {} channels of a Mamba layer", inner));
  } else if (has_width && mamba.head_dim != width) {
    reader.fail(kHeadDim, fmt::format("but {} heads share {} channels of a Mamba layer",
                                      mamba.num_heads, inner));
  }
  read_time_step_limit(reader, mamba);
  check_mamba2(reader, mamba, kGroups);
  return mamba;
}

void read_zamba2_config(ConfigReader& reader, ModelConfig& config) {
  constexpr std::string_view kActivation = "hidden_act";
  if (reader.text(kActivation, std::string("gelu")) != "gelu") {
    reader.refuse(kActivation, "only \"gelu\" is served");
  }
  read_zamba2_layers(reader, config);
  config.own.set(Zamba2Config{
      .mamba = read_zamba2_mamba(reader, config),
      .num_blocks = reader.integer("num_mem_blocks", 1, {1, checkpoint::kLayers.high}),
      .adapter_rank =
          reader.integer(reader.spelling("adapter_rank", "lora_rank"), 128, checkpoint::kWidth),
      .adapts_attention = reader.boolean("use_shared_attention_adapter", false),
      .rotates = reader.boolean("use_mem_rope", false)});
  constexpr std::string_view kOldAdapters = "use_shared_attention_lora";
  if (reader.boolean(kOldAdapters, false)) {
    reader.refuse(kOldAdapters, "these adapters of the attention have names that are not read");
  }
  if (reader.boolean("add_bias_linear", false)) {
    reader.refuse("add_bias_linear", fmt::format("{} is served without it", config.family));
  }
  const int64_t width = 2 * config.hidden_size;
  config.head_dim =
      reader.integer("attention_head_dim", std::max<int64_t>(1, width / config.num_attention_heads),
                     checkpoint::kHeadDim);
  constexpr std::string_view kInput = "attention_hidden_size";
  if (reader.integer(kInput, width, checkpoint::kWidth) != width) {
    reader.refuse(kInput, fmt::format("only twice hidden_size, {}, is served", width));
  }
  config.intermediate_size =
      reader.integer("intermediate_size", 4 * config.hidden_size, checkpoint::kWidth);
}

// The input embedding, which every shared block reads together with the residual stream.
class Zamba2Embedding final : public SharedInputs {
 public:
  void add_weights(std::vector<checkpoint::WeightSpec>& /*specs*/,
                   const std::string& /*hub*/) const override {}

  std::vector<graph::Value> build(graph::GraphBuilder& /*g*/, graph::Value /*ids*/,
                                  graph::Value embedding) const override {
    return {embedding};
  }
};

std::unique_ptr<const Model> create_zamba2(const ModelConfig& config) {
  const auto& own = config.own.get<Zamba2Config>();
  constexpr double kZamba2NormEpsilon = 1e-5;  // fixed: the file's epsilon is not used
  const Mamba2 mamba(own.mamba, config.hidden_size,
                     {.norm = Mamba2Norm::kGroupsGateFirst, .epsilon = kZamba2NormEpsilon});
  const SharedBlockConfig block{.hidden_size = config.hidden_size,
                                .intermediate_size = config.intermediate_size,
                                .num_heads = config.num_attention_heads,
                                .num_kv_heads = config.num_key_value_heads,
                                .head_dim = config.head_dim,
                                .adapter_rank = own.adapter_rank,
                                .adapts_attention = own.adapts_attention,
                                .rotates = own.rotates,
                                .rope_factor = rope_factor({config.rope, config.head_dim}),
                                .epsilon = config.rms_norm_eps};
  const std::vector<int64_t> hybrids = zamba2_hybrid_layers(config);
  std::vector<DecoderLayer> layers;
  int64_t used = 0;
  for (const LayerKind kind : config.layer_kinds) {
    ResidualBlock mixing;
    Branch branch;
    if (kind == LayerKind::kFullAttention) {
      const auto num_hybrids = std::ssize(hybrids);
      const SharedBlockUse use{
          .block = used % own.num_blocks,
          .number = used,
          .num_uses = (num_hybrids - used + own.num_blocks - 1) / own.num_blocks,
          .first_layer = hybrids[static_cast<size_t>(used % own.num_blocks)],
          .is_first = used < own.num_blocks};
      ++used;
      branch = {.mixer = std::make_unique<SharedBlockMixer>(block, use, mamba), .hub_scope = ""};
    } else {
      mixing.norm = "input_layernorm";
      branch.mixer = std::make_unique<Mamba2>(mamba);
    }
    mixing.branches.push_back(std::move(branch));
    DecoderLayer layer;
    layer.blocks.push_back(std::move(mixing));
    layers.push_back(std::move(layer));
  }
  // Some files store a copy of the shared block with each layer that uses it: the first copy is
  // read.
  std::vector<std::string> copies;
  for (int64_t i = own.num_blocks; i < std::ssize(hybrids); ++i) {
    copies.push_back(
        fmt::format("model.layers.{}.shared_transformer.", hybrids[static_cast<size_t>(i)]));
  }
  return make_decoder(config,
                      {.hub_norm = "final_layernorm",
                       .ignored_prefixes = std::move(copies),
                       .shared_inputs = std::make_unique<Zamba2Embedding>()},
                      std::move(layers));
}

}  // namespace

Family zamba2() {
  return {.name = "Zamba2",
          .architectures = {"Zamba2ForCausalLM"},
          .model_types = {{"zamba2", "Zamba2ForCausalLM"}},
          .shared_keys = zamba2_keys,
          .read_config = read_zamba2_config,
          .create = create_zamba2};
}

}  // namespace heddle::models
