// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/generation_config.h"

#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/gguf_fixture.h"

namespace heddle::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(GenerationConfigTest, ReadsWhatIsThereAndLeavesTheRestOpen) {
  const Result<GenerationConfig> config = parse_generation_config(
      R"({"eos_token_id":[1427,1425],"do_sample":true,"temperature":0.7,"top_p":0.9,"top_k":20,
          "bos_token_id":"x","transformers_version":"4"})");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_THAT(config->eos_token_ids, ElementsAre(1427, 1425));
  EXPECT_EQ(config->do_sample, true);
  EXPECT_EQ(config->temperature, 0.7);
  EXPECT_EQ(config->top_p, 0.9);
  EXPECT_EQ(config->top_k, 20);
  EXPECT_FALSE(config->min_p.has_value());
  EXPECT_FALSE(config->repetition_penalty.has_value());
  EXPECT_THAT(config->notes, IsEmpty());
}

TEST(GenerationConfigTest, NamesWhatIsWrong) {
  for (const std::string_view text :
       {R"({"temperature":-1})", R"({"temperature":"hot"})", R"({"temperature":1e999})",
        R"({"top_p":-0.1})", R"({"top_p":1.1})", R"({"top_k":-2})", R"({"min_p":2})",
        R"({"repetition_penalty":0})", R"({"repetition_penalty":-1})",
        R"({"repetition_penalty":NaN})", R"({"eos_token_id":"x"})", R"({"do_sample":2})", "[]",
        "{"}) {
    EXPECT_FALSE(parse_generation_config(text).ok()) << text;
  }
  EXPECT_THAT(parse_generation_config(R"({"top_p":1.1})").status().message(),
              HasSubstr("top_p is 1.1, outside"));
}

