// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint_files.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_fixture.h"

namespace heddle::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CheckpointFilesTest : public ::testing::Test {
 protected:
  // A file with one fp32 vector of two elements per name: `first` and the number after it.
  void write_file(std::string_view file, const std::vector<std::string>& names, int64_t first = 0) {
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < names.size(); ++i)
      tensors.push_back(testing::counting({2}, DType::kF32, first));
    std::vector<NamedTensor> named;
    for (size_t i = 0; i < names.size(); ++i) named.push_back({names[i], tensors[i].view()});
    ASSERT_TRUE(write_safetensors(folder_.path() / file, named).ok());
  }

  void write_index(std::string_view text) { folder_.write("model.safetensors.index.json", text); }

  // The first element of a tensor.
  static float value_of(const CheckpointFiles& files, const char* name) {
    float value = -1;
    files.read(files.find({.name = name, .shape = {2}}).value(), 0, 1, DType::kF32, &value);
    return value;
  }

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
      {"model-q4.gguf", "\"model-q4.gguf\": a GGUF file, which is not read here; name that file"},
      {"adapter_model.safetensors", "an adapter without its model"},
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
  EXPECT_THAT(error(), HasSubstr("a GGUF file, which is read where its name ends in .gguf"));
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
    EXPECT_THAT(files->notes(), ElementsAre(HasSubstr("of the tensors are not where it says")));
    EXPECT_EQ(files->entry("c"), nullptr);
  }
}

// Transformers reads the shards in the order of their names. Where two have a tensor of one name it
// keeps the later one, even if the index names the other shard.
TEST_F(CheckpointFilesTest, NamesATensorThatIsInTwoShards) {
  write_file("one.safetensors", {"a", "b", "c"}, 1);
  write_file("two.safetensors", {"b", "c", "d"}, 2);
  write_file("zwei.safetensors", {"c"}, 3);
  for (const char* const of_b : {"two.safetensors", "one.safetensors"}) {
    write_index(fmt::format(
        R"({{"weight_map":{{"a":"one.safetensors","b":"{}","c":"zwei.safetensors",
                            "d":"two.safetensors"}}}})",
        of_b));
    const auto files = CheckpointFiles::open(folder_.path());
    ASSERT_TRUE(files.ok()) << files.status().message();
    EXPECT_THAT(files->notes(),
                ElementsAre(AllOf(
                    HasSubstr("2 of the tensors are in several shards"),
                    HasSubstr("\"b\", is in \"one.safetensors\" and \"two.safetensors\"; that of "
                              "\"two.safetensors\" is used"))));
    EXPECT_THAT(files->names(), ElementsAre("a", "b", "c", "d"));
    EXPECT_EQ(files->num_bytes(), 32);
    EXPECT_EQ(value_of(*files, "a"), 1);
    EXPECT_EQ(value_of(*files, "b"), 2);
    EXPECT_EQ(value_of(*files, "c"), 3);
  }
}

