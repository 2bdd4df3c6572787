// SPDX-License-Identifier: Apache-2.0
#include "architecture/family_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "architecture/tree_fixture.h"
#include "support/test_data.h"

namespace heddle::architecture {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(FamilyNames, StandOnlyInTheirFolderAndInTheRegistry) {
  const std::vector<OtherMeaning> other_meanings = {
      // A kind of rotary embedding that config.json asks for by this name, whatever the family.
      {"src/checkpoint/rope_config", "llama3"},
      {"src/checkpoint/rope_config", "kLlama3"},
      // The key of a scale that queries get by their positions, in files of several families.
      {"src/checkpoint/rope_config", "llama_4_scaling_beta"},
      // Classes of tokenizers, which models of many families name.
      {"src/tokenizer/", "Qwen2Tokenizer"},
      {"src/tokenizer/", "kQwen2Pattern"},
      {"src/tokenizer/", "is_qwen2"},
      {"src/tokenizer/", "LlamaTokenizer"},
      {"src/tokenizer/", "CodeLlamaTokenizer"},
      {"src/tokenizer/", "is_llama_class"},
      {"src/tokenizer/", "kLlama3Pattern"},
      {"src/tokenizer/tiktoken.cpp", "Llama 3"},
      // Ways to split words and kinds of vocabularies, by the names that GGUF files have for them.
      {"src/tokenizer/gguf_vocabulary.cpp", "qwen2"},
      {"src/tokenizer/gguf_vocabulary.cpp", "qwen35"},
      {"src/tokenizer/gguf_vocabulary.cpp", "llama"},
      {"src/tokenizer/gguf_vocabulary.cpp", "deepseek"},
      {"src/tokenizer/gguf_vocabulary.cpp", "kDeepseek3Pattern"},
      {"src/tokenizer/gguf_vocabulary.cpp", "kQwen35Pattern"},
      {"src/tokenizer/gguf_vocabulary.cpp", "falcon-h1"},
      {"src/tokenizer/gguf_vocabulary.cpp", "lfm2"},
      {"src/tokenizer/gguf_vocabulary.cpp", "exaone4"},
      {"src/tokenizer/gguf_vocabulary.cpp", "minimax-m2"},
      {"src/tokenizer/gguf_tokenizer.cpp", "llama"},
      {"src/tokenizer/gguf_tokenizer.cpp", "\"gemma4\""},
      {"src/tokenizer/gguf_tokenizer.cpp", "gemma4 (BPE"},
      {"src/tokenizer/gguf_tokenizer_files.cpp", "\"llama\""},
      // That kind of rotary embedding in a GGUF file, and the name that files of Mistral have
      // there.
      {"src/models/gguf_translation.cpp", "llama3"},
      {"src/models/mistral/mistral.cpp", "\"llama\""},
      {"src/models/mixtral/mixtral.cpp", "\"llama\""},
      // The names that other engines have for the drafts exported for them.
      {"src/checkpoint/nextn_layer.cpp", "DeepseekV32ForCausalLM"},
      {"src/checkpoint/nextn_layer.cpp", "DeepseekV3ForCausalLMNextN"},
      // Class names of image processors, which models of several families use.
      {"src/media/image_processor_config.cpp", "Qwen2VLImageProcessor"},
      {"src/media/image_processor_config.cpp", "Gemma3ImageProcessor"},
      {"src/media/image_processor_config.cpp", "Gemma4ImageProcessor"},
      // Another program, whose API the server speaks.
      {"src/server/", "ollama"},
      {"src/server/", "Ollama"},
      // Formats of calls and reasoning have the names of the models that brought them and are
      // written by many others.
      {"src/parsers/", "qwen2"},
      {"src/parsers/", "qwen3"},
      {"src/parsers/", "Qwen3"},
      {"src/parsers/", "deepseek"},
      {"src/parsers/", "Deepseek"},
      {"src/parsers/", "llama"},
      {"src/parsers/", "Llama"},
      {"src/parsers/", "mistral"},
      {"src/parsers/", "Mistral"},
      {"src/parsers/", "gemma4"},
      {"src/parsers/", "Gemma4"},
      {"src/parsers/", "minimax"},
      {"src/parsers/", "Minimax"},
      {"src/parsers/", "seed_oss"},
      {"src/parsers/", "SeedOss"},
      {"src/parsers/", "granite"},
      {"src/parsers/", "Granite"},
      {"src/parsers/", "lfm2"},
      {"src/parsers/", "Lfm2"},
      {"src/parsers/formats.cpp", "\"step3\""},
      {"src/parsers/formats.cpp", "\"gpt-oss\""},
      {"src/parsers/formats.cpp", "\"openai_gptoss\""},
      // Its language model is this family's, its name begins like another's.
      {"src/models/qwen3_moe/qwen3_moe.cpp", "Qwen3VLMoeForConditionalGeneration"},
      {"src/models/qwen3_moe/qwen3_moe.cpp", "qwen3_vl_moe"},
      {"src/models/qwen3_moe/qwen3_moe.cpp", "qwen3vlmoe"},
      {"src/models/granitemoehybrid/granitemoehybrid.cpp", "granitehybrid"},
      // Examples in the help.
      {"tools/export_nextn.cpp", "DeepSeek-V3"},
      {"tools/export_nextn.cpp", "Qwen3-Next"},
  };
  EXPECT_THAT(family_name_violations(heddle::testing::repository_path(""), other_meanings),
              IsEmpty());
}

class FamilyNamesTree : public TreeFixture {
 protected:
  void SetUp() override {
    TreeFixture::SetUp();
    write("src/models/gpt_oss/gpt_oss.cpp", "Family gpt_oss() { return {\"GptOss\"}; }\n");
    write("src/models/layers/attention.cpp", "int attention();\n");
    write("src/models/registry.cpp", "#define FAMILIES(family) \\\n  family(gpt_oss)\n");
  }