TEST(GenerationConfigTest, TakesATopPOfZeroAsRequestsDo) {
  const auto config = parse_generation_config(R"({"top_p":0, "do_sample":false})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->top_p, 0.0);
}

// transformers takes them all.
TEST(GenerationConfigTest, TakesTheNearestValueThatARequestMayHave) {
  const auto config = parse_generation_config(
      R"({"repetition_penalty":2.5, "temperature":1e6, "top_k":99999999999, "min_p":null})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->repetition_penalty, 2.0);
  EXPECT_EQ(config->temperature, 100.0);
  EXPECT_EQ(config->top_k, 2147483647);
  EXPECT_THAT(config->notes,
              ElementsAre(HasSubstr("temperature is 1e+06, outside 0 to 100; 100 is used"),
                          HasSubstr("repetition_penalty is 2.5, outside 0.01 to 2; 2 is used")));
  EXPECT_EQ(parse_generation_config(R"({"repetition_penalty":0.001})")->repetition_penalty, 0.01);
  EXPECT_EQ(parse_generation_config(R"({"repetition_penalty":1.1})")->repetition_penalty, 1.1);
}

TEST(GenerationConfigTest, NotesWhatIsNotUsed) {
  const auto config = parse_generation_config(R"({"eos_token_id":[3,-1], "stop_strings":["END"]})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_THAT(config->eos_token_ids, ElementsAre(3));
  EXPECT_THAT(config->notes,
              ElementsAre("generation_config.json: eos_token_id has -1, which is no token and is "
                          "not used",
                          HasSubstr("stop_strings is not used")));
  EXPECT_THAT(parse_generation_config(R"({"eos_token_id":-1})")->eos_token_ids, IsEmpty());
  EXPECT_THAT(parse_generation_config(R"({"eos_token_id":-100})")->eos_token_ids, IsEmpty());
  EXPECT_THAT(parse_generation_config(R"({"stop_strings":[]})")->notes, IsEmpty());
}

TEST(GenerationConfigTest, NamesSettingsThatNothingReads) {
  const auto notes_of = [](std::string_view text) {
    const auto config = parse_generation_config(text);
    EXPECT_TRUE(config.ok()) << text;
    return config.ok() ? config->notes : std::vector<std::string>{"error"};
  };
  for (const std::string_view setting : {R"("no_repeat_ngram_size":3)",
                                         R"("typical_p":0.9)",
                                         R"("max_new_tokens":512)",
                                         R"("max_length":4096)",
                                         R"("min_length":5)",
                                         R"("num_beams":4)",
                                         R"("length_penalty":2.0)",
                                         R"("suppress_tokens":[1,2])",
                                         R"("begin_suppress_tokens":[1])",
                                         R"("bad_words_ids":[[1]])",
                                         R"("forced_bos_token_id":0.5)",
                                         R"("exponential_decay_length_penalty":[5,1.1])",
                                         R"("sequence_bias":[[[1],-10.0]])",
                                         R"("epsilon_cutoff":0.0003)",
                                         R"("eta_cutoff":0.1)",
                                         R"("penalty_alpha":0.6)",
                                         R"("guidance_scale":1.5)",
                                         R"("repetition_penalti":1.1)",
                                         R"("encoder_repetition_penalty":1.2)",
                                         R"("watermarking_config":{"bias":2.5})"}) {
    const std::string key(setting.substr(1, setting.find('"', 1) - 1));
    EXPECT_THAT(notes_of("{" + std::string(setting) + "}"),
                ElementsAre(HasSubstr("generation_config.json: " + key + " is not used")));
  }
  for (const std::string_view setting :
       {R"("no_repeat_ngram_size":0)", R"("num_beams":1)", R"("typical_p":1.0)",
        R"("max_length":20)", R"("bad_words_ids":null)", R"("suppress_tokens":[])",
        R"("use_cache":true)", R"("cache_implementation":"hybrid")", R"("early_stopping":false)",
        R"("pad_token_id":[0])", R"("_from_model_config":true)"}) {
    EXPECT_THAT(notes_of("{" + std::string(setting) + "}"), IsEmpty()) << setting;
  }
  EXPECT_THAT(notes_of(R"({"typical_p":0.9,"no_repeat_ngram_size":3})"),
              ElementsAre(HasSubstr("no_repeat_ngram_size, typical_p are not used")));
  std::string many = "{";
  for (int i = 0; i < 100; ++i) many += "\"k" + std::to_string(i) + std::string(200, 'x') + "\":1,";
  const auto notes = notes_of(many + "\"last\":1}");
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_THAT(notes.front(), HasSubstr(", others are not used"));
  EXPECT_LT(notes.front().size(), 2000U);
}

TEST(GenerationConfigTest, FallsBackToTheModelsTokens) {
  testing::TemporaryFolder folder;
  const ModelConfig model{.vocab_size = 10, .eos_token_ids = {2}};
  EXPECT_THAT(load_generation_config(folder.path(), model)->eos_token_ids, ElementsAre(2));
  folder.write("generation_config.json", R"({"eos_token_id":[3,4]})");
  EXPECT_THAT(load_generation_config(folder.path(), model)->eos_token_ids, ElementsAre(3, 4));
  folder.write("generation_config.json", R"({"eos_token_id":[3,10]})");
  EXPECT_THAT(load_generation_config(folder.path(), model).status().message(),
              HasSubstr("eos_token_id has 10, but the model's vocab_size is 10"));
}

TEST(GenerationConfigTest, AGgufFileHasItsOwnNamesForSettings) {
  testing::TemporaryFolder folder;
  const ModelConfig model{.vocab_size = 10, .eos_token_ids = {2}};
  const auto load = [&](const auto& add) {
    testing::GgufWriter writer;
    add(writer);
    writer.tensor("t", {1}, std::vector<float>{1});
    folder.write("model.gguf", writer.file());
    return load_generation_config(folder.path() / "model.gguf", model);
  };
  const auto config = load([](testing::GgufWriter& writer) {
    writer.f32("general.sampling.temp", 0.7F);
    writer.i32("general.sampling.top_k", 20);
    writer.f32("general.sampling.top_p", 0.95F);
    writer.f32("general.sampling.min_p", 0);
    writer.f32("general.sampling.penalty_repeat", 1.05F);
    writer.i32("general.sampling.penalty_last_n", 64);
    writer.f32("general.sampling.xtc_threshold", 0.1F);
    writer.f32("general.sampling.mirostat_tau", 5);
  });
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->temperature, 0.7);
  EXPECT_EQ(config->top_k, 20);
  EXPECT_EQ(config->top_p, 0.95);
  EXPECT_EQ(config->min_p, 0);
  EXPECT_EQ(config->repetition_penalty, 1.05);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(2));
  EXPECT_THAT(config->notes, ElementsAre(HasSubstr("general.sampling: penalty_last_n is not ")));

  // -1 means greedy as a temperature, and all tokens as top_k.
  const auto greedy = load([](testing::GgufWriter& writer) {
    writer.f32("general.sampling.temp", -1);
    writer.i32("general.sampling.top_k", -1);
    writer.i32("general.sampling.mirostat", 2);
    writer.text("general.sampling.sequence", "top_k;temperature");
  });
  ASSERT_TRUE(greedy.ok()) << greedy.status().to_string();
  EXPECT_EQ(greedy->temperature, 0);
  EXPECT_EQ(greedy->top_k, 0);
  EXPECT_THAT(greedy->notes, ElementsAre(HasSubstr("mirostat, sequence are not used")));

  EXPECT_FALSE(load([](const auto&) {})->temperature.has_value());
  const auto wrong = [&](const auto& add) { return load(add).status().message(); };
  EXPECT_THAT(wrong([](auto& writer) { writer.text("general.sampling.temp", "hot"); }),
              AllOf(HasSubstr("model.gguf"), HasSubstr("general.sampling.temp"), HasSubstr("hot")));
  EXPECT_THAT(wrong([](auto& writer) { writer.f32("general.sampling.top_p", NAN); }),
              HasSubstr("general.sampling.top_p is nan"));
  EXPECT_THAT(wrong([](auto& writer) { writer.f32("general.sampling.top_p", 2); }),
              AllOf(HasSubstr("model.gguf: general.sampling"), HasSubstr("top_p"), HasSubstr("2")));
}

}  // namespace
}  // namespace heddle::checkpoint
