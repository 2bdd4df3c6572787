// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_header.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/gguf_fixture.h"

namespace heddle::checkpoint {
namespace {

using testing::as_bytes;
using ::testing::ElementsAre;
using testing::GgufWriter;
using ::testing::HasSubstr;

GgufWriter small_gguf() {
  GgufWriter writer;
  writer.text("general.architecture", "qwen3");
  writer.u32("qwen3.block_count", 2);
  writer.f32("qwen3.attention.layer_norm_rms_epsilon", 1e-6f);
  writer.boolean("tokenizer.ggml.add_bos_token", true);
  writer.texts("tokenizer.ggml.tokens", {"a", "", "bc"});
  writer.integers("tokenizer.ggml.token_type", {1, -3});
  writer.numbers("tokenizer.ggml.scores", {0.5f, -1});
  writer.tensor("b", {2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
  writer.tensor("a", {2}, std::vector<float>{7, 8});
  return writer;
}

Status gguf_error(const std::string& file) { return parse_gguf_header(as_bytes(file)).status(); }

TEST(GgufHeader, ReadsMetadataAndTensorsOfBothVersions) {
  for (const uint32_t version : {2u, 3u}) {
    GgufWriter writer = small_gguf();
    writer.set_version(version);
    const std::string file = writer.file();
    const Result<GgufHeader> header = parse_gguf_header(as_bytes(file));
    ASSERT_TRUE(header.ok()) << header.status().to_string();
    const GgufMetadata& metadata = header->metadata;
    EXPECT_EQ(metadata.text("general.architecture").value(), "qwen3");
    EXPECT_EQ(metadata.integer("qwen3.block_count").value(), 2);
    EXPECT_EQ(metadata.number("qwen3.attention.layer_norm_rms_epsilon").value(), 1e-6);
    EXPECT_EQ(metadata.boolean("tokenizer.ggml.add_bos_token").value(), true);
    EXPECT_THAT(metadata.texts("tokenizer.ggml.tokens").value().value(),
                ElementsAre("a", "", "bc"));
    EXPECT_THAT(metadata.integers("tokenizer.ggml.token_type").value().value(), ElementsAre(1, -3));
    EXPECT_THAT(metadata.numbers("tokenizer.ggml.scores").value().value(), ElementsAre(0.5, -1));
    EXPECT_THAT(metadata.integers("qwen3.block_count").value().value(), ElementsAre(2));
    EXPECT_EQ(metadata.text("not there").value(), std::nullopt);
    ASSERT_EQ(header->tensors.size(), 2u);
    EXPECT_EQ(header->tensors[0].name, "a");
    EXPECT_EQ(header->tensors[1].shape, Shape({2, 3}));
    EXPECT_EQ(header->tensors[1].type->name, "F32");
    EXPECT_EQ(header->tensors[1].begin, 0);
    EXPECT_EQ(header->tensors[0].begin, 32);  // after 24 bytes and their padding
    EXPECT_EQ(header->data_offset % 32, 0);
  }
}

TEST(GgufHeader, ValuesOfAnotherTypeNameTheKeyAndTheValue) {
  const std::string file = small_gguf().file();
  const GgufHeader header = parse_gguf_header(as_bytes(file)).value();
  EXPECT_EQ(header.metadata.integer("general.architecture").status().message(),
            "\"general.architecture\" is \"qwen3\", an integer is needed");
  EXPECT_THAT(header.metadata.text("tokenizer.ggml.tokens").status().message(),
              HasSubstr("an array of 3 string, a string is needed"));
  EXPECT_FALSE(header.metadata.texts("qwen3.block_count").ok());
  EXPECT_FALSE(header.metadata.boolean("qwen3.block_count").ok());
}

TEST(GgufHeader, EveryTruncationIsAnErrorAndNeverACrash) {
  const std::string file = small_gguf().file();
  ASSERT_TRUE(gguf_error(file).ok());
  // A file may end without the padding after its last tensor, but not within that tensor.
  const size_t last_byte = file.size() - 24;
  for (size_t length = 0; length < last_byte; ++length) {
    EXPECT_FALSE(gguf_error(file.substr(0, length)).ok()) << length;
  }
  EXPECT_TRUE(gguf_error(file.substr(0, last_byte)).ok());
  EXPECT_THAT(gguf_error(file.substr(0, 200)).message(), HasSubstr("truncated; download it again"));
}

TEST(GgufHeader, ClaimsOfAGigabyteAllocateNothing) {
  constexpr uint64_t kMany = 1'000'000'000;
  GgufWriter entries = small_gguf();
  entries.claim(0, kMany);
  EXPECT_THAT(gguf_error(entries.file()).message(),
              HasSubstr("claims 1000000007 metadata entries"));
  GgufWriter tensors = small_gguf();
  tensors.claim(kMany, 0);
  EXPECT_THAT(gguf_error(tensors.file()).message(), HasSubstr("claims 1000000002 tensors"));
  for (const uint32_t element : {0u, 4u, 6u, 7u, 8u, 10u}) {
    GgufWriter array = small_gguf();
    array.raw("x", 9, GgufWriter::bytes_of(element) + GgufWriter::bytes_of(kMany << 20));
    EXPECT_THAT(gguf_error(array.file()).message(), HasSubstr("\"x\"")) << element;
  }
  GgufWriter string = small_gguf();
  string.raw("x", 8, GgufWriter::bytes_of(~uint64_t{0}));
  EXPECT_THAT(gguf_error(string.file()).message(), HasSubstr("claims 18446744073709551615 bytes"));
  GgufWriter data = small_gguf();
  data.tensor_at("c", {1 << 20, 1 << 20, 1 << 20}, testing::kGgufF32, 64);
  EXPECT_THAT(gguf_error(data.file()).message(), HasSubstr("tensor \"c\""));
  GgufWriter overflow = small_gguf();
  overflow.tensor_at("c", {int64_t{1} << 40, int64_t{1} << 40}, testing::kGgufQ8, 64);
  EXPECT_THAT(gguf_error(overflow.file()).message(), HasSubstr("tensor \"c\""));
}

TEST(GgufHeader, OtherVersionsAndByteOrdersAreNamed) {
  const auto of_version = [](uint32_t version) {
    GgufWriter writer = small_gguf();
    writer.set_version(version);
    return gguf_error(writer.file());
  };
  EXPECT_EQ(of_version(1).code(), StatusCode::kUnimplemented);
  EXPECT_THAT(of_version(1).message(), HasSubstr("GGUF version 1,"));
  EXPECT_THAT(of_version(0x03000000).message(), HasSubstr("big-endian"));
  EXPECT_THAT(of_version(4).message(),
              HasSubstr("GGUF version 4; convert the file to version 2 or 3"));
  EXPECT_THAT(gguf_error("PK\3\4 and more than that").message(), HasSubstr("no GGUF file"));
  EXPECT_THAT(gguf_error("").message(), HasSubstr("no GGUF file"));
}

TEST(GgufHeader, AlignmentsThatAreNoPowersOfTwoAreRefused) {
  for (const uint32_t alignment : {0u, 24u, 1u << 30}) {
    GgufWriter writer = small_gguf();
    writer.u32("general.alignment", alignment);
    EXPECT_THAT(gguf_error(writer.file()).message(),
                HasSubstr("general.alignment is " + std::to_string(alignment)));
  }
  GgufWriter wide;
  wide.set_alignment(128);
  wide.tensor("a", {1}, std::vector<float>{1});
  wide.tensor("b", {1}, std::vector<float>{2});
  const std::string file = wide.file();
  const GgufHeader header = parse_gguf_header(as_bytes(file)).value();
  EXPECT_EQ(header.tensors[1].begin, 128);
  EXPECT_EQ(header.data_offset % 128, 0);
}

TEST(GgufHeader, TensorsLieApartAlignedAndInTheFile) {
  const auto with_tensor = [](const Shape& shape, uint32_t type, uint64_t offset) {
    GgufWriter writer = small_gguf();
    writer.tensor_at("c", shape, type, offset);
    return gguf_error(writer.file()).message();
  };
  EXPECT_THAT(with_tensor({2}, testing::kGgufF32, 4), HasSubstr("no multiple of the alignment"));
  EXPECT_THAT(with_tensor({2}, testing::kGgufF32, 0), HasSubstr("inside tensor"));
  EXPECT_THAT(with_tensor({2}, testing::kGgufF32, 64), HasSubstr("which has 64: truncated"));
  EXPECT_THAT(with_tensor({2}, testing::kGgufF32, uint64_t{1} << 63), HasSubstr("truncated"));
  EXPECT_THAT(with_tensor({1, 48}, testing::kGgufQ8, 64),
              HasSubstr("no whole blocks of 32 (Q8_0)"));
  EXPECT_THAT(with_tensor({0}, testing::kGgufF32, 64), HasSubstr("dimension 0 is 0"));
  EXPECT_THAT(with_tensor({1, 1, 1, 1, 1}, testing::kGgufF32, 64), HasSubstr("5 dimensions"));
  EXPECT_THAT(with_tensor({2}, 777, 64), HasSubstr("its type is 777, which this build does not"));
}

TEST(GgufHeader, NamesAndKeysAppearOnce) {
  GgufWriter keys = small_gguf();
  keys.u32("qwen3.block_count", 3);
  EXPECT_THAT(gguf_error(keys.file()).message(), HasSubstr("\"qwen3.block_count\" twice"));
  GgufWriter names = small_gguf();
  names.tensor("a", {2}, std::vector<float>{7, 8});
  EXPECT_THAT(gguf_error(names.file()).message(), HasSubstr("tensor \"a\" appears twice"));
}

TEST(GgufHeader, ValuesOfUnknownTypesAndArraysOfArraysAreRefused) {
  GgufWriter unknown = small_gguf();
  unknown.raw("x", 13, "");
  EXPECT_THAT(gguf_error(unknown.file()).message(), HasSubstr("\"x\" has a value of type 13"));
  GgufWriter nested = small_gguf();
  nested.raw("x", 9, GgufWriter::bytes_of(uint32_t{9}) + GgufWriter::bytes_of(uint64_t{1}));
  EXPECT_THAT(gguf_error(nested.file()).message(), HasSubstr("\"x\" is an array of arrays"));
}

}  // namespace
}  // namespace heddle::checkpoint
