// SPDX-License-Identifier: Apache-2.0
// GGUF files at the command line: a file that is wrong in one way ends every command with a message
// that names the thing, the value and the remedy; `heddle quantize` makes a folder of a good one.
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "chat/chat_template.h"
#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/generation_config.h"
#include "checkpoint/gguf_fixture.h"
#include "support/gguf_twin.h"
#include "tokenizer/tokenizer.h"
#include "tools/cli/subcommand_fixture.h"

namespace heddle::tools {
namespace {

namespace fs = std::filesystem;
using checkpoint::testing::GgufWriter;
using heddle::testing::gguf_form;
using heddle::testing::GgufTwin;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct WrongGguf {
  const char* name;
  std::function<std::string()> file;  // its bytes
  std::vector<const char*> wanted;    // parts of the message
};

void PrintTo(const WrongGguf& gguf, std::ostream* out) { *out << gguf.name; }

// A header and one matrix, which `change` makes wrong.
std::string wrong_file(const std::function<void(GgufWriter&)>& change) {
  GgufWriter writer;
  writer.text("general.architecture", "llama");
  change(writer);
  writer.tensor("token_embd.weight", {2, 32}, std::vector<float>(64, 1.0f));
  return writer.file();
}

std::string first_bytes(size_t count) {
  return wrong_file([](GgufWriter&) {}).substr(0, count);
}

// The sizes of a small model, and a tokenizer that is `pre`.
void write_small_llama(GgufWriter& writer, const char* pre) {
  for (const char* key : {"block_count", "attention.head_count"}) {
    writer.u32("llama." + std::string(key), 2);
  }
  for (const char* key : {"embedding_length", "feed_forward_length", "context_length"}) {
    writer.u32("llama." + std::string(key), 32);
  }
  writer.text("tokenizer.ggml.model", "gpt2");
  writer.text("tokenizer.ggml.pre", pre);
  writer.texts("tokenizer.ggml.tokens", {"a", "b"});
  writer.texts("tokenizer.ggml.merges", {});
}

const WrongGguf kWrongGgufs[] = {
    {"Truncated", [] { return first_bytes(360); }, {"token_embd.weight", "download it again"}},
    {"CutInTheHeader",
     [] { return first_bytes(54); },
     {"the file of 54 bytes ends within", "general.architecture", "download it again"}},
    {"Overlapping",
     [] {
       return wrong_file([](GgufWriter& writer) {
         writer.tensor_at("output.weight", {2, 32}, checkpoint::testing::kGgufF32, 0);
       });
     },
     {"output.weight", "begins at byte 0", "inside tensor", "token_embd.weight"}},
    {"AbsurdCounts",
     [] { return wrong_file([](GgufWriter& writer) { writer.claim(uint64_t{1} << 60, 0); }); },
     {"the header claims", "1152921504606846977 tensors", "download it again"}},
    {"OneGigabyteOfClaims",
     [] {
       return wrong_file([](GgufWriter& writer) {
         writer.raw("a.key", 8, GgufWriter::bytes_of(uint64_t{1} << 30));
       });
     },
     {"a.key", "claims 1073741824 bytes", "download it again"}},
    {"WrongAlignment",
     [] { return wrong_file([](GgufWriter& writer) { writer.u32("general.alignment", 24); }); },
     {"general.alignment is 24", "a power of two"}},
    {"OddOffset",
     [] {
       return wrong_file([](GgufWriter& writer) {
         writer.tensor_at("output.weight", {2, 32}, checkpoint::testing::kGgufF32, 4);
       });
     },
     {"output.weight", "its offset 4 is no multiple of the alignment, 32"}},
    {"UnknownType",
     [] {
       return wrong_file([](GgufWriter& writer) {
         writer.tensor("output.weight", {2, 32}, 99, std::vector<std::byte>(64));
       });
     },
     {"output.weight", "its type is 99", "Q4_K_M"}},
    {"UnknownPreTokenizer",
     [] { return wrong_file([](GgufWriter& writer) { write_small_llama(writer, "viking"); }); },
     {"tokenizer.ggml.pre is 'viking'", "safetensors files"}},
    {"BigEndian",
     [] { return wrong_file([](GgufWriter& writer) { writer.set_version(0x03000000); }); },
     {"a big-endian file", "gguf-convert-endian FILE little"}},
    {"Version1",
     [] { return wrong_file([](GgufWriter& writer) { writer.set_version(1); }); },
     {"GGUF version 1", "download a newer conversion"}},
    {"MissingSplit",
     [] {
       return wrong_file([](GgufWriter& writer) {
         writer.u16("split.count", 3);
         writer.u16("split.no", 0);
       });
     },
     {"part 2 of 3", "model-00002-of-00003.gguf", "download it into the same folder"}},
    {"RefusedQuantisation",
     [] {
       return wrong_file([](GgufWriter& writer) {
         write_small_llama(writer, "qwen2");
         writer.tensor("output.weight", {1, 256}, 10, std::vector<std::byte>(84));
       });
     },
     {"output.weight", "is stored as Q2_K", "Q4_K_M"}},
    {"UnknownArchitecture",
     [] {
       GgufWriter writer;
       writer.text("general.architecture", "falcon");
       write_small_llama(writer, "qwen2");
       return writer.file();
     },
     {"architecture \"falcon\" is not served", "safetensors files"}},
};

class WrongGgufTest : public ::testing::TestWithParam<WrongGguf> {};

TEST_P(WrongGgufTest, EndsEveryCommandWithTheThingTheValueAndTheRemedy) {
  const checkpoint::testing::TemporaryFolder folder;
  const std::string name = "model-00001-of-00003.gguf";
  folder.write(name, GetParam().file());
  const std::string path = (folder.path() / name).string();
  for (const Subcommand* command : {&kServe, &kInspect, &kQuantize}) {
    // Weights and words are none of what inspect reads.
    const std::string case_name = GetParam().name;
    const bool needs_model =
        case_name == "UnknownPreTokenizer" || case_name == "RefusedQuantisation";
    if (command == &kInspect && needs_model) continue;
    SCOPED_TRACE(command->name);
    std::vector<std::string> arguments = {path};
    if (command == &kServe) arguments.insert(arguments.end(), {"--port", "0", "--device", "cpu"});
    if (command == &kQuantize) arguments.push_back((folder.path() / "out").string());
    const Outcome outcome = run_captured(*command, std::move(arguments));
    EXPECT_NE(outcome.exit_code, 0);
    for (const char* part : GetParam().wanted) EXPECT_THAT(outcome.errors, HasSubstr(part));
    EXPECT_FALSE(fs::exists(folder.path() / "out"));
  }
}

INSTANTIATE_TEST_SUITE_P(Every, WrongGgufTest, ::testing::ValuesIn(kWrongGgufs),
                         [](const auto& test) { return std::string(test.param.name); });

nlohmann::json quantised_llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", 320},
          {"hidden_size", 256},
          {"intermediate_size", 512},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 512},
          {"tie_word_embeddings", false},
          {"rope_theta", 10000.0},
          {"rms_norm_eps", 1e-6}};
}

