// SPDX-License-Identifier: Apache-2.0
// Vision towers, from pixels or patches to features: against what Hugging Face transformers
// computes, and against the same towers as plain loops in double precision.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <numbers>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/convert.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/seeded_tensors_fixture.h"
#include "core/json_reader.h"
#include "media/image_decoder.h"
#include "media/image_processor.h"
#include "models/registry.h"
#include "runner/program/vision_encoder.h"
#include "support/plain_loops.h"
#include "support/tensors.h"
#include "support/test_data.h"

namespace heddle {
namespace {

using models::PatchGrid;
using models::VisionConfig;
using nlohmann::json;
using runner::VisionEncoder;
using testing::Row;
using testing::Rows;

std::unique_ptr<VisionEncoder> encoder_of(const std::filesystem::path& folder, bool exact,
                                          int num_threads = 2,
                                          std::optional<DType> dtype = DType::kF32) {
  auto encoder = VisionEncoder::create({.model_dir = folder, .dtype = dtype, .num_threads = 2},
                                       runner::ComputeDevice::open_cpu(num_threads, exact).value());
  EXPECT_TRUE(encoder.ok()) << encoder.status().to_string();
  return encoder.ok() ? std::move(*encoder) : nullptr;
}

// The largest distance of a row of features from the recorded row, relative to the recorded row's
// norm. Recorded rows may have only the first columns of the features.
double row_error(const TensorView& got, const TensorView& want) {
  EXPECT_EQ(got.shape[0], want.shape[0]);
  EXPECT_GE(got.shape[1], want.shape[1]);
  double largest = 0;
  for (int64_t t = 0; t < std::min(got.shape[0], want.shape[0]); ++t) {
    double distance = 0, norm = 0;
    for (int64_t i = 0; i < want.shape[1]; ++i) {
      const double right = static_cast<double>(want.row<float>(t)[i]);
      const double difference = static_cast<double>(got.row<float>(t)[i]) - right;
      distance += difference * difference;
      norm += right * right;
    }
    largest = std::max(largest, std::sqrt(distance / norm));
    if (std::isnan(distance)) largest = INFINITY;
  }
  return largest;
}

// The features of all pictures, concatenated.
Tensor features_of(VisionEncoder& encoder, const media::ImageProcessor& processor,
                   const std::vector<media::Image>& images) {
  std::vector<Tensor> parts;
  int64_t num_rows = 0;
  for (const media::Image& image : images) {
    const auto pieces = processor.process(image);
    EXPECT_TRUE(pieces.ok());
    if (!pieces.ok()) return Tensor({0, encoder.config().feature_width()}, DType::kF32);
    const media::Patches& patches = pieces->front();
    auto features = encoder.encode({patches.grid_height, patches.grid_width}, patches.values);
    EXPECT_TRUE(features.ok()) << features.status().message();
    if (!features.ok()) return Tensor({0, encoder.config().feature_width()}, DType::kF32);
    num_rows += features->shape()[0];
    parts.push_back(std::move(*features));
  }
  Tensor all({num_rows, encoder.config().feature_width()}, DType::kF32);
  auto* to = all.span<float>().data();
  for (const Tensor& part : parts) to = std::ranges::copy(part.span<float>(), to).out;
  return all;
}

TensorView aligned_copy(const checkpoint::SafetensorsFile& file, const std::string& name,
                        Tensor& copy) {
  const TensorView view = file.view(name).value();
  copy = Tensor(view.shape, view.dtype);
  std::memcpy(copy.view().data, view.data, static_cast<size_t>(view.num_bytes()));
  return copy.view();
}

class VisionTowerGolden : public ::testing::TestWithParam<bool> {};

TEST_P(VisionTowerGolden, FeaturesOfAPngEqualHuggingFace) {
  for (const char* model : {"qwen2_5_vl", "qwen3_vl"}) {
    HEDDLE_SHARED_PATH_OR_SKIP(folder, std::filesystem::path("golden") / model);
    const auto encoder = encoder_of(folder, GetParam());
    ASSERT_NE(encoder, nullptr);
    const std::string png = read_whole_file(folder / "image.png").value();
    const auto image =
        media::decode_image({reinterpret_cast<const uint8_t*>(png.data()), png.size()}, {});
    ASSERT_TRUE(image.ok()) << image.error().message;
    const media::ImageProcessor processor(media::load_image_processor_config(folder).value());
    auto golden = checkpoint::SafetensorsFile::open(folder / "cases.safetensors");
    ASSERT_TRUE(golden.ok());
    Tensor want;
    EXPECT_LT(row_error(features_of(*encoder, processor, {*image}).view(),
                        aligned_copy(*golden, "vision_output", want)),
              1e-5)
        << model;
  }
}

TEST_P(VisionTowerGolden, HeddleSeeFeaturesEqualHuggingFace) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "models/heddle-see");
  const auto encoder = encoder_of(folder, GetParam());
  ASSERT_NE(encoder, nullptr);
  const media::ImageProcessor processor(media::load_image_processor_config(folder).value());
  auto golden = checkpoint::SafetensorsFile::open(folder / "golden.safetensors");
  ASSERT_TRUE(golden.ok());
  for (const auto& [prompt, num_pictures] : {std::pair(0, 1), {1, 2}, {3, 1}}) {
    std::vector<media::Image> images;
    for (int i = 0; i < num_pictures; ++i) {
      const TensorView rgb = golden->view(fmt::format("{}.rgb{}", prompt, i)).value();
      images.emplace_back(media::ImageSize{.height = rgb.shape[0], .width = rgb.shape[1]});
      std::memcpy(images.back().rgb.data(), rgb.data, images.back().rgb.size());
    }
    Tensor want;
    EXPECT_LT(row_error(features_of(*encoder, processor, images).view(),
                        aligned_copy(*golden, fmt::format("{}.vision_features", prompt), want)),
              1e-5)
        << "prompt " << prompt;
  }
}

