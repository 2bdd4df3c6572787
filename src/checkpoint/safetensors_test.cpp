// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <cstring>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_fixture.h"

namespace heddle::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<SafetensorsHeader> parse_header(std::string_view file) {
  return parse_safetensors_header(testing::as_bytes(file), static_cast<int64_t>(file.size()));
}

TEST(SafetensorsTest, ReadsBackWhatItWrote) {
  testing::TemporaryFolder folder;
  const Tensor matrix = testing::counting({3, 5}, DType::kBf16);
  const Tensor vector = testing::counting({7}, DType::kF32);
  const Tensor scalar = testing::counting({}, DType::kF32, 42);
  const Tensor empty = testing::counting({0, 4}, DType::kF16);
  const std::vector<NamedTensor> tensors = {{"a matrix", matrix.view()},
                                            {"vector \"quoted\" \\ \n", vector.view()},
                                            {"scalar", scalar.view()},
                                            {"empty", empty.view()}};
  const auto path = folder.path() / "model.safetensors";
  ASSERT_TRUE(write_safetensors(path, tensors, {{"format", "pt"}}).ok());

  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(file->tensors().size(), 4u);
  EXPECT_EQ(file->metadata().at("format"), "pt");
  for (const NamedTensor& named : tensors) {
    SCOPED_TRACE(named.name);
    const Result<TensorView> view = file->view(named.name);
    ASSERT_TRUE(view.ok()) << view.status().to_string();
    EXPECT_EQ(view->shape, named.tensor.shape);
    EXPECT_EQ(view->dtype, named.tensor.dtype);
    EXPECT_EQ(0, std::memcmp(view->data, named.tensor.data,
                             static_cast<size_t>(named.tensor.num_bytes())));
  }
  const SafetensorsFile moved = std::move(*file);
  EXPECT_THAT(testing::floats(*moved.view("scalar")), ElementsAre(42));
  EXPECT_EQ(moved.view("other").status().code(), StatusCode::kNotFound);
}

TEST(SafetensorsTest, LeavesNoFileBehindWhenWritingFails) {
  testing::TemporaryFolder folder;
  const Tensor tensor = testing::counting({2}, DType::kF32);
  const std::vector<NamedTensor> twice = {{"a", tensor.view()}, {"a", tensor.view()}};
  EXPECT_EQ(write_safetensors(folder.path() / "x", twice).code(), StatusCode::kInvalidArgument);
  const std::vector<NamedTensor> one = {{"a", tensor.view()}};
  EXPECT_FALSE(write_safetensors(folder.path() / "no" / "folder", one).ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SafetensorsTest, KeepsTensorsOfUnknownDTypeButGivesNoViewOfThem) {
  testing::TemporaryFolder folder;
  const auto path = folder.write(
      "x", testing::safetensors_text(
               R"({"a":{"dtype":"F64","shape":[2],"data_offsets":[0,16],"later":{"k":[1]}}})", 16));
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(file->find("a")->stored_dtype, "F64");
  EXPECT_EQ(file->view("a").status().code(), StatusCode::kUnimplemented);
}

TEST(SafetensorsTest, ReadsPowersOfTwoAsTheirCodes) {
  testing::TemporaryFolder folder;
  const auto path =
      folder.write("x", testing::safetensors_text(
                            R"({"s":{"dtype":"F8_E8M0","shape":[2,3],"data_offsets":[0,6]}})", 6));
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(file->find("s")->stored_dtype, "F8_E8M0");
  const Result<TensorView> view = file->view("s");
  ASSERT_TRUE(view.ok()) << view.status().to_string();
  EXPECT_EQ(view->dtype, DType::kU8);
  EXPECT_EQ(view->shape, Shape({2, 3}));
}

struct BadHeader {
  std::string_view name;
  std::string_view header;
  size_t data_bytes;
  std::string_view message;
};

class BadHeaderTest : public ::testing::TestWithParam<BadHeader> {};

TEST_P(BadHeaderTest, IsOneReadableError) {
  const Result<SafetensorsHeader> header =
      parse_header(testing::safetensors_text(GetParam().header, GetParam().data_bytes));
  ASSERT_FALSE(header.ok());
  EXPECT_EQ(header.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(header.status().message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Safetensors, BadHeaderTest,
    ::testing::Values(
        BadHeader{"Empty", "", 0, "not valid JSON"}, BadHeader{"NotJson", "{]", 0, "JSON"},
        BadHeader{"List", "[1,2]", 0, "not a JSON object"},
        BadHeader{"Unclosed", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})", 4,
                  "JSON"},
        BadHeader{"TrailingText", "{} {}", 0, "where the end of the file is expected"},
        BadHeader{"BadUtf8", "{\"\xff\":{}}", 0, "JSON"},
        BadHeader{"EntryIsNoObject", R"({"a":3})", 0,
                  "tensor \"a\": its description is not an object"},
        BadHeader{"NoDType", R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "has no dtype"},
        BadHeader{"NoShape", R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "has no shape"},
        BadHeader{"NoOffsets", R"({"a":{"dtype":"F32","shape":[1]}})", 4, "has no data_offsets"},
        BadHeader{"UnknownDType", R"({"a":{"dtype":"Q7","shape":[1],"data_offsets":[0,4]}})", 4,
                  "dtype \"Q7\" is not known"},
        BadHeader{"OneOffset", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4,
                  "does not have two numbers"},
        BadHeader{"ThreeOffsets", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4,
                  "more than 2"},
        BadHeader{"NegativeOffset", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4,
                  "data_offsets has \"-4\", which is not an integer of 0 or more"},
        BadHeader{"NegativeDimension",
                  R"({"a":{"dtype":"F32","shape":[-1, 2],"data_offsets":[0,4]}})", 4,
                  "shape has \"-1\""},
        BadHeader{"FractionalDimension",
                  R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4,
                  "shape has \"1.5\""},
        BadHeader{"HugeDimension",
                  R"({"a":{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4]}})", 4,
                  "shape has \"18446744073709551616"},
        BadHeader{"RankSix", R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1],"data_offsets":[0,1]}})",
                  1, "shape has more than 5 numbers"},
        BadHeader{"OffsetsBackwards", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})",
                  4, "run backwards"},
        BadHeader{"Truncated", R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", 12,
                  "reach behind the 12 bytes"},
        BadHeader{"ShapeDisagrees", R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8,
                  "shape [3] of F32 needs 12 bytes, but data_offsets [0, 8] hold 8"},
        BadHeader{"ProductOverflow",
                  R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})",
                  0, "too large for any file"},
        BadHeader{"OverflowBesideZero",
                  R"({"a":{"dtype":"F32","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}})",
                  0, "too large for any file"},
        BadHeader{"HalfAByte", R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1,
                  "needs 2 bytes"},
        BadHeader{"Duplicate",
                  R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                  R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                  2, "tensor \"a\" appears twice"},
        BadHeader{"Overlap",
                  R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                  R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
                  6, "tensor \"b\" begins at byte 2, inside tensor \"a\""},
        BadHeader{"Hole",
                  R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                  R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                  3, "1 bytes before tensor \"b\" belong to no tensor"},
        BadHeader{"TrailingData", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 9,
                  "the last 8 bytes"},
        BadHeader{"MetadataTwice", R"({"__metadata__":{},"__metadata__":{}})", 0, "appears twice"}),
    [](const auto& parameter) { return std::string(parameter.param.name); });

