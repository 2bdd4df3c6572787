// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_fixture.h"

namespace heddle::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CheckpointFilesTest : public ::testing::Test {
 protected:
  // A file with one fp32 vector of two elements per name.
  void write_file(std::string_view file, const std::vector<std::string>& names) {
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < names.size(); ++i)
      tensors.push_back(testing::counting({2}, DType::kF32));
    std::vector<NamedTensor> named;
    for (size_t i = 0; i < names.size(); ++i) named.push_back({names[i], tensors[i].view()});
    ASSERT_TRUE(write_safetensors(folder_.path() / file, named).ok());
  }

  void write_index(std::string_view text) { folder_.write("model.safetensors.index.json", text); }

  std::string error() { return CheckpointFiles::open(folder_.path()).status().message(); }

  testing::TemporaryFolder folder_;
};

TEST_F(CheckpointFilesTest, OpensASingleFile) {
  write_file("model.safetensors", {"b", "a"});
  const Result<CheckpointFiles> files = CheckpointFiles::open(folder_.path());
  ASSERT_TRUE(files.ok()) << files.status().to_string();
  EXPECT_THAT(files->names(), ElementsAre("a", "b"));
  EXPECT_EQ(files->num_bytes(), 16);
}

TEST_F(CheckpointFilesTest, OpensShardsByTheirIndex) {
  write_file("one.safetensors", {"a", "b"});
  write_file("two.safetensors", {"c"});
  write_index(R"({"metadata":{"total_size":24},
                  "weight_map":{"a":"one.safetensors","b":"one.safetensors","c":"two.safetensors"}})");
  const Result<CheckpointFiles> files = CheckpointFiles::open(folder_.path());
  ASSERT_TRUE(files.ok()) << files.status().to_string();
  EXPECT_EQ(files->num_files(), 2);
  const std::optional<StoredWeight> stored = files->find({.name = "c", .shape = {2}});
  ASSERT_TRUE(stored.has_value());
  std::vector<Bf16> read(1);
  files->read(*stored, 1, 1, DType::kBf16, read.data());
  EXPECT_EQ(to_float(read[0]), 1.0f);
  EXPECT_FALSE(files->find({.name = "d", .shape = {2}}).has_value());
}

// As in transformers, which looks for the single file first.
TEST_F(CheckpointFilesTest, ASingleFileWinsOverAnIndex) {
  write_file("model.safetensors", {"a"});
  write_file("one.safetensors", {"a", "b"});
  write_index(R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})");
  const Result<CheckpointFiles> files = CheckpointFiles::open(folder_.path());
  ASSERT_TRUE(files.ok()) << files.status().to_string();
  EXPECT_THAT(files->names(), ElementsAre("a"));
  EXPECT_THAT(files->unread_files(),
              AllOf(HasSubstr("read from model.safetensors; not read: "),
                    HasSubstr("\"model.safetensors.index.json\", \"one.safetensors\"")));
}

TEST_F(CheckpointFilesTest, NamesFilesThatNoIndexNames) {
  write_file("one.safetensors", {"a"});
  write_index(R"({"weight_map":{"a":"one.safetensors"}})");
  EXPECT_EQ(CheckpointFiles::open(folder_.path())->unread_files(), "");
  write_file("consolidated.safetensors", {"x"});
  EXPECT_THAT(CheckpointFiles::open(folder_.path())->unread_files(),
              HasSubstr("read from model.safetensors.index.json; not read: "
                        "\"consolidated.safetensors\""));
}

TEST_F(CheckpointFilesTest, ReadsAnIndexAsPythonDoes) {
  write_file("one.safetensors", {"a"});
  write_index(R"({"metadata":{"total_size":1e400,"other":NaN,"n":99999999999999999999},
                  "weight_map":{"a":"two.safetensors","a":"one.safetensors"}})");
  EXPECT_TRUE(CheckpointFiles::open(folder_.path()).ok()) << error();
}

TEST_F(CheckpointFilesTest, ReadsAHeaderAsPythonDoes) {
  folder_.write("model.safetensors",
                testing::safetensors_text(
                    R"({"__metadata__":{"loss":NaN,"steps":1e999,"format":"pt"},
                        "a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],
                             "made":123456789012345678901234567890}})",
                    1));
  EXPECT_TRUE(CheckpointFiles::open(folder_.path()).ok()) << error();
  folder_.write("model.safetensors", testing::safetensors_text("{\n\"a\": [1,]}", 0));
  EXPECT_THAT(error(), HasSubstr("the header: not valid JSON at line 2, column 8"));
}