INSTANTIATE_TEST_SUITE_P(FastAndExact, VisionTowerGolden, ::testing::Bool(),
                         [](const auto& mode) { return mode.param ? "Exact" : "Fast"; });

// A config.json with the tower `vision` and a language model of the same width as its features.
json tower_config_of(const char* architecture, const json& vision) {
  return {{"architectures", {architecture}},
          {"image_token_id", 60},
          {"text_config",
           {{"vocab_size", 64},
            {"hidden_size", 42},
            {"intermediate_size", 32},
            {"num_hidden_layers", 4},
            {"num_attention_heads", 2},
            {"head_dim", 16}}},
          {"vision_config", vision}};
}

json table_config() {
  return tower_config_of("Qwen3VLForConditionalGeneration", {{"depth", 3},
                                                             {"hidden_size", 48},
                                                             {"intermediate_size", 56},
                                                             {"num_heads", 2},
                                                             {"patch_size", 3},
                                                             {"num_position_embeddings", 25},
                                                             {"deepstack_visual_indexes", {0, 2}},
                                                             {"out_hidden_size", 42}});
}

json window_config() {
  return tower_config_of("Qwen2_5_VLForConditionalGeneration", {{"depth", 3},
                                                                {"hidden_size", 48},
                                                                {"intermediate_size", 36},
                                                                {"num_heads", 3},
                                                                {"patch_size", 2},
                                                                {"temporal_patch_size", 1},
                                                                {"window_size", 8},
                                                                {"fullatt_block_indexes", {1}},
                                                                {"out_hidden_size", 42}});
}

