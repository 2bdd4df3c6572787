// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_model.h"

#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/gguf_fixture.h"

namespace heddle::checkpoint {
namespace {

using ::testing::ElementsAre;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

std::string gguf_part(int part, int count, const std::string& tensor) {
  GgufWriter writer;
  writer.u16("split.no", static_cast<uint16_t>(part - 1));
  writer.u16("split.count", static_cast<uint16_t>(count));
  writer.i32("split.tensors.count", count);
  writer.tensor(tensor, {1}, std::vector<float>{static_cast<float>(part)});
  return writer.file();
}

std::string gguf_part_name(int part, int count) {
  return fmt::format("m-{:05}-of-{:05}.gguf", part, count);
}

Status split_error(const TemporaryFolder& folder, int count) {
  return GgufModel::open(folder.path() / gguf_part_name(1, count)).status();
}

TEST(GgufModel, JoinsThePartsOfASplitModelWhicheverIsNamed) {
  const TemporaryFolder folder;
  for (int part = 1; part <= 3; ++part) {
    folder.write(gguf_part_name(part, 3), gguf_part(part, 3, fmt::format("t{}", part)));
  }
  const auto first = find_gguf(folder.path() / gguf_part_name(2, 3));
  ASSERT_TRUE(first.ok() && first->has_value());
  EXPECT_EQ(**first, folder.path() / gguf_part_name(1, 3));
  EXPECT_EQ(find_gguf(folder.path()).value(), **first);
  const GgufModel model = GgufModel::open(**first).value();
  EXPECT_THAT(model.names(), ElementsAre("t1", "t2", "t3"));
  EXPECT_EQ(model.num_files(), 3);
  float value = 0;
  std::memcpy(&value, model.find("t3")->data, sizeof(value));
  EXPECT_EQ(value, 3);
  EXPECT_FALSE(model.find("t4").has_value());
}

TEST(GgufModel, PartsThatAreMissingOrOfAnotherModelAreNamed) {
  const TemporaryFolder folder;
  folder.write(gguf_part_name(1, 2), gguf_part(1, 2, "t1"));
  EXPECT_THAT(split_error(folder, 2).message(),
              HasSubstr("part 2 of 2, \"m-00002-of-00002.gguf\", is missing"));
  folder.write(gguf_part_name(2, 2), gguf_part(2, 2, "t1"));
  EXPECT_THAT(split_error(folder, 2).message(), HasSubstr("\"t1\" is in an earlier part"));
  folder.write(gguf_part_name(2, 2), gguf_part(1, 2, "t2"));
  EXPECT_THAT(split_error(folder, 2).message(), HasSubstr("says that it is part 1"));
  folder.write(gguf_part_name(2, 2), gguf_part(2, 2, "t2").substr(0, 60));
  EXPECT_THAT(split_error(folder, 2).message(), HasSubstr("m-00002-of-00002.gguf: "));
  folder.write("other.gguf", gguf_part(1, 2, "t1"));
  EXPECT_THAT(GgufModel::open(folder.path() / "other.gguf").status().message(),
              HasSubstr("call it NAME-00001-of-00002.gguf"));
}

TEST(GgufModel, AFolderHoldsOneModelBesideWhatIsNone) {
  const TemporaryFolder folder;
  EXPECT_EQ(find_gguf(folder.path()).value(), std::nullopt);
  EXPECT_EQ(find_gguf(folder.path() / "absent.gguf").value(), std::nullopt);
  folder.write("config.json", "{}");
  folder.write("mmproj-model-f16.gguf", "");
  EXPECT_EQ(find_gguf(folder.path()).value(), std::nullopt);
  const auto model = folder.write("a-Q8_0.gguf", "");
  EXPECT_EQ(find_gguf(folder.path()).value(), model);
  EXPECT_EQ(find_gguf(model).value(), model);
  folder.write("b-Q4_K_M.gguf", "");
  EXPECT_THAT(find_gguf(folder.path()).status().message(),
              HasSubstr("2 GGUF models, among them \"a-Q8_0.gguf\" and \"b-Q4_K_M.gguf\"; name"));
  folder.write("model.safetensors", "");
  EXPECT_EQ(find_gguf(folder.path()).value(), std::nullopt);
}

TEST(GgufModel, SaysHowMostWeightsAreStored) {
  const TemporaryFolder folder;
  const auto quantization_of = [&](const std::function<void(GgufWriter&)>& add) {
    GgufWriter writer;
    add(writer);
    writer.tensor("small", {2}, std::vector<float>{1, 2});
    writer.tensor("large", {2, 32}, testing::kGgufQ8, std::vector<std::byte>(68));
    return GgufModel::open(folder.write("a.gguf", writer.file())).value().quantization();
  };
  EXPECT_EQ(quantization_of([](GgufWriter&) {}), "Q8_0");
  EXPECT_EQ(quantization_of([](GgufWriter& w) { w.u32("general.file_type", 15); }), "Q4_K_M");
  EXPECT_EQ(quantization_of([](GgufWriter& w) { w.u32("general.file_type", 1); }), "F16");
  EXPECT_EQ(quantization_of([](GgufWriter& w) { w.u32("general.file_type", 999); }), "Q8_0");
  EXPECT_EQ(quantization_of([](GgufWriter& w) { w.text("general.file_type", "x"); }), "Q8_0");
}

TEST(GgufModel, ErrorsBeginWithTheFile) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.gguf", "GGML and more");
  EXPECT_THAT(GgufModel::open(path).status().message(), HasSubstr(path.string() + ": "));
}

}  // namespace
}  // namespace heddle::checkpoint
