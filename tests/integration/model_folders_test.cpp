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
#include "models/registry.h"
#include "support/test_data.h"
#include "tokenizer/tokenizer.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
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
}

const WrongFolder kWrongFolders[] = {
    {"ConfigPointer",
     [](const auto& f) { f.write(kConfig, kPointer); },
     {"config.json: ", "Git LFS pointer to 11422654 bytes", "git lfs pull"}},
    {"TokenizerPointer",
     [](const auto& f) { f.write(kTokenizer, kPointer); },
     {"tokenizer.json: ", "Git LFS pointer", "git lfs pull"}},
    {"ShardPointer",
     [](const auto& f) { f.write(kShard, kPointer); },
     {"model-00002-of-00002.safetensors: ", "Git LFS pointer", "git lfs pull"}},
    {"ConfigComma",
     [](const auto& f) { f.replace(kConfig, "\"qwen3_next\",", "\"qwen3_next\",,"); },
     {"config.json: ", "line 5, column 29: ',' where a key in double quotes is expected"}},
    {"ConfigCut",
     [](const auto& f) { f.write(kConfig, f.text(kConfig).substr(0, 300)); },
     {"config.json: ", "line ", "truncated, or not fully downloaded"}},
    {"WrongType",
     [](const auto& f) { f.replace(kConfig, "\"hidden_size\": 256", "\"hidden_size\": \"wide\""); },
     {"config.json: hidden_size is \"wide\", not an integer; write a whole number"}},
    {"NotANumber",
     [](const auto& f) { f.replace(kConfig, "\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": NaN"); },
     {"config.json: rms_norm_eps is NaN, outside 1e-30 to 1"}},
    {"TooLarge",
     [](const auto& f) {
       f.replace(kConfig, "\"vocab_size\": 1536",
                 "\"vocab_size\": 1000000000000000019884624838656");
     },
     {"config.json: vocab_size is 1", "not an integer; write a whole number"}},
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
    {"GgufOnly",
     [](const auto& f) {
       f.remove_all();
       f.write("tiny-q4_k_m.gguf", "GGUF");
     },
     {"only \"tiny-q4_k_m.gguf\": a GGUF file, which is not served", "hf download"}},
    {"AdapterOnly",
     [](const auto& f) {
       f.remove_all();
       f.write("adapter_config.json", "{}");
     },
     {"the adapters of a model without the model", "merge_and_unload()"}},
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
    {"IndexValue",
     [](const auto& f) { f.replace(kIndex, "\"model-00001-of-00002.safetensors\"", "5"); },
     {"index.json: weight_map[", "is 5; expected the plain name of a file"}},
    {"GenerationType",
     [](const auto& f) { f.replace("generation_config.json", "0.7", "\"hot\""); },
     {"generation_config.json: temperature is \"hot\", not a number; write one of 0 to 100"}},
    {"GenerationEnd",
     [](const auto& f) { f.write("generation_config.json", R"({"eos_token_id": [1427, 99999]})"); },
     {"generation_config.json: eos_token_id has 99999, but the model's vocab_size is 1536"}},
    {"VocabularyId",
     [](const auto& f) { f.replace(kTokenizer, "\"vocab\":{", "\"vocab\":{\"zzz\": \"three\","); },
     {"tokenizer.json: model.vocab['zzz'] is \"three\"; expected a 64-bit integer"}},
    {"TokenizerKind",
     [](const auto& f) { f.write(kTokenizer, R"({"model": {"type": "Unigram"}})"); },
     {"tokenizer.json: model.type is 'Unigram'; only BPE is supported"}},
    {"NoTokenizer",
     [](const auto& f) { f.remove(kTokenizer); },
     {"has no tokenizer.json", "copy the tokenizer files of the model there"}},
    {"TiktokenOnly",
     [](const auto& f) {
       f.remove(kTokenizer);
       f.write("tiktoken.model", "IQ== 0\n");
     },
     {"has only a tiktoken.model", "put the tokenizer.json of the same model beside it"}},
    {"TiktokenAsSentencePiece",
     [](const auto& f) {
       f.remove(kTokenizer);
       f.write("tokenizer.model", "IQ== 0\nIg== 1\n");
     },
     {"tokenizer.model is a tiktoken vocabulary", "put the tokenizer.json"}},
    {"TokenizerRole",
     [](const auto& f) { f.write(kTokenizerConfig, "{\n \"eos_token\": 7}"); },
     {"tokenizer_config.json: eos_token is 7; expected a string"}},
    {"TokenizerConfigLine",
     [](const auto& f) { f.write(kTokenizerConfig, "{\n \"eos_token\": }"); },
     {"tokenizer_config.json: ", "line 2, column 15: '}' where a value is expected"}},
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

// Every folder is opened, or refused because its architecture is not served.
TEST(ModelFolderTest, OpensEveryGoldenAndTokenizerAtHand) {
  HEDDLE_SHARED_PATH_OR_SKIP(shared, "data/tokenizers");
  int num_tokenizers = 0;
  for (const auto& entry : fs::directory_iterator(shared)) {
    if (!entry.is_directory()) continue;
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