double gelu_tanh(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

double gelu_erf(double x) { return x / 2 * (1 + std::erf(x / std::numbers::sqrt2)); }

// Towers as plain loops in double, independent of the code under test except for the configuration.
// Rows are patches, cell by cell in the picture's order.
class PlainTower {
 public:
  PlainTower(const VisionConfig& config, std::map<std::string, Tensor> weights)
      : config_(config), loops_(flattened(std::move(weights)), 1e-6) {}

  [[nodiscard]] Rows features(const PatchGrid& grid, const std::vector<float>& patches) const {
    const bool has_table = config_.form == models::TowerForm::kTable;
    std::vector<std::pair<int64_t, int64_t>> places;  // row and column of each patch
    for (int64_t cell = 0; cell < grid.patches() / config_.cell(); ++cell) {
      const int64_t columns = grid.width / config_.merge;
      for (int64_t i = 0; i < config_.cell(); ++i) {
        places.emplace_back(cell / columns * config_.merge + i / config_.merge,
                            cell % columns * config_.merge + i % config_.merge);
      }
    }
    Rows x;
    const auto width = static_cast<size_t>(config_.patch_values());
    for (size_t i = 0; i < places.size(); ++i) {
      const auto first = patches.begin() + static_cast<std::ptrdiff_t>(i * width);
      x.push_back(loops_.product(kTower + "patch_embed.proj",
                                 Row(first, first + static_cast<std::ptrdiff_t>(width))));
      if (!has_table) continue;
      const Row position = table_row(grid, places[i]);
      for (size_t h = 0; h < position.size(); ++h) x.back()[h] += position[h];
    }
    Rows deep;
    for (int64_t i = 0; i < config_.depth; ++i) {
      const std::string name = fmt::format("{}blocks.{}.", kTower, i);
      const bool whole = has_table || std::ranges::count(config_.whole_blocks, i) > 0;
      testing::add(x, attention(name + "attn.", normed(x, name + "norm1"), places, whole));
      Rows y;
      for (const Row& row : normed(x, name + "norm2")) {
        y.push_back(has_table
                        ? two(name + "mlp.linear_fc1", name + "mlp.linear_fc2", row, gelu_tanh)
                        : loops_.swiglu(name + "mlp.", row));
      }
      testing::add(x, y);
      if (std::ranges::count(config_.deep_blocks, i) == 0) continue;
      const std::string merger =
          fmt::format("{}deepstack_merger_list.{}.", kTower,
                      std::ranges::find(config_.deep_blocks, i) - config_.deep_blocks.begin());
      append(deep, merged(merger, normed(joined(x), merger + "norm")));
    }
    const std::string merger = kTower + "merger.";
    if (!has_table) {
      Rows features;
      for (const Row& cell : joined(normed(x, merger + "ln_q"))) {
        features.push_back(two(merger + "mlp.0", merger + "mlp.2", cell, gelu_erf));
      }
      return features;
    }
    Rows features = merged(merger, joined(normed(x, merger + "norm")));
    append(features, deep);
    return features;
  }

 private:
  inline static const std::string kTower = "model.visual.";

  // Reshapes kernels of convolutions to matrices.
  static std::map<std::string, Tensor> flattened(std::map<std::string, Tensor> weights) {
    for (auto& [name, tensor] : weights) {
      if (tensor.shape().rank() < 3) continue;
      Tensor flat({tensor.shape()[0], tensor.num_elements() / tensor.shape()[0]}, DType::kF32);
      std::ranges::copy(tensor.span<float>(), flat.span<float>().begin());
      tensor = std::move(flat);
    }
    return weights;
  }

  // Appends the columns of `more` to the rows of `to`. An empty `to` becomes `more`.
  static void append(Rows& to, const Rows& more) {
    if (to.empty()) to.resize(more.size());
    for (size_t t = 0; t < more.size(); ++t) {
      to[t].insert(to[t].end(), more[t].begin(), more[t].end());
    }
  }

  [[nodiscard]] Rows normed(const Rows& x, const std::string& name) const {
    return loops_.norms(x, name, config_.form == models::TowerForm::kTable);
  }

  template <typename Activation>
  [[nodiscard]] Row two(const std::string& first, const std::string& second, const Row& x,
                        const Activation& f) const {
    Row inner = loops_.product(first, x);
    for (double& value : inner) value = f(value);
    return loops_.product(second, inner);
  }

  [[nodiscard]] Rows merged(const std::string& name, const Rows& cells) const {
    Rows features;
    for (const Row& cell : cells) {
      features.push_back(two(name + "linear_fc1", name + "linear_fc2", cell, gelu_erf));
    }
    return features;
  }

  [[nodiscard]] Rows joined(const Rows& x) const {
    Rows cells(x.size() / static_cast<size_t>(config_.cell()));
    for (size_t i = 0; i < x.size(); ++i) {
      Row& cell = cells[i / static_cast<size_t>(config_.cell())];
      cell.insert(cell.end(), x[i].begin(), x[i].end());
    }
    return cells;
  }

  // The table interpolated at a patch. The picture's corner patches get the table's corners.
  [[nodiscard]] Row table_row(const PatchGrid& grid, std::pair<int64_t, int64_t> place) const {
    const auto at = [&](int64_t i, int64_t count) {
      return static_cast<double>(i) * static_cast<double>(config_.table_side - 1) /
             static_cast<double>(std::max<int64_t>(count - 1, 1));
    };
    const double y = at(place.first, grid.height), x = at(place.second, grid.width);
    Row sum(static_cast<size_t>(config_.hidden_size));
    for (int64_t r = 0; r < config_.table_side; ++r) {
      for (int64_t c = 0; c < config_.table_side; ++c) {
        const double share = std::max(0.0, 1 - std::abs(y - static_cast<double>(r))) *
                             std::max(0.0, 1 - std::abs(x - static_cast<double>(c)));
        if (share == 0) continue;
        const Row row = loops_.row_of(kTower + "pos_embed.weight", r * config_.table_side + c);
        for (size_t h = 0; h < sum.size(); ++h) sum[h] += share * row[h];
      }
    }
    return sum;
  }

  [[nodiscard]] Rows attention(const std::string& name, const Rows& x,
                               const std::vector<std::pair<int64_t, int64_t>>& places,
                               bool whole) const {
    const auto H = static_cast<size_t>(config_.hidden_size);
    const auto D = static_cast<size_t>(config_.head_dim());
    Rows q, k, v, y;
    for (size_t s = 0; s < x.size(); ++s) {
      const Row qkv = loops_.product(name + "qkv", x[s]);
      const auto part = [&](size_t i) {
        const auto first = qkv.begin() + static_cast<std::ptrdiff_t>(i * H);
        return Row(first, first + static_cast<std::ptrdiff_t>(H));
      };
      q.push_back(rotated(part(0), places[s]));
      k.push_back(rotated(part(1), places[s]));
      v.push_back(part(2));
    }
    const int64_t side = config_.window * config_.merge;  // patches of a window
    for (size_t s = 0; s < x.size(); ++s) {
      Row all(H);
      for (size_t head = 0; head < H; head += D) {
        std::vector<size_t> seen;
        Row scores;
        for (size_t r = 0; r < x.size(); ++r) {
          if (!whole && (places[r].first / side != places[s].first / side ||
                         places[r].second / side != places[s].second / side)) {
            continue;
          }
          double score = 0;
          for (size_t c = head; c < head + D; ++c) score += q[s][c] * k[r][c];
          seen.push_back(r);
          scores.push_back(score / std::sqrt(static_cast<double>(D)));
        }
        const Row p = testing::softmax(scores);
        for (size_t i = 0; i < seen.size(); ++i) {
          for (size_t c = head; c < head + D; ++c) all[c] += p[i] * v[seen[i]][c];
        }
      }
      y.push_back(loops_.product(name + "proj", all));
    }
    return y;
  }

  // Rotates pairs of a head's channels: the first quarter with the third by the patch's row, the
  // second quarter with the fourth by its column.
  [[nodiscard]] Row rotated(Row heads, std::pair<int64_t, int64_t> place) const {
    const auto D = static_cast<size_t>(config_.head_dim());
    for (size_t head = 0; head < heads.size(); head += D) {
      for (size_t i = 0; i < D / 2; ++i) {
        const auto position = static_cast<double>(i < D / 4 ? place.first : place.second);
        const double angle =
            position * std::pow(config_.rope_theta, -2.0 * static_cast<double>(i % (D / 4)) /
                                                        static_cast<double>(D / 2));
        double& a = heads[head + i];
        double& b = heads[head + D / 2 + i];
        std::tie(a, b) = std::pair(a * std::cos(angle) - b * std::sin(angle),
                                   b * std::cos(angle) + a * std::sin(angle));
      }
    }
    return heads;
  }

  VisionConfig config_;
  testing::PlainLoops loops_;
};

class PlainTowerTest : public ::testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  void SetUp() override { load(std::get<0>(GetParam()) ? table_config() : window_config()); }

  void load(const json& config, DType stored = DType::kF32) {
    folder_.write("config.json", config.dump());
    auto tower = models::load_vision_tower(folder_.path());
    ASSERT_TRUE(tower.ok()) << tower.status().to_string();
    config_ = (*tower)->config();
    weights_ = checkpoint::testing::seeded_tensors((*tower)->weight_specs());
    std::vector<checkpoint::NamedTensor> named;
    std::vector<Tensor> rounded;
    for (const auto& [name, tensor] : weights_) {
      rounded.emplace_back(tensor.shape(), stored);
      checkpoint::convert_elements(tensor.view().data, DType::kF32, rounded.back().view().data,
                                   stored, tensor.num_elements());
      named.push_back({name, rounded.back().view()});
    }
    ASSERT_TRUE(write_safetensors(folder_.path() / "model.safetensors", named).ok());
    encoder_ = encoder_of(folder_.path(), std::get<1>(GetParam()));
    ASSERT_NE(encoder_, nullptr);
  }

  // Random patches for a grid; each seed gives other ones.
  [[nodiscard]] std::vector<float> patches_of(const PatchGrid& grid, uint64_t seed) const {
    const Tensor random =
        testing::random_tensor({grid.patches(), config_.patch_values()}, DType::kF32, seed);
    return {random.span<float>().begin(), random.span<float>().end()};
  }

  void expect_plain_features(const std::vector<PatchGrid>& grids);

  checkpoint::testing::TemporaryFolder folder_;
  VisionConfig config_;
  std::map<std::string, Tensor> weights_;
  std::unique_ptr<VisionEncoder> encoder_;
};

