// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/config_reader.h"

namespace heddle::checkpoint {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr LayerKind kF = LayerKind::kFullAttention;

json small_config() {
  return json::parse(R"({
    "architectures": ["PlainForCausalLM"],
    "vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "eos_token_id": 2})");
}

// Families that know nothing, or one thing.
constexpr FamilyReader kPlain{.family = "Plain", .read = [](ConfigReader&, ModelConfig&) {}};
constexpr FamilyReader kLateWindows{.family = "Late", .read = read_late_windows};
constexpr FamilyReader kQuarterTurn{
    .family = "Quarter",
    .read = [](ConfigReader&, ModelConfig& config) { config.rope.partial_rotary_factor = 0.25; }};

Result<ModelConfig> parse(const json& config, const FamilyReader& family = kPlain) {
  return parse_model_config(config.dump(), family);
}

Result<ModelConfig> with(std::string_view key, const json& value) {
  json config = small_config();
  config[std::string(key)] = value;
  return parse(config);
}

TEST(ModelConfigTest, ReadsTheSizesAndFillsInWhatMostModelsHave) {
  const Result<ModelConfig> config = parse(small_config());
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->architecture, "PlainForCausalLM");
  EXPECT_EQ(config->family, "Plain");
  EXPECT_EQ(config->head_dim, 32);
  EXPECT_THAT(config->layer_kinds, ElementsAre(kF, kF, kF, kF));
  EXPECT_THAT(config->is_moe_layer, Each(false));
  EXPECT_FALSE(config->moe || config->linear_attention || config->latent_attention);
  EXPECT_EQ(config->rope.partial_rotary_factor, 1);
  EXPECT_EQ(config->intermediate_size, 96);
  EXPECT_EQ(config->window_of(3), 0);
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(2));
  EXPECT_FALSE(config->dtype.has_value());
}

// The families that ask for this: Nemotron-H counts its layers in a pattern, LFM2 says norm_eps,
// Gemma 3 has GELU.
TEST(ModelConfigTest, AsksTheFamilyBeforeItDemandsWhatMostFilesHave) {
  constexpr FamilyReader kOther{
      .family = "Other",
      .shared_keys =
          [](ConfigReader& reader) {
            const std::string pattern = reader.text("pattern", std::nullopt);
            return SharedKeys{.num_layers = std::ssize(pattern),
                              .norm_epsilon = "norm_eps",
                              .default_norm_epsilon = 1e-5,
                              .reads_activation = true};
          },
      .read =
          [](ConfigReader& reader, ModelConfig& config) {
            if (reader.text("hidden_act", std::string("gelu")) != "gelu") {
              reader.refuse("hidden_act", "only \"gelu\" is served");
            }
            config.intermediate_size = 2 * config.hidden_size;
          }};
  json file = small_config();
  for (const char* key : {"num_hidden_layers", "intermediate_size", "rms_norm_eps"}) {
    file.erase(key);
  }
  EXPECT_THAT(parse(file, kOther).status().message(), HasSubstr("pattern is missing"));
  file["pattern"] = "M*M*M";
  file["hidden_act"] = "gelu";
  const Result<ModelConfig> config = parse(file, kOther);
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->num_layers, 5);
  EXPECT_EQ(config->layer_kinds.size(), 5u);
  EXPECT_EQ(config->rms_norm_eps, 1e-5);
  EXPECT_EQ(config->intermediate_size, 128);
  file["norm_eps"] = 2e-4;
  EXPECT_EQ(parse(file, kOther)->rms_norm_eps, 2e-4);
  file["norm_eps"] = -1;
  EXPECT_THAT(parse(file, kOther).status().message(), HasSubstr("norm_eps is -1, outside"));
  file.erase("norm_eps");
  file["hidden_act"] = "silu";
  EXPECT_THAT(parse(file, kOther).status().message(), HasSubstr("only \"gelu\" is served"));
  EXPECT_THAT(parse(file).status().message(), HasSubstr("num_hidden_layers is missing"));
}

