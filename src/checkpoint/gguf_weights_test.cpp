// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_weights.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/gguf_fixture.h"
#include "quant/block_fixture.h"

namespace heddle::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

Result<GgufWeights> weights_of(const GgufWriter& writer, std::vector<GgufSource> sources,
                               const std::vector<std::string>& left_out = {}) {
  const TemporaryFolder folder;
  HEDDLE_ASSIGN_OR_RETURN(GgufModel model, GgufModel::open(folder.write("m.gguf", writer.file())));
  return GgufWeights::create(std::move(model), std::move(sources), left_out);
}

std::vector<float> read_floats(const GgufWeights& weights, std::string_view name, int64_t first,
                               int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  weights.read(*weights.find({.name = name, .shape = {}}), first, count, DType::kF32,
               values.data());
  return values;
}

TEST(GgufWeights, HasTensorsUnderHubNamesAndTheOthersUnderTheirOwn) {
  GgufWriter writer;
  writer.tensor("token_embd.weight", {2, 2}, std::vector<float>{1, 2, 3, 4});
  writer.tensor("extra", {1}, std::vector<float>{5});
  writer.tensor("rope_freqs.weight", {1}, std::vector<float>{6});
  const auto weights = weights_of(
      writer,
      {{.hub = "model.embed_tokens.weight", .stored = "token_embd.weight", .shape = {2, 2}}},
      {"rope_freqs.weight"});
  ASSERT_TRUE(weights.ok()) << weights.status().to_string();
  EXPECT_THAT(weights->names(), ElementsAre("extra", "model.embed_tokens.weight"));
  EXPECT_THAT(read_floats(*weights, "model.embed_tokens.weight", 1, 3), ElementsAre(2, 3, 4));
  EXPECT_FALSE(weights->find({.name = "token_embd.weight", .shape = {}}).has_value());
  EXPECT_NE(weights->find({.name = "extra", .shape = {}})->data, nullptr);
}

