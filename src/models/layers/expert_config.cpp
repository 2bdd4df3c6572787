// SPDX-License-Identifier: Apache-2.0
#include "models/layers/expert_config.h"

#include <algorithm>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "checkpoint/config_reader.h"
#include "checkpoint/readable.h"

namespace heddle::models {

using checkpoint::ConfigReader;
using checkpoint::kExperts;
using checkpoint::kWidth;
using checkpoint::ModelConfig;
using checkpoint::MoeConfig;

namespace {

int64_t read_size(ConfigReader& reader, const SizeKey& key, ConfigReader::IntegerRange range) {
  return reader.integer(key.name, key.fallback, range);
}

}  // namespace

MoeConfig read_experts(ConfigReader& reader, const ExpertKeys& keys) {
  MoeConfig moe;
  moe.num_experts = read_size(reader, keys.count, kExperts);
  moe.num_experts_per_token = read_size(reader, keys.per_token, kExperts);
  moe.intermediate_size = read_size(reader, keys.width, kWidth);
  if (moe.num_experts_per_token > moe.num_experts) {
    reader.fail(keys.per_token.name,
                fmt::format("more than {} = {}", keys.count.name, moe.num_experts));
  }
  return moe;
}

void read_shared_experts(ConfigReader& reader, std::string_view count_key, MoeConfig& moe) {
  moe.shared_intermediate_size = reader.integer(count_key, 0, {0, 1024}) * moe.intermediate_size;
}

void read_expert_groups(ConfigReader& reader, std::string_view groups_key, MoeConfig& moe) {
  constexpr std::string_view kKept = "topk_group";
  checkpoint::RouterConfig& router = *moe.router;
  const ConfigReader::IntegerRange range{1, moe.num_experts};
  router.num_groups = reader.integer(groups_key, 1, range);
  router.groups_kept = reader.integer(kKept, 1, range);
  if (moe.num_experts % router.num_groups != 0) {
    reader.fail(groups_key, fmt::format("which does not divide {} experts", moe.num_experts));
    router.num_groups = 1;
  }
  if (router.groups_kept > router.num_groups) {
    reader.fail(kKept, fmt::format("more than {} = {}", groups_key, router.num_groups));
  }
  if (moe.num_experts_per_token > router.groups_kept * (moe.num_experts / router.num_groups)) {
    reader.fail(kKept, fmt::format("whose groups have fewer than {} experts to choose",
                                   moe.num_experts_per_token));
  }
}

void read_stepped_experts(ConfigReader& reader, ModelConfig& config, const ExpertKeys& keys) {
  const int64_t num_experts = read_size(reader, keys.count, {0, kExperts.high});
  config.is_moe_layer.assign(static_cast<size_t>(config.num_layers), false);
  if (num_experts == 0) return;
  const int64_t step = reader.interval("decoder_sparse_step", 1);
  const std::vector<int64_t> dense =
      reader.integers("mlp_only_layers", {.low = std::numeric_limits<int64_t>::min()});
  const auto is_no_layer = [&](int64_t layer) { return layer < 0 || layer >= config.num_layers; };
  if (const auto wrong = std::ranges::find_if(dense, is_no_layer); wrong != dense.end()) {
    reader.note(fmt::format(
        "config.json: mlp_only_layers has {}, which is none of the {} layers and is not used",
        *wrong, config.num_layers));
  }
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const bool listed = std::ranges::find(dense, i) != dense.end();
    config.is_moe_layer[static_cast<size_t>(i)] = !listed && (i + 1) % step == 0;
  }
  if (config.num_moe_layers() > 0) config.moe = read_experts(reader, keys);
}

void read_first_dense_layers(ConfigReader& reader, ModelConfig& config, int64_t default_dense) {
  const int64_t dense =
      reader.integer("first_k_dense_replace", default_dense, {0, checkpoint::kPositions.high});
  if (dense > config.num_layers) {
    reader.note(fmt::format(
        "config.json: first_k_dense_replace is {}, more than the {} layers: none has experts",
        dense, config.num_layers));
  }
  const int64_t step = reader.interval("moe_layer_freq", 1);
  config.is_moe_layer.clear();
  for (int64_t i = 0; i < config.num_layers; ++i) {
    config.is_moe_layer.push_back(i >= dense && i % step == 0);
  }
}

void read_listed_moe_layers(ConfigReader& reader, ModelConfig& config, int64_t default_dense) {
  read_first_dense_layers(reader, config, default_dense);
  if (!reader.has("mlp_layer_types")) return;
  const std::vector<std::string> names = reader.texts("mlp_layer_types");
  if (static_cast<int64_t>(names.size()) != config.num_layers) {
    reader.fail(
        invalid_argument(fmt::format("mlp_layer_types has {} entries, num_hidden_layers is {}",
                                     names.size(), config.num_layers)));
  }
  std::vector<bool> sparse;
  for (const std::string& name : names) {
    if (name != "sparse" && name != "dense") {
      reader.fail(
          unimplemented(fmt::format("mlp_layer_types has {}; served are \"sparse\" and \"dense\"",
                                    checkpoint::readable(name))));
    }
    sparse.push_back(name == "sparse");
  }
  sparse.resize(static_cast<size_t>(config.num_layers));
  if (reader.has("first_k_dense_replace") && sparse != config.is_moe_layer) {
    reader.fail("first_k_dense_replace", "which contradicts mlp_layer_types");
  }
  config.is_moe_layer = std::move(sparse);
}

}  // namespace heddle::models
