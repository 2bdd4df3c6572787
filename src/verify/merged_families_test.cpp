// SPDX-License-Identifier: Apache-2.0
// Merges an adapter of every linear module of every architecture and compares with W + s B A,
// computed by loops in double, and with the products that are added while a model runs.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "checkpoint/adapter_fixture.h"
#include "checkpoint/adapter_linears.h"
#include "checkpoint/adapter_places.h"
#include "checkpoint/checkpoint_files.h"
#include "checkpoint/load_weights.h"
#include "checkpoint/merged_weights.h"
#include "checkpoint/seeded_tensors_fixture.h"
#include "models/small_config_fixture.h"

namespace heddle {
namespace {

using checkpoint::RowForm;
using checkpoint::testing::NamedTensors;
using checkpoint::testing::uneven;

constexpr std::string_view kRanksByLayer = R"({"r": 8, "lora_alpha": 5, "rank_pattern": {
  ".*layers\\.[04]\\..*": 1, ".*layers\\.[26]\\..*": 13, ".*layers\\.[37]\\..*": 64}})";

int64_t rank_of(std::string_view module) {
  const size_t at = module.find("layers.");
  if (at == std::string_view::npos) return 8;
  constexpr int64_t kRanks[] = {1, 8, 13, 64};
  return kRanks[(module[at + 7] - '0') % 4];
}

// The matrices in the first layout of every weight, by name without ".weight".
std::map<std::string, Shape> linear_modules(std::span<const checkpoint::WeightSpec> specs) {
  constexpr std::string_view kEnding = ".weight";
  std::map<std::string, Shape> modules;
  for (const checkpoint::WeightSpec& spec : specs) {
    for (const checkpoint::HubPiece& piece : spec.alternatives.front()) {
      const std::string& name = piece.tensor.name;
      const bool is_linear = piece.form == RowForm::kLastDimension &&
                             piece.tensor.shape.rank() == 2 && name.ends_with(kEnding);
      if (is_linear)
        modules.emplace(name.substr(0, name.size() - kEnding.size()), piece.tensor.shape);
    }
  }
  return modules;
}

// A and B of the module; `index` is its number, which seeds them.
std::pair<Tensor, Tensor> matrices_of(std::string_view module, const Shape& shape, uint32_t index) {
  const int64_t rank = rank_of(module);
  return {uneven({rank, shape[1]}, 2 * index), uneven({shape[0], rank}, 2 * index + 1)};
}

// The number of elements in which the merged weight differs from the loops' result.
int64_t count_wrong(const checkpoint::MergedWeights& merged, const std::string& module,
                    const Shape& shape, const Tensor& original, uint32_t index) {
  const auto stored = merged.find({.name = module + ".weight", .shape = {}});
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  merged.read(*stored, 0, shape.num_elements(), DType::kF32, values.data());
  const auto [a, b] = matrices_of(module, shape, index);
  const int64_t rank = rank_of(module), K = shape[1];
  int64_t num_wrong = 0;
  for (int64_t n = 0; n < shape[0]; ++n) {
    for (int64_t k = 0; k < K; ++k) {
      double sum = 0;
      for (int64_t j = 0; j < rank; ++j) {
        sum += double{b.span<float>()[static_cast<size_t>(n * rank + j)]} *
               a.span<float>()[static_cast<size_t>(j * K + k)];
      }
      const auto at = static_cast<size_t>(n * K + k);
      const double expected = original.span<float>()[at] + 5.0 / static_cast<double>(rank) * sum;
      num_wrong += values[at] == static_cast<float>(expected) ? 0 : 1;
    }
  }
  return num_wrong;
}

// Compares the products that are added beside the weights with the weights' change by a merge.
void expect_same_updates(const std::vector<checkpoint::AdapterLinear>& linears,
                         const checkpoint::LoadedWeights& base,
                         const checkpoint::LoadedWeights& merged) {
  for (const checkpoint::AdapterLinear& linear : linears) {
    SCOPED_TRACE(linear.weight);
    const std::vector<float> before = checkpoint::testing::floats(base[linear.weight]);
    const std::vector<float> after = checkpoint::testing::floats(merged[linear.weight]);
    const int64_t N = linear.b.shape()[1], R = linear.b.shape()[2], K = linear.a.shape()[2];
    const auto* const a = linear.a.view().as<float>();
    const auto* const b = linear.b.view().as<float>();
    double worst = 0;
    for (int64_t n = 0; n < N; ++n) {
      const float* const rows = a + linear.parts.view().as<int32_t>()[n] * R * K;
      for (int64_t k = 0; k < K; ++k) {
        double expected = before[static_cast<size_t>(n * K + k)], size = std::fabs(expected);
        for (int64_t r = 0; r < R; ++r) {
          expected += double{b[n * R + r]} * rows[r * K + k];
          size += std::fabs(double{b[n * R + r]} * rows[r * K + k]);
        }
        const double error = std::fabs(after[static_cast<size_t>(n * K + k)] - expected);
        worst = std::max(worst, error / std::max(size, 1e-30));
      }
    }
    // B is rounded once when it is scaled, the merged weight once.
    EXPECT_LT(worst, 0x1p-22);
  }
}