TEST(GgufWeights, UndoesOrdersOfRowsAndChangesOfNumbers) {
  GgufWriter writer;
  writer.tensor("q", {4, 1}, std::vector<float>{0, 1, 2, 3});
  writer.tensor("bias", {4}, std::vector<float>{0, 1, 2, 3});
  writer.tensor("norm", {2}, std::vector<float>{1.5f, 0.25f});
  writer.tensor("a", {2}, std::vector<float>{-1, -2});
  writer.tensor("experts", {2, 2, 1}, std::vector<float>{0, 1, 2, 3});
  const quant::RowOrder pairs{
      .middle = 2, .inner = 2, .group_step = 4, .middle_step = 1, .inner_step = 2};
  const auto weights = weights_of(
      writer, {{.hub = "Q", .stored = "q", .shape = {4, 1}, .order = pairs},
               {.hub = "B", .stored = "bias", .shape = {4}, .order = pairs},
               {.hub = "N", .stored = "norm", .shape = {2}, .change = GgufChange::kOneAdded},
               {.hub = "A", .stored = "a", .shape = {2}, .change = GgufChange::kNegatedExponent},
               {.hub = "E1", .stored = "experts", .shape = {2, 1}, .order = {.first = 2}}});
  ASSERT_TRUE(weights.ok()) << weights.status().to_string();
  EXPECT_THAT(read_floats(*weights, "Q", 0, 4), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(read_floats(*weights, "B", 1, 2), ElementsAre(2, 1));
  EXPECT_THAT(read_floats(*weights, "N", 0, 2), ElementsAre(0.5f, -0.75f));
  EXPECT_THAT(read_floats(*weights, "A", 0, 2), ElementsAre(0, std::log(2.0f)));
  EXPECT_THAT(read_floats(*weights, "E1", 0, 2), ElementsAre(2, 3));
  EXPECT_EQ(weights->find({.name = "Q", .shape = {}})->data, nullptr);  // not as it lies there
}

TEST(GgufWeights, UndoesOrdersOfColumns) {
  GgufWriter writer;
  writer.tensor("out", {2, 6}, std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const std::vector<std::byte> blocks =
      quant::testing::random_blocks(quant::BlockType::kQ8_0, 2, /*seed=*/3);
  writer.tensor("packed", {1, 64}, testing::kGgufQ8, blocks);
  // Two groups of columns that the file has in turn, two by two and sixteen by sixteen.
  const auto in_turn = [](int64_t middle, int64_t inner) {
    return quant::RowOrder{.middle = middle,
                           .inner = inner,
                           .group_step = inner,
                           .middle_step = 2 * inner,
                           .inner_step = 1};
  };
  GgufSource out{.hub = "O", .stored = "out", .shape = {2, 6}};
  out.columns = in_turn(3, 1);
  GgufSource packed{.hub = "P", .stored = "packed", .shape = {1, 64}};
  packed.columns = in_turn(2, 16);
  const auto weights = weights_of(writer, {out, packed});
  ASSERT_TRUE(weights.ok()) << weights.status().to_string();
  EXPECT_THAT(read_floats(*weights, "O", 0, 12), ElementsAre(0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11));
  EXPECT_THAT(read_floats(*weights, "O", 4, 4), ElementsAre(3, 5, 6, 8));
  EXPECT_FALSE(weights->find({.name = "P", .shape = {}})->blocks.has_value());
  const std::vector<float> row = read_floats(*weights, "P", 0, 64);
  for (const int64_t column : {0, 15, 16, 40, 63}) {
    const int64_t stored = column % 32 / 16 * 32 + column / 32 * 16 + column % 16;
    EXPECT_EQ(row[static_cast<size_t>(column)],
              static_cast<float>(
                  quant::testing::block_element(quant::BlockType::kQ8_0, blocks.data(), stored)));
  }
  EXPECT_THAT(weights->notes(), ::testing::Contains(HasSubstr("1 tensors of Q8_0")));
  out.columns.middle_step = 3;
  EXPECT_THAT(weights_of(writer, {out}).status().message(), HasSubstr("does not hold \"O\""));
}

TEST(GgufWeights, ReadsAnyStretchOfBlocksAndSaysThatItIsOne) {
  for (const quant::BlockType type : quant::testing::kBlockTypes) {
    const GgufType* stored = nullptr;
    for (uint32_t id = 0; id < 64; ++id) {
      const GgufType* const found = find_gguf_type(id);
      if (found != nullptr && found->blocks == type) stored = found;
    }
    ASSERT_NE(stored, nullptr);
    constexpr int64_t kRows = 3, kWidth = 512;
    const auto bytes =
        quant::testing::random_blocks(type, kRows * kWidth / stored->block.columns, 5);
    GgufWriter writer;
    writer.tensor("w", {kRows, kWidth}, stored->id, bytes);
    const auto weights = weights_of(writer, {});
    ASSERT_TRUE(weights.ok());
    std::vector<float> expected;
    for (int64_t i = 500; i < 1100; ++i) {
      expected.push_back(static_cast<float>(quant::testing::block_element(type, bytes.data(), i)));
    }
    EXPECT_THAT(read_floats(*weights, "w", 500, 600), ElementsAreArray(expected)) << stored->name;
    EXPECT_TRUE(weights->find({.name = "w", .shape = {}})->blocks.has_value());
  }
}

TEST(GgufWeights, RefusesTypesByNameAndSourcesThatDoNotFit) {
  GgufWriter iq;
  iq.tensor("blk.0.ffn_up.weight", {1, 256}, 23, std::vector<std::byte>(136));
  EXPECT_THAT(weights_of(iq, {}).status().message(),
              HasSubstr("\"blk.0.ffn_up.weight\" is stored as IQ4_XS, which is not served; take"));
  GgufWriter small;
  small.tensor("w", {2, 2}, std::vector<float>{1, 2, 3, 4});
  for (const auto& [shape, order] : {std::pair(Shape{3, 2}, quant::RowOrder()),
                                     {Shape{1, 3}, quant::RowOrder()},
                                     {Shape{2, 2}, quant::RowOrder{.first = 1}}}) {
    EXPECT_THAT(weights_of(small, {{.hub = "W", .stored = "w", .shape = shape, .order = order}})
                    .status()
                    .message(),
                HasSubstr("tensor \"w\" is [2, 2], which does not hold \"W\""));
  }
  EXPECT_THAT(weights_of(small, {{.hub = "W", .stored = "w", .shape = {2, 2}},
                                 {.hub = "W", .stored = "w", .shape = {2, 2}}})
                  .status()
                  .message(),
              HasSubstr("\"W\" is stored twice"));
}

}  // namespace
}  // namespace heddle::checkpoint