TEST(ModelConfigTest, CarriesTheStructOfAFamily) {
  struct Own {
    int64_t value = 0;

    bool operator==(const Own&) const = default;
  };

  constexpr FamilyReader kOwn{.family = "Own", .read = [](ConfigReader& reader, ModelConfig& c) {
                                c.own.set(Own{reader.integer("own", 7, {})});
                              }};
  json file = small_config();
  const ModelConfig config = parse(file, kOwn).value();
  EXPECT_EQ(config.own.get<Own>().value, 7);
  EXPECT_TRUE(config.own == parse(file, kOwn)->own);
  EXPECT_FALSE(config.own == parse(file)->own);
  file["own"] = 8;
  EXPECT_FALSE(config.own == parse(file, kOwn)->own);
  EXPECT_TRUE(parse(file)->own == parse(small_config())->own) << "neither has any";
}

TEST(ModelConfigTest, TakesTheRotatedPartFromTheFileBeforeTheFamily) {
  json config = small_config();
  EXPECT_EQ(parse(config, kQuarterTurn)->rope.partial_rotary_factor, 0.25);
  config["partial_rotary_factor"] = 0.5;
  EXPECT_EQ(parse(config, kQuarterTurn)->rope.partial_rotary_factor, 0.5);
}

TEST(ModelConfigTest, ReadsBothSpellingsOfRope) {
  json old_spelling = small_config();
  old_spelling["rope_theta"] = 500000;
  old_spelling["partial_rotary_factor"] = 0.5;
  old_spelling["rope_scaling"] = {
      {"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 1024}};
  json new_spelling = small_config();
  new_spelling["rope_theta"] = 1;  // rope_parameters wins
  new_spelling["rope_parameters"] = {{"rope_type", "yarn"},
                                     {"rope_theta", 500000.0},
                                     {"partial_rotary_factor", 0.5},
                                     {"factor", 4},
                                     {"original_max_position_embeddings", 1024.0}};
  for (const json& spelling : {old_spelling, new_spelling}) {
    const Result<ModelConfig> config = parse(spelling);
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    EXPECT_EQ(config->rope.type, RopeType::kYarn);
    EXPECT_EQ(config->rope.theta, 500000);
    EXPECT_EQ(config->rope.partial_rotary_factor, 0.5);
    EXPECT_EQ(config->rope.factor, 4);
    EXPECT_EQ(config->rope.original_max_position_embeddings, 1024);
  }
}

TEST(ModelConfigTest, CountsNullAsAbsent) {
  json config = small_config();
  config["head_dim"] = nullptr;
  config["num_key_value_heads"] = nullptr;
  config["rope_scaling"] = nullptr;
  config["eos_token_id"] = nullptr;
  const Result<ModelConfig> parsed = parse(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->head_dim, 16);
  EXPECT_EQ(parsed->num_key_value_heads, 4);
  EXPECT_TRUE(parsed->eos_token_ids.empty());
}

TEST(ModelConfigTest, AcceptsListsOfEosAndBothNamesOfTheDType) {
  EXPECT_THAT(with("eos_token_id", {5, 7})->eos_token_ids, ElementsAre(5, 7));
  EXPECT_EQ(with("torch_dtype", "bfloat16")->dtype, DType::kBf16);
  EXPECT_EQ(with("dtype", "float16")->dtype, DType::kF16);
  EXPECT_EQ(with("dtype", {{"text_config", "torch.float16"}, {"vision_config", "float32"}})->dtype,
            DType::kF16);
  EXPECT_EQ(with("torch_dtype", {{"", "bfloat16"}})->dtype, DType::kBf16);
  for (const json& unsaid : {json("auto"), json("float8_e4m3fn"), json("float64"), json::object(),
                             json{{"vision_config", "float32"}}}) {
    ASSERT_TRUE(with("dtype", unsaid).ok()) << with("dtype", unsaid).status().message();
    EXPECT_FALSE(with("dtype", unsaid)->dtype.has_value());
  }
}

TEST(ModelConfigTest, DoesNotReadTokensThatNobodyNeeds) {
  for (const char* key : {"bos_token_id", "pad_token_id"}) {
    for (const json& value : {json(-1), json("x"), json::array({1, 2}), json(1e30)}) {
      EXPECT_TRUE(with(key, value).ok()) << with(key, value).status().message();
    }
  }
  const Result<ModelConfig> none = with("eos_token_id", -1);
  ASSERT_TRUE(none.ok()) << none.status().message();
  EXPECT_TRUE(none->eos_token_ids.empty());
  EXPECT_THAT(none->notes,
              ElementsAre("config.json: eos_token_id has -1, which is no token and is not used"));
  EXPECT_THAT(with("eos_token_id", {5, -1, 7})->eos_token_ids, ElementsAre(5, 7));
}

std::vector<int64_t> windows_of(const json& config, const FamilyReader& family) {
  const Result<ModelConfig> parsed = parse(config, family);
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  std::vector<int64_t> windows;
  for (int64_t i = 0; i < parsed->num_layers; ++i) windows.push_back(parsed->window_of(i));
  return windows;
}

TEST(ModelConfigTest, SlidesLaterLayersOnlyWhenAsked) {
  json config = small_config();
  config["sliding_window"] = 24;
  config["max_window_layers"] = 3;
  EXPECT_THAT(windows_of(config, kLateWindows), ElementsAre(0, 0, 0, 0));
  config["use_sliding_window"] = true;
  EXPECT_THAT(windows_of(config, kLateWindows), ElementsAre(0, 0, 0, 24));
  config["max_window_layers"] = 100;
  EXPECT_THAT(windows_of(config, kLateWindows), ElementsAre(0, 0, 0, 0));
  config["max_window_layers"] = -1;
  EXPECT_THAT(windows_of(config, kLateWindows), ElementsAre(24, 24, 24, 24));
  config["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                           "full_attention"};
  EXPECT_THAT(windows_of(config, kLateWindows), ElementsAre(24, 0, 0, 0));
  config["use_sliding_window"] = false;
  EXPECT_THAT(parse(config, kLateWindows).status().message(),
              HasSubstr("use_sliding_window is false, but layer_types"));
  config.erase("use_sliding_window");
  config["sliding_window"] = nullptr;
  EXPECT_THAT(parse(config, kLateWindows).status().message(),
              HasSubstr("sliding_window is missing"));
}

TEST(ModelConfigTest, RefusesKindsOfLayersThatTheFamilyDoesNotServe) {
  json config = small_config();
  config["layer_types"] = {"full_attention", "full_attention", "full_attention", "full_attention"};
  EXPECT_TRUE(parse(config).ok());
  config["layer_types"][3] = "sliding_attention";
  EXPECT_EQ(parse(config).status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(parse(config).status().message(),
              HasSubstr("layer_types has \"sliding_attention\"; Plain is served with "
                        "\"full_attention\""));
  config["layer_types"][3] = "linear_attention";
  EXPECT_THAT(parse(config, kLateWindows).status().message(),
              HasSubstr("Late is served with \"full_attention\" and \"sliding_attention\""));
}

TEST(ModelConfigTest, ReadsTheLanguageModelInsideAMultimodalConfiguration) {
  json config = {{"architectures", {"PlainForConditionalGeneration"}},
                 {"tie_word_embeddings", true},
                 {"vision_config", {{"hidden_size", 7}}},
                 {"text_config", small_config()}};
  const Result<ModelConfig> parsed = parse(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->architecture, "PlainForConditionalGeneration");
  EXPECT_EQ(parse_model_name(config.dump())->architecture, "PlainForConditionalGeneration");
  EXPECT_EQ(parsed->hidden_size, 64);
  EXPECT_TRUE(parsed->tie_word_embeddings);
}

// Python's json module reads all of this; nobody asks for most of it.
TEST(ModelConfigTest, ReadsWhatPythonReads) {
  std::string text = small_config().dump();
  text.insert(1, R"("hidden_size": "last counts", "limits": [0.0, Infinity, {"n": NaN}],
      "huge": {"deep": 1000000000000000019884624838656}, "exponent": -1e4000, "lone": "\udc00",
      "attention_bias": 0, "num_hidden_layers": 5,)");
  text.insert(text.size() - 1, R"(, "num_hidden_layers": 4.0)");
  text.insert(0, "\xEF\xBB\xBF");
  const Result<ModelConfig> config = parse_model_config(text, kPlain);
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->hidden_size, 64);
  EXPECT_EQ(config->num_layers, 4);
  EXPECT_THAT(config->notes, ::testing::IsEmpty());
}

TEST(ModelConfigTest, NamesTheLineOfASyntaxError) {
  EXPECT_THAT(parse_model_config("{\n  \"a\": 1,\n  'b': 2}", kPlain).status().message(),
              HasSubstr("line 3, column 3: ''' where a key in double quotes is expected"));
}

// transformers lets the newer name win, the inner sizes, and the outer tokens and ties.
TEST(ModelConfigTest, NotesWhereAFileGivesTwoAnswers) {
  json config = {{"architectures", {"PlainForConditionalGeneration"}},
                 {"tie_word_embeddings", false},
                 {"hidden_size", 128},
                 {"eos_token_id", 3},
                 {"torch_dtype", "float32"},
                 {"text_config", small_config()}};
  config["text_config"]["tie_word_embeddings"] = true;
  config["text_config"]["dtype"] = "bfloat16";
  const Result<ModelConfig> parsed = parse(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->hidden_size, 64);
  EXPECT_FALSE(parsed->tie_word_embeddings);
  EXPECT_THAT(parsed->eos_token_ids, ElementsAre(3));
  EXPECT_EQ(parsed->dtype, DType::kBf16);
  EXPECT_THAT(parsed->notes,
              ::testing::UnorderedElementsAre(
                  HasSubstr("hidden_size twice: 64 is used, 128 is not"),
                  HasSubstr("tie_word_embeddings twice: false is used, true is not"),
                  HasSubstr("eos_token_id twice: 3 is used, 2 is not"),
                  HasSubstr("dtype \"bfloat16\" and torch_dtype \"float32\"; dtype is used")));
}

TEST(ModelConfigTest, NotesTwoNamesOfOneThingThatDiffer) {
  const auto notes_with = [](const char* key, const json& value) {
    const Result<ModelConfig> parsed = with(key, value);
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    return parsed.ok() ? parsed->notes : std::vector<std::string>();
  };
  EXPECT_THAT(
      notes_with("rope_scaling", {{"rope_type", "linear"}, {"type", "yarn"}, {"factor", 2}}),
      ElementsAre("config.json has rope_type \"linear\" and type \"yarn\"; rope_type is "
                  "used"));
  EXPECT_THAT(notes_with("rope_scaling", {{"rope_type", "default"}, {"type", "su"}}),
              ElementsAre(HasSubstr("type \"su\"; rope_type is used")));
  EXPECT_THAT(notes_with("rope_scaling", {{"rope_type", "default"}, {"type", 3}}),
              ElementsAre(HasSubstr("type \"3\"; rope_type is used")));
  EXPECT_TRUE(notes_with("rope_scaling", {{"rope_type", "default"}, {"type", "mrope"}}).empty());

  json config = small_config();
  config["quantization_config"] = {{"quant_method", "fp8"}};
  config["compression_config"] = {{"quant_method", "fp8"}};
  EXPECT_TRUE(parse(config)->notes.empty());
  config["compression_config"] = {{"quant_method", "compressed-tensors"}};
  const Result<ModelConfig> parsed = parse(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->quantization->method, QuantMethod::kFp8);
  EXPECT_THAT(
      parsed->notes,
      ElementsAre("config.json has a quantization_config (\"fp8\") and another "
                  "compression_config (\"compressed-tensors\"); quantization_config is used"));
}

struct BadValue {
  std::string_view key;
  std::string_view value;  // JSON
  std::string_view message;
};

class BadConfigTest : public ::testing::TestWithParam<BadValue> {};

TEST_P(BadConfigTest, IsOneErrorThatNamesKeyAndValue) {
  const Result<ModelConfig> config = with(GetParam().key, json::parse(GetParam().value));
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.status().message(), HasSubstr(GetParam().message));
  EXPECT_THAT(config.status().message(), HasSubstr("; ")) << "no remedy";
}

INSTANTIATE_TEST_SUITE_P(
    ModelConfig, BadConfigTest,
    ::testing::Values(
        BadValue{"num_attention_heads", "0", "num_attention_heads is 0, outside 1 to 4096"},
        BadValue{"num_attention_heads", "-4", "num_attention_heads is -4"},
        BadValue{"num_key_value_heads", "0", "num_key_value_heads is 0"},
        BadValue{"num_key_value_heads", "3", "num_key_value_heads is 3, which does not divide"},
        BadValue{"hidden_size", "null", "hidden_size is missing"},
        BadValue{"hidden_size", "\"64\"", "hidden_size is \"64\", not an integer"},
        BadValue{"hidden_size", "64.5", "hidden_size is 64.5, not an integer"},
        BadValue{"hidden_size", "1e300", "not an integer"},
        BadValue{"hidden_size", "18446744073709551615", "not an integer"},
        BadValue{"hidden_size", "9223372036854775807", "outside 1 to 1048576"},
        BadValue{"hidden_size", "[64]", "hidden_size is [64], not an integer"},
        BadValue{"hidden_size", "{}", "hidden_size is an object, not an integer"},
        BadValue{"vocab_size", "0", "vocab_size is 0"},
        BadValue{"num_hidden_layers", "1000000000000", "num_hidden_layers is 1000000000000"},
        BadValue{"head_dim", "0", "head_dim is 0"},
        BadValue{"head_dim", "31", "rotates 31 elements; an even number"},
        BadValue{"rms_norm_eps", "0", "rms_norm_eps is 0, outside"},
        BadValue{"rms_norm_eps", "-1e-6", "rms_norm_eps is -1e-06, outside"},
        BadValue{"rms_norm_eps", "\"NaN\"", "rms_norm_eps is \"NaN\", not a number"},
        BadValue{"layer_types", "[\"full_attention\"]", "layer_types has 1 entries"},
        BadValue{"layer_types", "[1,2,3,4]", "layer_types has 1, not a string"},
        BadValue{"layer_types", R"(["sliding_attention","a","b","c"])",
                 "layer_types has \"sliding_attention\"; Plain"},
        BadValue{"hidden_act", "\"gelu\"", "hidden_act is \"gelu\"; only \"silu\""},
        BadValue{"mlp_bias", "true", "mlp_bias is true; Plain is served without it"},
        BadValue{"rope_theta", "0", "rope_theta is 0"},
        BadValue{"partial_rotary_factor", "1.5", "partial_rotary_factor is 1.5"},
        BadValue{"rope_scaling", "\"yarn\"", "rope_scaling is \"yarn\", not an object"},
        BadValue{"rope_scaling", R"({"type":"longrope"})", "rope_type is \"longrope\""},
        BadValue{"rope_scaling", R"({"rope_type":"linear"})", "factor is missing"},
        BadValue{
            "rope_scaling", R"({"rope_type":"dynamic","factor":2})",
            "rope_type is \"dynamic\", which is not served; served are default, linear, llama3, "
            "yarn and proportional"},
        BadValue{"rope_scaling", R"({"rope_type":"linear","factor":0})", "factor is 0"},
        BadValue{"rope_parameters", R"({"main":{}})",
                 "rope_parameters has a set for \"main\"; served are \"full_attention\" and"},
        BadValue{"rope_parameters", R"({"full_attention":{"rope_type":"dynamic"}})",
                 "rope_type is \"dynamic\""},
        BadValue{"rope_parameters", R"({"sliding_attention":{"partial_rotary_factor":0.1}})",
                 "rotates 3 elements"},
        BadValue{"rope_parameters",
                 R"({"full_attention":{"rope_type":"yarn","factor":2,"truncate":false}})",
                 "truncate is false; with parameters for each kind of layer only true"},
        BadValue{"rope_local_base_freq", "1e4", "rope_local_base_freq is 10000.0; Plain is served"},
        BadValue{"torch_dtype", "\"float8\"", "dtype \"float8\" is not known"},
        BadValue{"torch_dtype", "5",
                 "torch_dtype is 5, not the name of a type; write \"bfloat16\", or remove the key"},
        BadValue{"dtype", R"({"text_config": "float8"})", "dtype \"float8\" is not known"},
        BadValue{"eos_token_id", "320", "eos_token_id is 320, but vocab_size is 320"},
        BadValue{"eos_token_id", "[1,-1.5]", "eos_token_id is -1.5"},
        BadValue{"architectures", "[3]", "architectures has 3, not a string"}));

// Every other layer slides; without a theta of their own they rotate by that of the others.
constexpr FamilyReader kAlternating{
    .family = "Alternating", .read = [](ConfigReader& reader, ModelConfig& config) {
      read_layer_kinds(
          reader, config, {LayerKind::kFullAttention, LayerKind::kSlidingAttention}, [](int64_t i) {
            return i % 2 == 0 ? LayerKind::kSlidingAttention : LayerKind::kFullAttention;
          });
      read_sliding_window(reader, config, 16);
    }};

TEST(ModelConfigTest, ReadsTheRotarySettingsOfEachKindOfLayer) {
  json config = small_config();
  EXPECT_FALSE(parse(config, kAlternating)->sliding_rope.has_value());
  config["rope_parameters"] = json::parse(R"({
    "full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 5e3, "partial_rotary_factor": 0.5}
  })");
  const auto sets = parse(config, kAlternating);
  ASSERT_TRUE(sets.ok()) << sets.status().to_string();
  EXPECT_EQ(sets->rope.type, RopeType::kLinear);
  EXPECT_EQ(sets->rope.factor, 8);
  EXPECT_EQ(sets->rope.theta, 1e6);
  ASSERT_TRUE(sets->sliding_rope.has_value());
  EXPECT_EQ(sets->sliding_rope->type, RopeType::kDefault);
  EXPECT_EQ(sets->sliding_rope->theta, 5e3);
  EXPECT_EQ(sets->sliding_rope->partial_rotary_factor, 0.5);

  config["rope_local_base_freq"] = 5e3;  // both spellings agree
  EXPECT_TRUE(parse(config, kAlternating).ok());
  config["rope_local_base_freq"] = 6e3;
  EXPECT_THAT(parse(config, kAlternating).status().message(),
              HasSubstr("rope_local_base_freq is 6000.0, but rope_theta of sliding_attention is"));

  config.erase("rope_parameters");
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8}};
  const auto old = parse(config, kAlternating);
  ASSERT_TRUE(old.ok()) << old.status().to_string();
  EXPECT_EQ(old->rope.factor, 8);
  EXPECT_EQ(old->sliding_rope, (RopeConfig{.theta = 6e3})) << "scaling is of the other layers";
}