void expect_merges(const std::string& architecture, const std::filesystem::path& folder) {
  const auto model = models::testing::model_of(models::testing::small_of(architecture));
  const std::vector<checkpoint::WeightSpec> specs = model->weight_specs();
  const NamedTensors tensors = checkpoint::testing::seeded_tensors(specs);
  checkpoint::testing::write_tensors(folder / "model.safetensors", tensors);
  const std::map<std::string, Shape> modules = linear_modules(specs);
  EXPECT_GE(modules.size(), 9u);
  NamedTensors adapter;
  uint32_t index = 0;
  for (const auto& [module, shape] : modules) {
    auto [a, b] = matrices_of(module, shape, index++);
    adapter.emplace(module + ".lora_A.weight", std::move(a));
    adapter.emplace(module + ".lora_B.weight", std::move(b));
  }
  auto files = checkpoint::AdapterFiles::open(
      checkpoint::testing::write_adapter(folder / "adapter", kRanksByLayer, adapter));
  ASSERT_TRUE(files.ok()) << files.status().to_string();
  auto base = checkpoint::CheckpointFiles::open(folder);
  ASSERT_TRUE(base.ok()) << base.status().to_string();
  for (const checkpoint::WeightSpec& spec : specs) {  // experts and embeddings are not added
    if (spec.shape.rank() == 2 && spec.name != checkpoint::kEmbeddingWeight) continue;
    for (const checkpoint::HubPiece& piece : spec.alternatives.front()) {
      const std::string module = piece.tensor.name.substr(0, piece.tensor.name.rfind('.'));
      adapter.erase(module + ".lora_A.weight");
      adapter.erase(module + ".lora_B.weight");
    }
  }
  const auto plain_files = checkpoint::AdapterFiles::open(
      checkpoint::testing::write_adapter(folder / "plain", kRanksByLayer, adapter));
  ASSERT_TRUE(plain_files.ok()) << plain_files.status().to_string();
  const auto linears = checkpoint::adapter_linears(*plain_files, specs, *base);
  ASSERT_TRUE(linears.ok()) << linears.status().to_string();
  std::vector<checkpoint::ScaledAdapter> adapters;
  adapters.push_back({.files = std::move(*files)});
  auto merged = checkpoint::MergedWeights::create(
      std::make_unique<checkpoint::CheckpointFiles>(std::move(*base)), specs, std::move(adapters));
  ASSERT_TRUE(merged.ok()) << merged.status().to_string();
  EXPECT_EQ((*merged)->num_changed(), std::ssize(modules));
  index = 0;
  for (const auto& [module, shape] : modules) {
    EXPECT_EQ(count_wrong(**merged, module, shape, tensors.at(module + ".weight"), index++), 0)
        << module;
  }
  auto plain = checkpoint::CheckpointFiles::open(folder);
  ASSERT_TRUE(plain.ok()) << plain.status().to_string();
  const auto before = checkpoint::load_weights(
      std::make_unique<checkpoint::CheckpointFiles>(std::move(*plain)), specs, {});
  const auto after = checkpoint::load_weights(std::move(*merged), specs, {});
  ASSERT_TRUE(before.ok()) << before.status().to_string();
  ASSERT_TRUE(after.ok()) << after.status().to_string();
  expect_same_updates(*linears, *before, *after);
}

TEST(MergedFamilies, EveryLinearModuleOfEveryArchitectureGetsItsUpdate) {
  for (const models::Family& family : models::families()) {
    for (const std::string_view architecture : family.architectures) {
      SCOPED_TRACE(architecture);
      const checkpoint::testing::TemporaryFolder folder;
      expect_merges(std::string(architecture), folder.path());
    }
  }
}

}  // namespace
}  // namespace heddle
