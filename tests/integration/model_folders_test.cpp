// SPDX-License-Identifier: Apache-2.0
// Folders that are wrong in one way: each ends the start with a message that names the thing, the
// value and what helps. And folders that look odd, and start all the same.
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <heddle/engine.h>

#include "chat/chat_template.h"
#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_fixture.h"
#include "core/log.h"
#include "models/registry.h"
#include "support/test_data.h"
#include "tokenizer/tokenizer.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// heddle-tiny by links, of which a test replaces files.
class ModelFolder {
 public:
  ModelFolder() {
    for (const auto& entry :
         fs::directory_iterator(testing::repository_path("models/heddle-tiny"))) {
      fs::create_symlink(fs::canonical(entry.path()), path() / entry.path().filename());
    }
  }

  [[nodiscard]] const fs::path& path() const { return folder_.path(); }

  [[nodiscard]] std::string text(std::string_view name) const {
    std::ifstream file(path() / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  void remove(std::string_view name) const { fs::remove(path() / name); }

  void write(std::string_view name, std::string_view text) const {
    remove(name);
    folder_.write(name, text);
  }

  // As the Hugging Face cache has a file whose blob was deleted.
  void break_link(std::string_view name) const {
    remove(name);
    fs::create_symlink("../../blobs/4d7a", path() / name);
  }

  // In one of its text files.
  void replace(std::string_view name, std::string_view from, std::string_view to) const {
    std::string changed = text(name);
    const size_t at = changed.find(from);
    HEDDLE_CHECK(at != std::string::npos);
    changed.replace(at, from.size(), to);
    write(name, changed);
  }

  // A key in front of all others of a JSON file.
  void insert(std::string_view name, std::string_view members) const {
    replace(name, "{", std::string("{") + std::string(members) + ", ");
  }

  void remove_all() const {
    for (const auto& entry : fs::directory_iterator(path())) fs::remove_all(entry.path());
  }

  [[nodiscard]] Result<std::unique_ptr<Engine>> start() const {
    return Engine::create({.model_dir = path(),
                           .device = "cpu",
                           .num_threads = 1,
                           .max_total_tokens = 1024,
                           .speculative = {.algorithm = DraftAlgorithm::kNone}});
  }

 private:
  checkpoint::testing::TemporaryFolder folder_;
};

constexpr std::string_view kConfig = "config.json";
constexpr std::string_view kTokenizer = "tokenizer.json";
constexpr std::string_view kTokenizerConfig = "tokenizer_config.json";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::string_view kShard = "model-00002-of-00002.safetensors";
constexpr std::string_view kPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 11422654\n";

struct WrongFolder {
  const char* name;
  std::function<void(const ModelFolder&)> damage;
  std::vector<const char*> wanted;  // parts of the message
};

void PrintTo(const WrongFolder& folder, std::ostream* out) { *out << folder.name; }

class WrongFolderTest : public ::testing::TestWithParam<WrongFolder> {};

TEST_P(WrongFolderTest, IsNamedWithItsRemedy) {
  const ModelFolder folder;
  GetParam().damage(folder);
  const auto engine = folder.start();
  ASSERT_FALSE(engine.ok());
  for (const char* part : GetParam().wanted) {
    EXPECT_THAT(engine.status().message(), HasSubstr(part));
  }
  EXPECT_THAT(engine.status().message(), AnyOf(HasSubstr("; "), HasSubstr("download")))
      << "no remedy";
}

const WrongFolder kWrongFolders[] = {
    {"ConfigPointer",
     [](const auto& f) { f.write(kConfig, kPointer); },
     {"config.json: ", "Git LFS pointer to 11422654 bytes", "git lfs pull"}},
    {"TokenizerPointer",
     [](const auto& f) { f.write(kTokenizer, kPointer); },
     {"tokenizer.json: ", "Git LFS pointer to 11422654 bytes", "git lfs pull"}},
    {"ShardPointer",
     [](const auto& f) { f.write(kShard, kPointer); },
     {"model-00002-of-00002.safetensors: ", "Git LFS pointer to 11422654 bytes", "git lfs pull"}},
    {"ConfigComma",
     [](const auto& f) { f.replace(kConfig, "\"qwen3_next\",", "\"qwen3_next\",,"); },
     {"config.json: ",
      "line 5, column 29: ',' where a key in double quotes is expected; correct the line"}},
    {"ConfigCut",
     [](const auto& f) { f.write(kConfig, f.text(kConfig).substr(0, 300)); },
     {"config.json: ", "line ", "truncated, or not fully downloaded; download it again"}},
    {"WrongType",
     [](const auto& f) { f.replace(kConfig, "\"hidden_size\": 256", "\"hidden_size\": \"wide\""); },
     {"config.json: hidden_size is \"wide\", not an integer; write a whole number"}},
    {"NotANumber",
     [](const auto& f) { f.replace(kConfig, "\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": NaN"); },
     {"config.json: rms_norm_eps is NaN, outside 1e-30 to 1; write the model's value"}},
    {"TooLarge",
     [](const auto& f) {
       f.replace(kConfig, "\"vocab_size\": 1536",
                 "\"vocab_size\": 1000000000000000019884624838656");
     },
     {"config.json: vocab_size is 1", "not an integer; write a whole number"}},
    {"EndTokenTooLarge",
     [](const auto& f) {
       f.replace(kConfig, "\"eos_token_id\": 1427", "\"eos_token_id\": 1000000000");
     },
     {"config.json: eos_token_id is 1000000000, above 16777216"}},
    {"NoLayers",
     [](const auto& f) {
       f.replace(kConfig, "\"num_hidden_layers\": 8", "\"num_hidden_layers\": 0");
     },
     {"config.json: num_hidden_layers is 0, outside 1 to 1024; write the model's value, or "
      "download the file again"}},
    {"TooManyHeads",
     [](const auto& f) {
       f.replace(kConfig, "\"num_attention_heads\": 4", "\"num_attention_heads\": 4097");
     },
     {"config.json: num_attention_heads is 4097, outside 1 to 4096; write the model's value"}},
    {"TokenIdTooLarge",
     [](const auto& f) {
       f.replace(kTokenizer, "\"vocab\":{", "\"vocab\":{\"zzz\": 99999999999,");
     },
     {"tokenizer.json: ", "'zzz' has the id 99999999999, outside 0 to ",
      "; download the file again"}},
    {"TokenTwice",
     [](const auto& f) { f.replace(kTokenizer, "\"vocab\":{", "\"vocab\":{\"zzz\": 5,"); },
     {"tokenizer.json: ", "two tokens have the id 5", "; download the file again"}},
    {"MissingKey",
     [](const auto& f) { f.replace(kConfig, "\"vocab_size\": 1536,", ""); },
     {"config.json: vocab_size is missing; download the file again"}},
    {"UnknownModel",
     [](const auto& f) {
       f.replace(kConfig, "Qwen3NextForCausalLM", "StrangeForCausalLM");
       f.replace(kConfig, "\"qwen3_next\"", "\"strange\"");
     },
     {"config.json: architecture \"StrangeForCausalLM\" is not served", "served are"}},
    {"UnnamedModel",
     [](const auto& f) {
       f.replace(kConfig, "\"Qwen3NextForCausalLM\"", "");
       f.replace(kConfig, "\"model_type\": \"qwen3_next\",", "");
     },
     {"config.json: architectures is missing or empty and there is no model_type",
      "write \"architectures\""}},
    {"RopeType",
     [](const auto& f) {
       f.replace(kConfig, "\"rope_scaling\": null",
                 "\"rope_scaling\": {\"rope_type\": \"dynamic\"}");
     },
     {"config.json: rope_type is \"dynamic\"", "served are default"}},
    {"QuantMethod",
     [](const auto& f) {
       f.insert(kConfig, R"("quantization_config": {"quant_method": "bitsandbytes"})");
     },
     {"config.json: quantization_config: quant_method is \"bitsandbytes\"; served are awq"}},
    {"MissingShard",
     [](const auto& f) { f.remove(kShard); },
     {"index.json: shard \"model-00002-of-00002.safetensors\", which should hold tensor",
      "is missing; download it again"}},
    {"MissingIndex",
     [](const auto& f) { f.remove(kIndex); },
     {"has \"model-00001-of-00002.safetensors\" but no model.safetensors.index.json",
      "download the index, too"}},
    {"PytorchOnly",
     [](const auto& f) {
       for (const auto name :
            {kIndex, kShard, std::string_view("model-00001-of-00002.safetensors")})
         f.remove(name);
       f.write("pytorch_model.bin", "x");
     },
     {"has no model.safetensors, only \"pytorch_model.bin\"", "save_pretrained"}},
    {"GgufCut",
     [](const auto& f) {
       f.remove_all();
       f.write("tiny-q4_k_m.gguf", "GGUF");
     },
     {"tiny-q4_k_m.gguf: it does not begin with \"GGUF\" and a version", "download it again"}},
    {"AdapterOnly",
     [](const auto& f) {
       f.remove_all();
       f.write("adapter_config.json", "{}");
     },
     {"an adapter without its model", "heddle merge MODEL"}},
    {"Empty", [](const auto& f) { f.remove_all(); }, {"is empty", "hf download"}},
    {"FolderOfFolders",
     [](const auto& f) {
       f.remove_all();
       fs::create_directories(f.path() / "tiny");
       f.write("tiny/config.json", "{}");
     },
     {"is the folder of a model's folder", "/tiny"}},
    {"CutShard",
     [](const auto& f) {
       const std::string text = f.text(kShard);
       f.write(kShard, std::string_view(text).substr(0, text.size() / 2));
     },
     {"model-00002-of-00002.safetensors: tensor \"", "truncated, or not fully downloaded"}},
    {"ShardPage",
     [](const auto& f) { f.write(kShard, "<!DOCTYPE html>"); },
     {"model-00002-of-00002.safetensors: ", "HTML", "download it again"}},
    {"ShardError",
     [](const auto& f) { f.write(kShard, R"({"error": "Invalid username or password."})"); },
     {"model-00002-of-00002.safetensors: the file is no safetensors file but a text, \"{",
      "Invalid username or password", "download it again"}},
    {"ShardZip",
     [](const auto& f) { f.write(kShard, std::string_view("PK\x03\x04\0\0\b\b\0", 9)); },
     {"model-00002-of-00002.safetensors: the file is a PyTorch file or another zip archive",
      "download the model's safetensors files"}},
    {"ShardCompressed",
     [](const auto& f) { f.write(kShard, std::string_view("\x1F\x8B\b\0\0\0\0\0\0\x03", 10)); },
     {"model-00002-of-00002.safetensors: the file is compressed or an archive", "unpack it"}},
    {"ShardZeros",
     [](const auto& f) { f.write(kShard, std::string(4096, '\0')); },
     {"model-00002-of-00002.safetensors: the file begins with zeros only", "download it again"}},
    {"ConfigLink",
     [](const auto& f) { f.break_link(kConfig); },
     {"config.json is a link to ",
      "blobs/4d7a, which does not exist; download it again: `hf download OWNER/MODEL config.json"}},
    {"ShardLink",
     [](const auto& f) { f.break_link(kShard); },
     {"model-00002-of-00002.safetensors is a link to ", "blobs/4d7a, which does not exist",
      "`hf download OWNER/MODEL model-00002-of-00002.safetensors --local-dir "}},
    {"IndexLink",
     [](const auto& f) { f.break_link(kIndex); },
     {"model.safetensors.index.json is a link to ",
      "blobs/4d7a, which does not exist; download it again"}},
    {"TokenizerLink",
     [](const auto& f) { f.break_link(kTokenizer); },
     {"tokenizer.json is a link to ", "blobs/4d7a, which does not exist; download it again"}},
    {"AttentionInterval",
     [](const auto& f) {
       f.replace(kConfig, "\"full_attention_interval\": 4", "\"full_attention_interval\": 0");
     },
     {"config.json: full_attention_interval is 0, which divides no layer's number; write 1"}},
    {"MakersWeights",
     [](const auto& f) {
       for (const auto name :
            {kIndex, kShard, std::string_view("model-00001-of-00002.safetensors")})
         f.remove(name);
       f.write("consolidated.safetensors", "x");
     },
     {"has no model.safetensors, only \"consolidated.safetensors\"",
      "download the model's safetensors files in the layout of Hugging Face"}},
    {"OtherName",
     [](const auto& f) {
       f.remove(kIndex);
       f.remove(kShard);
       f.remove("model-00001-of-00002.safetensors");
       f.write("tiny.safetensors", "x");
     },
     {"has \"tiny.safetensors\" but no model.safetensors; rename the file to that"}},
    {"TypeName",
     [](const auto& f) {
       f.replace(kConfig, "\"torch_dtype\": \"bfloat16\"", "\"torch_dtype\": [16]");
     },
     {"config.json: torch_dtype is [16], not the name of a type; write \"bfloat16\""}},
    {"IndexValue",
     [](const auto& f) { f.replace(kIndex, "\"model-00001-of-00002.safetensors\"", "5"); },
     {"index.json: weight_map[", "is 5; expected the plain name of a file"}},
    {"GenerationType",
     [](const auto& f) { f.replace("generation_config.json", "0.7", "\"hot\""); },
     {"generation_config.json: temperature is \"hot\", not a number; write one of 0 to 100"}},
    {"GenerationEnd",
     [](const auto& f) { f.write("generation_config.json", R"({"eos_token_id": [1427, 99999]})"); },
     {"generation_config.json: eos_token_id has 99999, but the model's vocab_size is 1536; "
      "download both"}},
    {"VocabularyId",
     [](const auto& f) { f.replace(kTokenizer, "\"vocab\":{", "\"vocab\":{\"zzz\": \"three\","); },
     {"tokenizer.json: model.vocab['zzz'] is \"three\"; expected a 64-bit integer"}},
    {"TokenizerKind",
     [](const auto& f) { f.write(kTokenizer, R"({"model": {"type": "Unigram"}})"); },
     {"tokenizer.json: model.type is 'Unigram'; only BPE is supported"}},
    {"NoTokenizer",
     [](const auto& f) { f.remove(kTokenizer); },
     {"has no tokenizer.json", "copy the tokenizer files of the model there"}},
    {"TiktokenOfOneToken",
     [](const auto& f) {
       f.remove(kTokenizer);
       f.write("tiktoken.model", "IQ== 0\n");
     },
     {"tiktoken.model: the byte 0x00 is not a token; download the file again"}},
    {"TiktokenAsSentencePiece",
     [](const auto& f) {
       f.remove(kTokenizer);
       f.write("tokenizer.model", "IQ== 0\nIg== 1\n");
     },
     {"tokenizer.model is a tiktoken vocabulary", "put the tokenizer.json"}},
    {"TekkenOnly",
     [](const auto& f) {
       f.remove(kTokenizer);
       f.write("tekken.json", "{}");
     },
     {"has only a tekken.json", "put the tokenizer.json of the same model beside it"}},
    {"VocabularyWithoutMerges",
     [](const auto& f) {
       f.remove(kTokenizer);
       f.write("vocab.json", "{}");
     },
     {"has only a vocab.json, which is of no use without its merges.txt",
      "put the tokenizer.json"}},
    {"TokenMapRole",
     [](const auto& f) { f.write("special_tokens_map.json", R"({"pad_token": ["<pad>"]})"); },
     {"special_tokens_map.json: pad_token is [\"<pad>\"]; expected a string"}},
    {"TokenizerRole",
     [](const auto& f) { f.write(kTokenizerConfig, "{\n \"eos_token\": 7}"); },
     {"tokenizer_config.json: eos_token is 7; expected a string"}},
    {"TokenizerConfigLine",
     [](const auto& f) { f.write(kTokenizerConfig, "{\n \"eos_token\": }"); },
     {"tokenizer_config.json: ",
      "line 2, column 15: '}' where a value is expected; correct the line"}},
    {"ConfigFolder",
     [](const auto& f) {
       f.remove(kConfig);
       fs::create_directories(f.path() / kConfig);
     },
     {"config.json is not a plain file; put the model's file in its place"}},
    {"ShardTail",
     [](const auto& f) { f.write(kShard, f.text(kShard) + "x"); },
     {"model-00002-of-00002.safetensors: the last 1 bytes of the file belong to no tensor",
      "download the file again"}},
    {"QuantMethodMissing",
     [](const auto& f) { f.write("quantize_config.json", R"({"bits": 4})"); },
     {"quantize_config.json: quantization_config: quant_method is missing; served are awq"}},
};

INSTANTIATE_TEST_SUITE_P(ModelFolders, WrongFolderTest, ::testing::ValuesIn(kWrongFolders),
                         [](const auto& test) { return std::string(test.param.name); });

// Values that nobody reads, other names for the same thing, and what only Python's json reads.
TEST(ModelFolderTest, StartsWithWhatTransformersWrites) {
  constexpr std::string_view kOdd =
      R"("model_max_length": 1000000000000000019884624838656, "extra": [NaN, {"n": [-Infinity]}],
         "exponent": 1e999, "lone": "\ud83d", "twice": 1, "twice": {"deep": 99999999999999999999})";
  const ModelFolder folder;
  for (const auto name : {kConfig, kTokenizer, kTokenizerConfig, kIndex,
                          std::string_view("generation_config.json")}) {
    folder.insert(name, kOdd);
  }
  folder.replace(kConfig, "\"Qwen3NextForCausalLM\"", "");
  folder.replace(kConfig, "\"hidden_size\": 256", "\"hidden_size\": 256.0");
  folder.write("special_tokens_map.json", std::string("\xEF\xBB\xBF{") + std::string(kOdd) + "}");
  const auto engine = folder.start();
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_TRUE(chat::ChatTemplate::load(folder.path()).ok());
}

TEST(ModelFolderTest, NamesAPathThatTheShellDidNotExpand) {
  const auto engine = Engine::create({.model_dir = "~/no-such-model", .device = "cpu"});
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(engine.status().message(),
              HasSubstr("there is no folder ~/no-such-model: the shell has not expanded its ~"));
}

// As in transformers, where do_sample decides only how a token is chosen.
TEST(ModelFolderTest, PenalisesRepetitionWithoutSampling) {
  const ModelFolder folder;
  folder.write("generation_config.json",
               R"({"do_sample": false, "temperature": 0.7, "repetition_penalty": 1.25})");
  const auto engine = folder.start();
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const SamplingParams& defaults = (*engine)->model_info().default_sampling;
  EXPECT_EQ(defaults.temperature, 0);
  EXPECT_EQ(defaults.repetition_penalty, 1.25F);
}

struct OddFolder {
  const char* name;
  std::function<void(const ModelFolder&)> change;
  std::vector<const char*> logged;  // parts of the lines of the log
};

void PrintTo(const OddFolder& folder, std::ostream* out) { *out << folder.name; }

class OddFolderTest : public ::testing::TestWithParam<OddFolder> {
 protected:
  void SetUp() override { set_log_level(LogLevel::kInfo); }  // others turn it off
};

TEST_P(OddFolderTest, StartsAndSaysWhatIsUsed) {
  const ModelFolder folder;
  GetParam().change(folder);
  ::testing::internal::CaptureStderr();
  const auto engine = folder.start();
  const auto chat_template = chat::ChatTemplate::load(folder.path());
  const std::string lines = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  ASSERT_TRUE(chat_template.ok()) << chat_template.status().message();
  for (const char* part : GetParam().logged) {
    const size_t first = lines.find(part);
    ASSERT_NE(first, std::string::npos) << part << "\nis not in\n" << lines;
    EXPECT_EQ(lines.find(part, first + 1), std::string::npos) << "twice in\n" << lines;
  }
}

constexpr std::string_view kGeneration = "generation_config.json";

const OddFolder kOddFolders[] = {
    {"TensorsInTwoShards",
     [](const auto& f) {
       f.write("model-00003-of-00002.safetensors", f.text("model-00001-of-00002.safetensors"));
       f.replace(kIndex, "model-00001-of-00002", "model-00003-of-00002");
     },
     {"of the tensors are in several shards; the last one counts",
      "\"lm_head.weight\", is in "
      "\"model-00001-of-00002.safetensors\" and \"model-00003-of-00002.safetensors\"; that of "
      "\"model-00003-of-00002.safetensors\" is used"}},
    {"ShardNames",
     [](const auto& f) { f.replace(kIndex, "\"model-00001", "\"./model-00001"); },
     {}},
    {"MakersWeightsBeside",
     [](const auto& f) { f.write("consolidated.safetensors", "x"); },
     {"not read: \"consolidated.safetensors\""}},
    {"NoEndToken",
     [](const auto& f) { f.write(kGeneration, R"({"eos_token_id": [1427, -1]})"); },
     {"generation_config.json: eos_token_id has -1, which is no token and is not used"}},
    {"RepetitionPenalty",
     [](const auto& f) {
       f.write(kGeneration, R"({"repetition_penalty": 5, "pad_token_id": "x"})");
     },
     {"generation_config.json: repetition_penalty is 5, outside 0.01 to 2; 2 is used"}},
    {"LayersThatAreNone",
     [](const auto& f) {
       f.replace(kConfig, "\"mlp_only_layers\": []", "\"mlp_only_layers\": [48]");
     },
     {"config.json: mlp_only_layers has 48, which is none of the"}},
    {"TwoRopeTypes",
     [](const auto& f) {
       f.replace(kConfig, "\"rope_scaling\": null",
                 R"("rope_scaling": {"rope_type": "default", "type": "yarn"})");
     },
     {"config.json has rope_type \"default\" and type \"yarn\"; rope_type is used"}},
    {"TwoQuantisations",
     [](const auto& f) {
       f.insert(kConfig, R"("quantization_config": {"quant_method": "fp8"},
                            "compression_config": {"quant_method": "gptq", "bits": 4})");
     },
     {"quantization_config (\"fp8\") and another compression_config (\"gptq\"); "
      "quantization_config is used",
      "quantization_config says that weights are quantised (fp8), but none of those that are read "
      "is: tensor \"",
      "stored as BF16"}},
    {"TypePerPart",
     [](const auto& f) {
       f.replace(kConfig, "\"torch_dtype\": \"bfloat16\"",
                 R"("torch_dtype": {"text_config": "bfloat16", "vision_config": "float32"})");
     },
     {}},
    {"BrokenTemplateFile",
     [](const auto& f) { f.write("chat_template.json", R"({"chat_template": )"); },
     {"the chat template is that of tokenizer_config.json; that of chat_template.json cannot be "
      "used: "}},
    {"BrokenTemplateLink",
     [](const auto& f) { f.break_link("chat_template.jinja"); },
     {"chat_template.jinja is a link to ", "the file counts as missing"}},
    {"GenerationLink",
     [](const auto& f) { f.break_link(kGeneration); },
     {"generation_config.json is a link to ", "the file counts as missing"}},
    {"TokenizerConfigLink",
     [](const auto& f) {
       f.write("chat_template.jinja", "{{ messages }}");
       f.break_link(kTokenizerConfig);
     },
     {"tokenizer_config.json is a link to ", "the file counts as missing"}},
    {"TokenMapLink",
     [](const auto& f) { f.break_link("special_tokens_map.json"); },
     {"special_tokens_map.json is a link to ", "the file counts as missing"}},
    {"QuantisationLink",
     [](const auto& f) { f.break_link("quantize_config.json"); },
     {"quantize_config.json is a link to ", "the file counts as missing"}},
    {"UnknownToken",
     [](const auto& f) { f.replace(kTokenizer, "\"unk_token\":null", R"("unk_token":"<unk>")"); },
     {"tokenizer.json: model.unk_token '<unk>' is not in the vocabulary"}},
    {"TokenWithoutText",
     [](const auto& f) {
       f.replace(kTokenizer, "\"added_tokens\":[", R"("added_tokens":[{"id":9, "content":""},)");
     },
     {"tokenizer.json: the added token 9 has no text and is left out"}},
    {"TokenMapThatIsNotRead",
     [](const auto& f) {
       f.insert(kTokenizerConfig, R"("added_tokens_decoder": {})");
       f.write("special_tokens_map.json", "[]");
     },
     {"special_tokens_map.json is not used, because tokenizer_config.json has "
      "added_tokens_decoder: "}},
};

INSTANTIATE_TEST_SUITE_P(ModelFolders, OddFolderTest, ::testing::ValuesIn(kOddFolders),
                         [](const auto& test) { return std::string(test.param.name); });

// Every folder is opened, or refused because its architecture is not served.
TEST(ModelFolderTest, OpensEveryGoldenAndTokenizerAtHand) {
  HEDDLE_SHARED_PATH_OR_SKIP(shared, "data/tokenizers");
  int num_tokenizers = 0;
  for (const auto& entry : fs::directory_iterator(shared)) {
    if (!entry.is_directory() || entry.path().filename() == "gguf-vocab")
      continue;  // of five models
    const auto tokenizer = tokenizer::load_tokenizer(entry.path());
    const Status status = tokenizer.status();
    num_tokenizers += status.ok() ? 1 : 0;
    // Some folders have no vocabulary; llama3's files are read, its other tokenizer.model is not.
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kNotFound)
        << entry.path() << ": " << status.message();
    const Status of_template = chat::ChatTemplate::load(entry.path()).status();
    EXPECT_TRUE(of_template.ok() || of_template.code() == StatusCode::kNotFound)
        << entry.path() << ": " << of_template.message();
  }
  EXPECT_GE(num_tokenizers, 6);
  int num_goldens = 0;
  HEDDLE_SHARED_PATH_OR_SKIP(goldens, "golden");
  for (const auto& entry : fs::directory_iterator(goldens)) {
    if (!entry.is_directory() || !fs::exists(entry.path() / "config.json")) continue;
    const auto files = checkpoint::CheckpointFiles::open(entry.path());
    EXPECT_TRUE(files.ok()) << files.status().message();
    const auto config = models::load_config(entry.path());
    num_goldens += config.ok() ? 1 : 0;
    EXPECT_TRUE(config.ok() ||
                config.status().message().find("is not served by this build") != std::string::npos)
        << config.status().message();
  }
  EXPECT_GE(num_goldens, 20);
}

}  // namespace
}  // namespace heddle
