// SPDX-License-Identifier: Apache-2.0
// Weights of a GGUF file on their way to memory: packed on the host, on a device where its packed
// rows have a form for them.
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>

#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/gguf_fixture.h"
#include "checkpoint/gguf_weights.h"
#include "checkpoint/load_weights.h"
#include "device/cpu_device.h"
#include "quant/block_fixture.h"
#include "quant/dequantise.h"

namespace heddle::checkpoint {
namespace {

using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

constexpr int64_t kGgufWidth = 256;

// A stored tensor of random blocks, and what it stands for.
struct DrawnBlocks {
  quant::BlockType type;
  uint32_t id;
  std::vector<std::byte> bytes;

  DrawnBlocks(quant::BlockType block_type, uint32_t type_id, int64_t rows)
      : type(block_type),
        id(type_id),
        bytes(quant::testing::random_blocks(
            block_type, rows * kGgufWidth / quant::size_of(block_type).columns, type_id)) {}

  [[nodiscard]] float at(int64_t row, int64_t column) const {
    return static_cast<float>(
        quant::testing::block_element(type, bytes.data(), row * kGgufWidth + column));
  }
};

// Any row of a weight in fp32, packed or not.
std::vector<float> loaded_row(const TensorView& weight, int64_t row) {
  std::vector<float> values(static_cast<size_t>(kGgufWidth));
  if (weight.packed == nullptr) {
    const float* const begin = weight.as<float>() + row * kGgufWidth;
    return {begin, begin + kGgufWidth};
  }
  for (const quant::PackedWeight::Part& part : weight.packed->parts) {
    if (row < part.first_row || row >= part.first_row + part.num_rows) continue;
    const int64_t own = row - part.first_row;
    if (part.plain.data != nullptr) {
      const float* const begin = part.plain.as<float>() + own * kGgufWidth;
      return {begin, begin + kGgufWidth};
    }
    quant::dequantise_row(part.packed, own, 0, kGgufWidth, values.data());
  }
  return values;
}

void expect_rows(const TensorView& weight, int64_t first, const DrawnBlocks& stored,
                 const std::vector<int64_t>& stored_rows) {
  for (size_t i = 0; i < stored_rows.size(); ++i) {
    const std::vector<float> row = loaded_row(weight, first + static_cast<int64_t>(i));
    for (int64_t k = 0; k < kGgufWidth; ++k) {
      ASSERT_EQ(row[static_cast<size_t>(k)], stored.at(stored_rows[i], k))
          << "row " << first + static_cast<int64_t>(i) << ", column " << k;
    }
  }
}

Result<LoadedWeights> load_gguf(const GgufWriter& writer, std::vector<GgufSource> sources,
                                const std::vector<WeightSpec>& specs,
                                const LoadOptions& options = {.dtype = DType::kF32}) {
  const TemporaryFolder folder;
  HEDDLE_ASSIGN_OR_RETURN(GgufModel model, GgufModel::open(folder.write("m.gguf", writer.file())));
  HEDDLE_ASSIGN_OR_RETURN(GgufWeights weights,
                          GgufWeights::create(std::move(model), std::move(sources)));
  return load_weights(std::make_unique<GgufWeights>(std::move(weights)), specs, options);
}

TEST(GgufLoad, PartsOfAProjectionMayBeStoredInSeveralTypesAndOrders) {
  const DrawnBlocks q(quant::BlockType::kQ4K, 12, 4);
  const DrawnBlocks k(quant::BlockType::kQ8_0, 8, 4);
  const DrawnBlocks v(quant::BlockType::kQ6K, 14, 2);
  GgufWriter writer;
  writer.tensor("q", {4, kGgufWidth}, q.id, q.bytes);
  writer.tensor("k", {4, kGgufWidth}, k.id, k.bytes);
  writer.tensor("v", {2, kGgufWidth}, v.id, v.bytes);
  const quant::RowOrder pairs{
      .middle = 2, .inner = 2, .group_step = 4, .middle_step = 1, .inner_step = 2};
  const auto loaded =
      load_gguf(writer,
                {{.hub = "q_proj.weight", .stored = "q", .shape = {4, kGgufWidth}, .order = pairs},
                 {.hub = "k_proj.weight", .stored = "k", .shape = {4, kGgufWidth}, .order = pairs},
                 {.hub = "v_proj.weight", .stored = "v", .shape = {2, kGgufWidth}}},
                {{.name = "qkv",
                  .shape = {10, kGgufWidth},
                  .alternatives = {concatenated({{"q_proj.weight", {4, kGgufWidth}},
                                                 {"k_proj.weight", {4, kGgufWidth}},
                                                 {"v_proj.weight", {2, kGgufWidth}}})}}});
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const TensorView& weight = (*loaded)["qkv"];
  ASSERT_NE(weight.packed, nullptr);
  ASSERT_EQ(weight.packed->parts.size(), 3u);
  // A row of Q4_K, of Q8_0 and of Q6_K: codes, then scales.
  EXPECT_EQ(weight.packed->num_bytes(), 4 * (128 + 20) + 4 * (256 + 16) + 2 * (256 + 18));
  expect_rows(weight, 0, q, {0, 2, 1, 3});
  expect_rows(weight, 4, k, {0, 2, 1, 3});
  expect_rows(weight, 8, v, {0, 1});
}

// A weight that was dequantised would take 1024 bytes a row.
TEST(GgufLoad, EveryTypeTakesWhatItsPackedFormTakes) {
  constexpr int64_t kRows = 24;
  for (const quant::BlockType type : quant::testing::kBlockTypes) {
    uint32_t id = 0;
    while (find_gguf_type(id) == nullptr || find_gguf_type(id)->blocks != type) ++id;
    SCOPED_TRACE(find_gguf_type(id)->name);
    const DrawnBlocks stored(type, id, kRows);
    GgufWriter writer;
    writer.tensor("w", {kRows, kGgufWidth}, id, stored.bytes);
    for (const Packing packing : {Packing::kInParts, Packing::kAlike, Packing::kLookedUp}) {
      const auto loaded =
          load_gguf(writer, {{.hub = "w.weight", .stored = "w", .shape = {kRows, kGgufWidth}}},
                    {{.name = "w",
                      .shape = {kRows, kGgufWidth},
                      .alternatives = {whole({"w.weight", {kRows, kGgufWidth}})},
                      .packing = packing}});
      ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
      const int64_t row_bytes = quant::packed_format(type, kGgufWidth)->row_bytes();
      EXPECT_LE(row_bytes, 256 + 32);
      EXPECT_EQ((*loaded)["w"].packed->num_bytes(), kRows * row_bytes);
      EXPECT_LT(loaded->bytes_copied() + loaded->bytes_in_place(), kRows * row_bytes + 128);
      for (int64_t row = 0; row < kRows; ++row) expect_rows((*loaded)["w"], row, stored, {row});
    }
  }
}

TEST(GgufLoad, ADeviceGetsNumbersWhereItsPackedRowsHaveNoForm) {
  constexpr int64_t kRows = 3;
  device::CpuDevice device(1);
  for (const auto& [type, id, is_packed] : {std::tuple(quant::BlockType::kQ4K, 12u, false),
                                            {quant::BlockType::kQ5_1, 7u, false},
                                            {quant::BlockType::kQ6K, 14u, true}}) {
    const DrawnBlocks stored(type, id, kRows);
    SCOPED_TRACE(find_gguf_type(id)->name);
    GgufWriter writer;
    writer.tensor("w", {kRows, kGgufWidth}, id, stored.bytes);
    for (const Packing packing : {Packing::kInParts, Packing::kLookedUp}) {
      ::testing::internal::CaptureStderr();
      const auto loaded =
          load_gguf(writer, {{.hub = "w.weight", .stored = "w", .shape = {kRows, kGgufWidth}}},
                    {{.name = "w",
                      .shape = {kRows, kGgufWidth},
                      .alternatives = {whole({"w.weight", {kRows, kGgufWidth}})},
                      .packing = packing}},
                    {.dtype = DType::kF32, .device = &device});
      const std::string log = ::testing::internal::GetCapturedStderr();
      ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
      EXPECT_EQ((*loaded)["w"].packed != nullptr, is_packed && packing == Packing::kInParts);
      EXPECT_EQ(log.find("because a GPU's packed rows have no minima") == std::string::npos,
                is_packed)
          << log;
      expect_rows((*loaded)["w"], 0, stored, {0, 1, 2});
    }
  }
}

TEST(GgufLoad, ATableSaysNoDtypeAndExpertsStayPacked) {
  const DrawnBlocks table(quant::BlockType::kQ6K, 14, 5);
  const DrawnBlocks experts(quant::BlockType::kQ4K, 12, 6);
  GgufWriter writer;
  writer.tensor("table", {5, kGgufWidth}, table.id, table.bytes);
  writer.tensor("experts", {3, 2, kGgufWidth}, experts.id, experts.bytes);
  writer.tensor("router.weight", {2, 2}, std::vector<float>{1, 2, 3, 4});
  writer.tensor("norm", {4}, std::vector<float>{1, 1.5f, 2, 0.5f});
  std::vector<GgufSource> sources = {
      {.hub = "embed.weight", .stored = "table", .shape = {5, kGgufWidth}},
      {.hub = "norm.weight", .stored = "norm", .shape = {4}, .change = GgufChange::kOneAdded}};
  for (int64_t e = 0; e < 3; ++e) {
    sources.push_back({.hub = "experts." + std::to_string(e) + ".up.weight",
                       .stored = "experts",
                       .shape = {2, kGgufWidth},
                       .order = {.first = 2 * e}});
  }
  const auto loaded = load_gguf(
      writer, sources,
      {{.name = "embed",
        .shape = {5, kGgufWidth},
        .alternatives = {whole({"embed.weight", {5, kGgufWidth}})},
        .packing = Packing::kLookedUp},
       {.name = "experts",
        .shape = {3, 2, kGgufWidth},
        .alternatives = {stacked(3, {{"experts.#.up.weight", {2, kGgufWidth}}})},
        .packing = Packing::kAlike},
       {.name = "router", .shape = {2, 2}, .alternatives = {whole({"router.weight", {2, 2}})}},
       {.name = "norm",
        .shape = {4},
        .alternatives = {whole({"norm.weight", {4}})},
        .dtype = WeightDType::kF32,
        .offset = 1}},
      {});
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded->run_dtype(), DType::kBf16);  // not the router's
  ASSERT_NE((*loaded)["embed"].packed, nullptr);
  expect_rows((*loaded)["embed"], 0, table, {0, 1, 2, 3, 4});
  ASSERT_NE((*loaded)["experts"].packed, nullptr);
  EXPECT_EQ((*loaded)["experts"].packed->parts.size(), 1u);
  expect_rows((*loaded)["experts"], 0, experts, {0, 1, 2, 3, 4, 5});
  EXPECT_THAT(testing::floats((*loaded)["norm"]), ::testing::ElementsAre(1, 1.5f, 2, 0.5f));
}

TEST(GgufLoad, ATensorOfAnotherShapeIsAnError) {
  const DrawnBlocks stored(quant::BlockType::kQ8_0, 8, 3);
  GgufWriter writer;
  writer.tensor("w", {3, kGgufWidth}, stored.id, stored.bytes);
  const auto loaded =
      load_gguf(writer, {{.hub = "up.weight", .stored = "w", .shape = {3, kGgufWidth}}},
                {{.name = "up",
                  .shape = {4, kGgufWidth},
                  .alternatives = {whole({"up.weight", {4, kGgufWidth}})}}});
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.status().message(), HasSubstr("it is [3, 256], the model needs [4, 256]"));
}

}  // namespace
}  // namespace heddle::checkpoint