  [[nodiscard]] std::vector<std::string> violations(
      const std::vector<OtherMeaning>& other_meanings = {}) const {
    return family_name_violations(root(), other_meanings);
  }
};

TEST_F(FamilyNamesTree, MayStandInTheFolderTheRegistryCommentsAndTests) {
  write("src/checkpoint/config.cpp", "// as gpt-oss says\nint x; /* gpt_oss\n gpt_oss */ int y;\n");
  write("src/checkpoint/config_test.cpp", "auto x = \"GptOssForCausalLM\";\n");
  EXPECT_THAT(violations(), IsEmpty());
}

TEST_F(FamilyNamesTree, MayBeginLikeEachOther) {
  write("src/models/gpt_oss_next/gpt_oss_next.cpp", "Family gpt_oss_next();  \n");
  write("src/models/registry.cpp", "family(gpt_oss) family(gpt_oss_next)\n");
  EXPECT_THAT(violations(), IsEmpty());
  write("src/models/gpt_oss_next/gpt_oss_next.cpp", "#include \"models/gpt_oss/moe.h\"\n");
  EXPECT_THAT(violations(),
              ElementsAre("src/models/gpt_oss_next/gpt_oss_next.cpp:1: names gpt_oss"));
}

TEST_F(FamilyNamesTree, AreReportedInAnySpellingWithFileAndLine) {
  write("src/checkpoint/config.cpp",
        "/* one\n two */ bool is_gpt_oss;\nauto a = \"http://x\", b = \"GptOssForCausalLM\";\n");
  write("include/heddle/options.h", "enum { kGPTOSS };\n");
  write("src/models/registry.cpp", "family(gpt_oss)\nif (gpt_oss) {}\n");
  EXPECT_THAT(violations(), ElementsAre("include/heddle/options.h:1: names gpt_oss",
                                        "src/checkpoint/config.cpp:2: names gpt_oss",
                                        "src/checkpoint/config.cpp:3: names gpt_oss",
                                        "src/models/registry.cpp:2: names gpt_oss"));
}

TEST_F(FamilyNamesTree, MayMeanSomethingElseInOneFile) {
  write("tools/help.cpp", "\"heddle verify gpt-oss\"\n");
  write("tools/other.cpp", "\"heddle verify gpt-oss\"\n");
  EXPECT_THAT(violations({{"tools/help.cpp", "gpt-oss"}}),
              ElementsAre("tools/other.cpp:1: names gpt_oss"));
}

TEST(WithoutComments, KnowsLiteralsAndKeepsLines) {
  EXPECT_EQ(without_comments("a // b\nc /* d\ne */ f"), "a \nc \n f");
  EXPECT_EQ(without_comments("\"// \\\" /*\" + '\"' // x"), "\"// \\\" /*\" + '\"' ");
  EXPECT_EQ(without_comments("1'000; // y\n'/'"), "1'000; \n'/'");
  EXPECT_EQ(without_comments("R\"x(\" // )\")x\"; // y"), "R\"x(\" // )\")x\"; ");
  EXPECT_EQ(without_comments("/* open"), "");
}

}  // namespace
}  // namespace heddle::architecture