TEST_F(CheckpointFilesTest, FindsShardsByEverySpellingOfTheirNames) {
  write_file("one.safetensors", {"a", "b"});
  std::filesystem::create_directories(folder_.path() / "weights");
  write_file("weights/two.safetensors", {"c"});
  write_index(R"({"weight_map":{"a":"./one.safetensors","b":"weights/..//one.safetensors",
                                "c":".//weights/two.safetensors"}})");
  const auto files = CheckpointFiles::open(folder_.path());
  ASSERT_TRUE(files.ok()) << files.status().message();
  EXPECT_THAT(files->names(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(files->num_files(), 2);
  EXPECT_EQ(files->unread_files(), "");
  EXPECT_THAT(files->notes(), IsEmpty());
}

TEST_F(CheckpointFilesTest, NamesLinksToFilesThatAreGone) {
  const auto link = [&](std::string_view name) {
    std::filesystem::create_symlink("../blobs/4d7a", folder_.path() / name);
  };
  const auto wanted = AllOf(HasSubstr("is a link to "), HasSubstr("blobs/4d7a, which does not "
                                                                  "exist; download it again"));
  link("model.safetensors");
  EXPECT_THAT(error(), AllOf(HasSubstr("model.safetensors is a link"), wanted));
  std::filesystem::remove(folder_.path() / "model.safetensors");
  link("model.safetensors.index.json");
  EXPECT_THAT(error(), AllOf(HasSubstr("index.json is a link"), wanted));
  std::filesystem::remove(folder_.path() / "model.safetensors.index.json");
  link("one.safetensors");
  write_index(R"({"weight_map":{"a":"one.safetensors"}})");
  EXPECT_THAT(error(), AllOf(HasSubstr("one.safetensors is a link"), wanted));
}

TEST_F(CheckpointFilesTest, NamesTheKindOfAFileThatIsNoSafetensors) {
  const auto text = [](const char* bytes, size_t size) { return std::string(bytes, size); };
  const std::pair<std::string, const char*> cases[] = {
      {R"({"error":"Repository not found"})", "a text, \"{\"error\":\"Repository not found\"}\""},
      {"Entry not found", "a text, \"Entry not found\"; download it again"},
      {" \r\n<html>", "an HTML or XML page"},
      {text("\x1F\x8B\x08\0\0\0\0\0\0\x03", 10), "compressed or an archive; unpack it"},
      {text("\x28\xB5\x2F\xFD\0\0\0\0\0", 9), "compressed or an archive; unpack it"},
      {text("PK\x03\x04\0\0\0\0\0", 9), "a PyTorch file or another zip archive"},
      {text("\x80\x02\x8A\x0A\x6C\xFC\x9C\x46\xF9", 9), "a pickle of Python, as PyTorch writes"},
      {text("\x89HDF\r\n\x1A\n\0", 9), "an HDF5 file"},
      {text("GGUF\x03\0\0\0\0", 9), "a GGUF file, which is read where its name ends in .gguf"},
      {std::string(4096, '\0'), "begins with zeros only"},
      {std::string(257, 'x') + "ustar", "compressed or an archive"},
  };
  for (const auto& [content, wanted] : cases) {
    folder_.write("model.safetensors", content);
    EXPECT_THAT(error(), AllOf(HasSubstr("model.safetensors: the file "), HasSubstr(wanted)));
  }
}

// Its first byte is the lowest of the header's length: here '<', 0x1F 0x8B, "PK" and 0x80 0x02.
TEST_F(CheckpointFilesTest, OpensAFileWhoseLengthLooksLikeAnotherKind) {
  for (const size_t length : std::initializer_list<size_t>{0x3C, 0x8B1F, 0x4B50, 0x280, 0x7B}) {
    std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
    header.append(length - header.size(), ' ');
    folder_.write("model.safetensors", testing::safetensors_text(header, 1));
    EXPECT_TRUE(CheckpointFiles::open(folder_.path()).ok()) << length << ": " << error();
  }
}

TEST_F(CheckpointFilesTest, NamesWeightsInTheLayoutOfTheirMaker) {
  folder_.write("params.json", "{}");
  write_file("consolidated.safetensors", {"layers.0.attention.wq.weight"});
  EXPECT_THAT(error(),
              AllOf(HasSubstr("only \"consolidated.safetensors\": weights in the layout of "
                              "the model's maker"),
                    HasSubstr("download the model's safetensors files")));
  std::filesystem::remove(folder_.path() / "consolidated.safetensors");
  write_file("consolidated-00001-of-00002.safetensors", {"a"});
  EXPECT_THAT(error(), HasSubstr("weights in the layout of the model's maker"));
  write_file("model.safetensors", {"b"});
  EXPECT_THAT(CheckpointFiles::open(folder_.path())->names(), ElementsAre("b"));
}

TEST_F(CheckpointFilesTest, OneFileWithoutAnIndexLacksOnlyItsName) {
  write_file("tiny-fp16.safetensors", {"a"});
  EXPECT_THAT(error(),
              HasSubstr("has \"tiny-fp16.safetensors\" but no model.safetensors; rename the "
                        "file to that"));
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