void PlainTowerTest::expect_plain_features(const std::vector<PatchGrid>& grids) {
  const PlainTower reference(config_, std::move(weights_));
  for (const PatchGrid& grid : grids) {
    const std::vector<float> patches = patches_of(grid, 3);
    const auto features = encoder_->encode(grid, patches);
    ASSERT_TRUE(features.ok()) << features.status().message();
    const Rows truth = reference.features(grid, patches);
    ASSERT_EQ(features->shape(), Shape({std::ssize(truth), config_.feature_width()}));
    Row want;
    for (const Row& row : truth) want.insert(want.end(), row.begin(), row.end());
    EXPECT_LT(testing::relative_error(features->view(), want), 3e-6)
        << grid.height << " x " << grid.width;
  }
}

// Grids smaller and larger than a window and than the table, with a single row of cells, and with
// incomplete windows at their edges.
TEST_P(PlainTowerTest, FeaturesEqualThoseOfPlainLoopsInDouble) {
  expect_plain_features({{2, 2}, {2, 10}, {4, 4}, {6, 10}, {14, 2}, {10, 12}});
}

TEST_P(PlainTowerTest, OtherCellsAndFrequenciesEqualPlainLoopsToo) {
  json config = std::get<0>(GetParam()) ? table_config() : window_config();
  config["vision_config"].update(
      {{"spatial_merge_size", 3}, {"window_size", 12}, {"rope_parameters", {{"rope_theta", 500}}}});
  load(config);
  ASSERT_EQ(config_.cell(), 9);
  ASSERT_EQ(config_.rope_theta, 500);
  expect_plain_features({{3, 3}, {9, 6}, {12, 15}});
}