std::string quantised(const fs::path& model, const fs::path& output, const char* format) {
  ::testing::internal::CaptureStdout();
  const Outcome outcome =
      run_captured(kQuantize, {model.string(), output.string(), "--format", format});
  ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  std::ifstream file(output / "model.safetensors", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

GgufTwin twin_of(const char* form) {
  return {quantised_llama(), "llama", [form](std::string_view) { return gguf_form(form); }};
}

void add_tokenizer(GgufTwin& twin) {
  GgufWriter& writer = twin.writer();
  writer.text("tokenizer.ggml.model", "gpt2");
  writer.text("tokenizer.ggml.pre", "llama-bpe");
  writer.texts("tokenizer.ggml.tokens", {"a", "b", "ab", "Ġ", "<|im_end|>", "<think>", "[PAD6]"});
  writer.integers("tokenizer.ggml.token_type", {1, 1, 1, 1, 3, 4, 5});
  writer.texts("tokenizer.ggml.merges", {"a b"});
  writer.u32("tokenizer.ggml.bos_token_id", 4);
  writer.u32("tokenizer.ggml.eos_token_id", 4);
  writer.text("tokenizer.chat_template", "{{ messages[0].content }}");
  writer.f32("general.sampling.temp", 0.7F);
  twin.write_gguf();
}

TEST(QuantizeGguf, GivesWhatTheSameModelInTheHubsLayoutGives) {
  GgufTwin twin = twin_of("F32");
  add_tokenizer(twin);
  const checkpoint::testing::TemporaryFolder folder;
  for (const char* format : {"int8", "awq", "fp8-block"}) {
    SCOPED_TRACE(format);
    const std::string of_hub = quantised(twin.hub(), folder.path() / format / "hub", format);
    const std::string of_gguf = quantised(twin.gguf(), folder.path() / format / "gguf", format);
    EXPECT_FALSE(of_hub.empty());
    EXPECT_EQ(of_hub, of_gguf);
  }
}

TEST(QuantizeGguf, RoundsBlocksAgainAndWritesTheTokenizer) {
  GgufTwin twin = twin_of("Q4_K");
  add_tokenizer(twin);
  const checkpoint::testing::TemporaryFolder folder;
  const fs::path output = folder.path() / "out";
  EXPECT_FALSE(quantised(twin.gguf(), output, "int8").empty());
  const auto config = models::load_config(output);
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->architecture, "LlamaForCausalLM");
  EXPECT_THAT(config->eos_token_ids, ElementsAre(4));
  EXPECT_EQ(checkpoint::load_generation_config(output, *config)->temperature, 0.7);
  const auto stored = tokenizer::load_tokenizer(twin.gguf());
  const auto written = tokenizer::load_tokenizer(output);
  ASSERT_TRUE(written.ok()) << written.status().to_string();
  for (const char* text : {"ab a", "a<|im_end|>b<think> "}) {
    EXPECT_EQ((*written)->encode(text).value(), (*stored)->encode(text).value()) << text;
  }
  EXPECT_EQ((*written)->eos_token(), (*stored)->eos_token());
  const auto conversation = nlohmann::ordered_json::parse(R"([{"role": "user", "content": "Hi"}])");
  const auto chat = chat::ChatTemplate::load(output);
  ASSERT_TRUE(chat.ok()) << chat.status().to_string();
  EXPECT_EQ(chat->render(conversation, nullptr, true, nullptr).value(), "Hi");
}

}  // namespace
}  // namespace heddle::tools