TEST(ModelConfigTest, ReadsTheScaleOfQueriesAndItsLength) {
  json config = small_config();
  EXPECT_EQ(parse(config)->rope.query_scale_beta, 0);
  EXPECT_EQ(parse(config)->rope.original_max_position_embeddings, 0);
  config["rope_parameters"] = {{"llama_4_scaling_beta", 0.1},
                               {"original_max_position_embeddings", 8192}};
  EXPECT_EQ(parse(config)->rope.query_scale_beta, 0.1);
  EXPECT_EQ(parse(config)->rope.original_max_position_embeddings, 8192);
}

// A family of files that leave out what has its usual value.
TEST(ModelConfigTest, TakesAFamilysSizesWhereAFileLeavesThemOut) {
  constexpr FamilyReader kBrief{.family = "Brief",
                                .shared_keys =
                                    [](ConfigReader&) {
                                      return SharedKeys{.default_tied = true,
                                                        .default_vocab_size = 640,
                                                        .default_num_heads = 8,
                                                        .default_num_kv_heads = 2,
                                                        .default_max_positions = 4096};
                                    },
                                .read = [](ConfigReader&, ModelConfig&) {}};
  json config = small_config();
  for (const char* key : {"vocab_size", "num_attention_heads", "num_key_value_heads",
                          "max_position_embeddings", "tie_word_embeddings", "eos_token_id"}) {
    config.erase(key);
  }
  const auto parsed = parse(config, kBrief);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->vocab_size, 640);
  EXPECT_EQ(parsed->num_attention_heads, 8);
  EXPECT_EQ(parsed->num_key_value_heads, 2);
  EXPECT_EQ(parsed->max_position_embeddings, 4096);
  EXPECT_TRUE(parsed->tie_word_embeddings);
  EXPECT_THAT(parse(config).status().message(), HasSubstr("vocab_size is missing"));
}