// In exact mode weights are fp32 without being asked for.
TEST_P(PlainTowerTest, ExactModeNeedsNoDtype) {
  load(std::get<0>(GetParam()) ? table_config() : window_config(), DType::kBf16);
  const bool exact = std::get<1>(GetParam());
  const auto as_stored = encoder_of(folder_.path(), exact, 2, std::nullopt);
  ASSERT_NE(as_stored, nullptr);
  const std::vector<float> patches = patches_of({4, 6}, 3);
  const auto wanted = encoder_->encode({4, 6}, patches), got = as_stored->encode({4, 6}, patches);
  ASSERT_TRUE(wanted.ok() && got.ok());
  if (exact) {
    EXPECT_TRUE(testing::same_bits(wanted->view(), got->view()));
  }
  EXPECT_LT(row_error(got->view(), wanted->view()), 0.03);
}

// Neither the pictures before nor the number of threads change the features.
TEST_P(PlainTowerTest, FeaturesDependOnThePictureAlone) {
  const PatchGrid grid{6, 8};
  const std::vector<float> patches = patches_of(grid, 5);
  const auto first = encoder_->encode(grid, patches);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(encoder_->encode({12, 10}, patches_of({12, 10}, 6)).ok());
  const auto again = encoder_->encode(grid, patches);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(testing::same_bits(first->view(), again->view()));
  const auto alone = encoder_of(folder_.path(), std::get<1>(GetParam()), /*num_threads=*/1);
  ASSERT_NE(alone, nullptr);
  EXPECT_TRUE(testing::same_bits(first->view(), alone->encode(grid, patches)->view()));
}

TEST_P(PlainTowerTest, RefusesGridsThatDoNotFit) {
  using ::testing::HasSubstr;
  const auto complaint = [&](const PatchGrid& grid, int64_t values) {
    return encoder_->encode(grid, std::vector<float>(static_cast<size_t>(values)))
        .status()
        .message();
  };
  for (const PatchGrid grid :
       {PatchGrid{3, 2}, PatchGrid{2, 5}, PatchGrid{0, 4}, PatchGrid{-2, 2}}) {
    EXPECT_THAT(complaint(grid, 0), HasSubstr("cannot be cut into cells of 2 x 2"));
  }
  EXPECT_THAT(complaint({2, 1 << 20}, 0), HasSubstr("has more than 1024 tokens"));
  EXPECT_THAT(complaint({int64_t{1} << 40, int64_t{1} << 40}, 0), HasSubstr("more than 1024"));
  EXPECT_THAT(complaint({2, 2}, 4 * config_.patch_values() - 1),
              HasSubstr(fmt::format("2 x 2 patches have {} each", config_.patch_values())));
}

INSTANTIATE_TEST_SUITE_P(TableAndWindowsFastAndExact, PlainTowerTest,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool()),
                         [](const auto& one) {
                           return fmt::format("{}_{}", std::get<0>(one.param) ? "table" : "windows",
                                              std::get<1>(one.param) ? "exact" : "fast");
                         });

}  // namespace
}  // namespace heddle