TEST_F(CheckpointFilesTest, NamesWeightsOfOtherForms) {
  constexpr std::string_view kCases[][2] = {
      {"pytorch_model.bin", "\"pytorch_model.bin\": weights as a PyTorch pickle"},
      {"model-q4.gguf", "\"model-q4.gguf\": a GGUF file, which is not served"},
      {"adapter_model.safetensors", "the adapters of a model without the model"},
      {"consolidated.00.pth", "weights as a PyTorch pickle"},
      {"tf_model.h5", "weights of TensorFlow"},
  };
  for (const auto& [name, wanted] : kCases) {
    folder_.write(name, "x");
    EXPECT_THAT(error(), HasSubstr(wanted));
    std::filesystem::remove(folder_.path() / name);
  }
  folder_.write("model.safetensors", "version https://git-lfs.github.com/spec/v1\nsize 123\n");
  EXPECT_THAT(error(), AllOf(HasSubstr("model.safetensors: the file is a Git LFS pointer to 123"),
                             HasSubstr("git lfs pull")));
  folder_.write("model.safetensors", "GGUF1234567890");
  EXPECT_THAT(error(), HasSubstr("a GGUF file, which is not served"));
  folder_.write("model.safetensors", "<html>");
  EXPECT_THAT(error(), HasSubstr("an HTML or XML page; download it again"));
  folder_.write("model.safetensors", "");
  EXPECT_THAT(error(), HasSubstr("the file is empty; download it again"));
}

TEST_F(CheckpointFilesTest, SaysWhatAFolderLacks) {
  EXPECT_THAT(error(), AllOf(HasSubstr("neither model.safetensors nor"), HasSubstr("dummy")));
  EXPECT_EQ(CheckpointFiles::open(folder_.path() / "none").status().code(), StatusCode::kNotFound);
}

TEST_F(CheckpointFilesTest, ShardsWithoutTheirIndexLackOnlyThat) {
  write_file("model-00001-of-00002.safetensors", {"a"});
  EXPECT_THAT(error(), AllOf(HasSubstr("has \"model-00001-of-00002.safetensors\" but no "
                                       "model.safetensors.index.json"),
                             ::testing::Not(HasSubstr("dummy"))));
}

TEST_F(CheckpointFilesTest, NamesAShardThatIsMissing) {
  write_file("one.safetensors", {"a"});
  write_index(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  EXPECT_THAT(error(),
              HasSubstr("shard \"two.safetensors\", which should hold tensor \"b\", is missing"));
}

TEST_F(CheckpointFilesTest, TheShardsSayWhichTensorsTheyHave) {
  write_file("one.safetensors", {"a"});
  write_file("two.safetensors", {"b"});
  for (const char* const map :
       {R"("a":"one.safetensors","b":"two.safetensors","c":"two.safetensors")",
        R"("a":"two.safetensors","b":"one.safetensors")",
        R"("c":"one.safetensors","d":"two.safetensors")"}) {
    write_index(fmt::format(R"({{"weight_map":{{{}}}}})", map));
    const auto files = CheckpointFiles::open(folder_.path());
    ASSERT_TRUE(files.ok()) << files.status().message();
    EXPECT_THAT(files->names(), ElementsAre("a", "b")) << map;
    EXPECT_EQ(files->entry("c"), nullptr);
  }
}

TEST_F(CheckpointFilesTest, NamesATensorThatIsInTwoShards) {
  write_file("one.safetensors", {"a", "b"});
  write_file("two.safetensors", {"b"});
  write_index(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  EXPECT_THAT(error(),
              HasSubstr("tensor \"b\" is in \"one.safetensors\" and in \"two.safetensors\""));
}

TEST_F(CheckpointFilesTest, NamesATruncatedShard) {
  write_file("one.safetensors", {"a", "b"});
  const auto path = folder_.path() / "one.safetensors";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 4);
  write_index(R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})");
  EXPECT_THAT(error(), AllOf(HasSubstr("one.safetensors"), HasSubstr("truncated")));
}

TEST_F(CheckpointFilesTest, RefusesABadIndex) {
  for (const std::string_view text :
       {"", "{", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})",
        R"({"weight_map":{"a":3}})", R"({"weight_map":{"a":"../model.safetensors"}})",
        R"({"weight_map":{"a":"/etc/passwd"}})", R"({"weight_map":{"a":""}})",
        R"({"weight_map":{"a":".."}})", R"({"weight_map":{"a":"x\u0000y"}})"}) {
    SCOPED_TRACE(text);
    write_index(text);
    const Status status = CheckpointFiles::open(folder_.path()).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("model.safetensors.index.json"));
  }
}

}  // namespace
}  // namespace heddle::checkpoint