TEST(ModelConfigTest, ReadsLayersThatSlideEverywhereOrPeriodically) {
  const auto windows_of = [](const json& config, auto read) {
    const FamilyReader family{.family = "Sliding", .read = read};
    const auto parsed = parse(config, family);
    EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
    std::vector<int64_t> windows;
    for (int64_t i = 0; parsed.ok() && i < parsed->num_layers; ++i) {
      windows.push_back(parsed->window_of(i));
    }
    return windows;
  };
  const auto everywhere = [](ConfigReader& reader, ModelConfig& config) {
    read_windows_everywhere(reader, config);
  };
  const auto periodic = [](ConfigReader& reader, ModelConfig& config) {
    read_periodic_windows(reader, config, /*default_period=*/2);
  };
  const auto always = [](ConfigReader& reader, ModelConfig& config) {
    read_periodic_windows(reader, config, /*default_period=*/2, /*fallback=*/512);
  };
  json config = small_config();
  config["num_hidden_layers"] = 4;
  const std::vector<int64_t> none(4, 0);
  EXPECT_EQ(windows_of(config, everywhere), none);
  EXPECT_EQ(windows_of(config, periodic), none);
  EXPECT_EQ(windows_of(config, always), (std::vector<int64_t>{512, 0, 512, 0}));
  config["sliding_window"] = 24;
  EXPECT_EQ(windows_of(config, everywhere), std::vector<int64_t>(4, 24));
  EXPECT_EQ(windows_of(config, periodic), (std::vector<int64_t>{24, 0, 24, 0}));
  config["sliding_window_pattern"] = 3;
  EXPECT_EQ(windows_of(config, always), (std::vector<int64_t>{24, 24, 0, 24}));
  config["layer_types"] = {"full_attention", "full_attention", "sliding_attention",
                           "sliding_attention"};
  EXPECT_EQ(windows_of(config, always), (std::vector<int64_t>{0, 0, 24, 24}));
}

TEST(ModelConfigTest, PointsAtWhatIsNotJson) {
  for (const std::string_view text : {"", "{", "nonsense", "[]", "{\"a\":1,}"}) {
    EXPECT_EQ(parse_model_config(text, kPlain).status().code(), StatusCode::kDataLoss) << text;
  }
  // A Python program writes NaN so.
  json config = small_config();
  config["rms_norm_eps"] = {{"__float__", "NaN"}};
  EXPECT_THAT(parse(config).status().message(), HasSubstr("rms_norm_eps is NaN, outside"));
  EXPECT_FALSE(parse_model_config(R"({"rms_norm_eps": 1e999})", kPlain).ok());
  EXPECT_FALSE(parse_model_config(std::string(100000, '['), kPlain).ok());
}

}  // namespace
}  // namespace heddle::checkpoint