TEST(SafetensorsTest, RefusesALengthItCannotHave) {
  EXPECT_THAT(parse_header("abc").status().message(), HasSubstr("too short"));
  EXPECT_THAT(parse_header(testing::safetensors_text("{}", 0, 3)).status().message(),
              HasSubstr("the header claims 3 bytes, the file has 10: truncated"));
  EXPECT_THAT(parse_header(testing::safetensors_text("{}", 0, 100'000'001)).status().message(),
              HasSubstr("more than the 100000000 that are read"));
  EXPECT_THAT(parse_header(testing::safetensors_text("{}", 0, ~uint64_t{0})).status().message(),
              HasSubstr("more than the 100000000 that are read"));
}

TEST(SafetensorsTest, MetadataMayBeAnything) {
  for (const std::string value :
       {"null", "[1, {\"a\": []}]", "5", "\"pt\"", "true", "{\"a\": 5}"}) {
    const auto header = parse_header(testing::safetensors_text(
        R"({"__metadata__":)" + value + R"(,"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
        1));
    ASSERT_TRUE(header.ok()) << value << header.status().message();
    EXPECT_EQ(header->tensors.size(), 1u);
  }
}

TEST(SafetensorsTest, ErrorsOfBrokenFilesAdviseToDownloadThemAgain) {
  const testing::TemporaryFolder folder;
  const std::string entry = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  for (const std::string& text :
       {testing::safetensors_text(entry, 9), testing::safetensors_text("{]", 0),
        testing::safetensors_text(entry, 1, 100'000'001),
        testing::safetensors_text(R"({"a":{"dtype":"Q7","shape":[1],"data_offsets":[0,1]}})", 1)}) {
    const auto file = SafetensorsFile::open(folder.write("m.safetensors", text));
    ASSERT_FALSE(file.ok());
    EXPECT_THAT(file.status().message(), HasSubstr("m.safetensors: "));
    EXPECT_THAT(file.status().message(), HasSubstr("download the file again"));
  }
}

TEST(SafetensorsTest, SurvivesEveryPrefixOfAFile) {
  const std::string file = testing::safetensors_text(
      R"({"__metadata__":{"f":"pt"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
  ASSERT_TRUE(parse_header(file).ok());
  for (size_t length = 0; length < file.size(); ++length) {
    EXPECT_FALSE(parse_header(std::string_view(file).substr(0, length)).ok()) << length;
  }
}

TEST(SafetensorsTest, RefusesWhatIsNoPlainFile) {
  testing::TemporaryFolder folder;
  EXPECT_EQ(SafetensorsFile::open(folder.path()).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(SafetensorsFile::open(folder.path() / "x").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(SafetensorsFile::open(folder.write("e", "")).status().code(), StatusCode::kDataLoss);
}

TEST(SafetensorsTest, ShowsHostileNamesSafely) {
  const Result<SafetensorsHeader> header = parse_header(
      testing::safetensors_text(R"({"\u001b[31m\u0000)" + std::string(5000, 'x') + R"(":{}})", 0));
  ASSERT_FALSE(header.ok());
  EXPECT_THAT(header.status().message(), HasSubstr("?[31m?xxx"));
  EXPECT_LT(header.status().message().size(), 300u);
}

TEST(SafetensorsTest, ParsesTheLargestPublishedHeader) {
  std::string header = "{";
  constexpr int kTensors = 76000;
  for (int i = 0; i < kTensors; ++i) {
    header += fmt::format(
        R"("model.layers.{}.mlp.experts.{}.gate_proj.weight":{{"dtype":"U8","shape":[1,1],)"
        R"("data_offsets":[{},{}]}},)",
        i / 1600, i % 1600, i, i + 1);
  }
  header.back() = '}';
  const std::string file = testing::safetensors_text(header, kTensors);
  const Result<SafetensorsHeader> parsed = parse_header(file);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->tensors.size(), static_cast<size_t>(kTensors));
}

}  // namespace
}  // namespace heddle::checkpoint
